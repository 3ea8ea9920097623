"""The holds of one client of a gateway: found by their id, or by a name and a fence, while they last and after.

1. A hold that has ended is remembered for a while, with how: so a release can be answered: it was released before,
   has expired, or never existed.
2. The loss of a hold is reported to the listening client at once.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fencehold import aio
from fencehold.errors import HoldLost, NotOwner, UsageError
from fencehold.gateway.problems import AlreadyReleased
from fencehold.types import Tier


@dataclass(slots=True, eq=False)
class Held:
    """One hold, and the options it was requested with."""

    hold: aio.Claim
    tier: Tier
    mode: str
    ttl_ms: int
    request_id: str
    owner: str
    hold_id: str
    ending: str = ""
    """How it ended: `released`, or in words how it was lost."""
    calls: int = 0
    """How many calls were answered with it, or are about to be."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.hold.names

    @property
    def fence(self) -> int:
        return self.hold.fence if isinstance(self.hold, aio.Hold) else 0

    def safe_for_ms(self, at_most_s: float) -> int:
        """For how long it can be trusted, in whole milliseconds, never rounded up."""
        return 0 if self.ending else int(1000 * min(self.hold.safe_for(), at_most_s))


class Holds:
    """What one client holds, and has held."""

    def __init__(self, endings_max: int, on_lost: Callable[[Held], None]) -> None:
        self._endings_max = endings_max
        self._on_lost = on_lost
        self._live: dict[str, Held] = {}
        self._ended: OrderedDict[str, Held] = OrderedDict()
        self._ids: dict[tuple[str, int], str] = {}
        """By name and fence, of those that are live and those that have ended."""

    def __len__(self) -> int:
        return len(self._live)

    def live(self) -> tuple[Held, ...]:
        return tuple(self._live.values())

    def first(self) -> Held | None:
        """The one held longest."""
        return next(iter(self._live.values()), None)

    def add(self, hold: aio.Claim, **said: Any) -> Held:
        """Keep a new hold."""
        held = Held(hold, hold_id=secrets.token_urlsafe(12), **said)
        self._live[held.hold_id] = held
        for name in held.names if held.fence else ():
            self._ids[name, held.fence] = held.hold_id
        hold.lost.add_callback(lambda _: self._lose(held))
        return held

    def find(self, hold_id: str, name: str, fence: int) -> Held:
        """The live hold that is named.

        Raises:
            UsageError: none is named.
            NotOwner, AlreadyReleased, HoldLost: it is not held, or no longer.
        """
        if not hold_id and not (name and fence):
            raise UsageError("name the hold: by its hold_id, or by a name and its fence")
        key = self._key(hold_id, name, fence)
        held = self._live.get(key)
        if held is not None:
            return held
        ended = self._ended.get(key)
        told = f"hold {hold_id}" if hold_id else f"{name!r} with fence {fence}"
        if ended is None:
            raise NotOwner(f"{told} is not held by this session")
        if ended.ending == "released":
            raise AlreadyReleased(f"{told} was released before")
        raise HoldLost(
            f"{told} is lost: {ended.ending}", names=ended.names, fence=ended.fence, reason=ended.ending
        )

    def ended(self, hold_id: str, name: str, fence: int) -> Held:
        """A hold that has ended, and is still remembered."""
        return self._ended[self._key(hold_id, name, fence)]

    def _key(self, hold_id: str, name: str, fence: int) -> str:
        return hold_id or self._ids.get((name, fence), "")

    def end(self, held: Held, how: str) -> None:
        """A hold has ended; remember how."""
        if self._live.pop(held.hold_id, None) is None:
            return
        held.ending = how
        self._ended[held.hold_id] = held
        while len(self._ended) > self._endings_max:
            _, oldest = self._ended.popitem(last=False)
            for name in oldest.names:
                self._ids.pop((name, oldest.fence), None)

    def _lose(self, held: Held) -> None:
        if held.hold_id in self._live:
            self.end(held, held.hold.lost.reason or "it was lost")
            self._on_lost(held)
