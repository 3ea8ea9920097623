"""History: what clients at work saw, with instants of one monotonic clock, in seconds.

1. An instant that speaks for a client is taken on the safe side: trust begins when a grant was returned, and ends
   when the hold was last *found* to be trusted, or its release was asked for. So what overlaps here did overlap.
2. What is not known is not filled in: a claim without an end may have been granted, a release without an answer
   may have been done.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.robustness.grants import Grants


@dataclass(slots=True)
class Claim:
    """One request for one name by one client, from being asked to whatever became of it."""

    client: str
    session: int
    """The client's session when it asked; when it was granted, if it was."""
    name: str
    asked_at: float
    granted_at: float | None = None
    fence: int = 0
    trusted_until: float = 0.0
    """When the hold was last found to be trusted."""
    let_go_at: float | None = None
    """When its release was asked for."""
    freed_at: float | None = None
    """When its release was answered."""
    refused_at: float | None = None
    """When it was not to be had in the time given."""
    lost: str = ""
    """Why the hold was lost, if it was."""
    failure: str = ""
    """What the acquire, or the release, raised; begins with the name of the error."""
    failed_at: float | None = None

    @property
    def is_held(self) -> bool:
        """Granted, and neither given back nor lost, as far as the client knows."""
        return self.granted_at is not None and self.let_go_at is None and not self.lost

    def __str__(self) -> str:
        fence = f", fence {self.fence}" if self.fence else ""
        return f"{self.name!r} of {self.client} (session {self.session}{fence}, asked at {self.asked_at:.3f})"


class Seen(NamedTuple):
    """A hold as the service tells it."""

    session: int
    fence: int


class Reading(NamedTuple):
    """Who held a name at some moment between the asking and the answer."""

    asked_at: float
    answered_at: float
    name: str
    holds: tuple[Seen, ...]


class Loss(NamedTuple):
    """A session, or a hold, that a client no longer has and did not give back."""

    at: float
    client: str
    what: str


@dataclass(slots=True)
class History:
    """All of a run. Claims stand in the order they were asked."""

    claims: list[Claim] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    grants: Grants = field(default_factory=Grants)
    """When claims were granted, whosever."""
    losses: list[Loss] = field(default_factory=list)
    failures: int = 0
    """Requests that ended with an error."""

    def granted(self) -> Iterator[Claim]:
        """Claims that were granted."""
        return (claim for claim in self.claims if claim.granted_at is not None)
