"""The history of a run: what clients asked, got and trusted, what nodes said, and what was stored.

Every instant is true time, in nanoseconds since the run began, which nobody inside the run can know.
"""

from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import NamedTuple

from fencehold.core.commands import Mode
from tests.simulation.store import Led, Saved, Stored
from tests.simulation.wire import Said

NEVER = -1


@dataclass(slots=True)
class Ask:
    """An acquire as its application saw it."""

    client: str
    names: tuple[str, ...]
    mode: Mode
    limit: int
    asked_ns: int
    ended_ns: int = NEVER
    outcome: str = ""
    """`granted`, or why not; empty if it never ended."""
    fence: int = 0
    orphaned: bool = False
    """Its process was killed before it ended."""
    fences: dict[str, int] = field(default_factory=dict)
    """Of each name, where they were granted in several shards."""

    def fence_of(self, name: str) -> int:
        """With which one of its names was granted."""
        return self.fences.get(name, self.fence)


@dataclass(slots=True)
class Held:
    """A hold as its application saw it."""

    client: str
    names: tuple[str, ...]
    mode: Mode
    limit: int
    fence: int
    granted_ns: int
    trusted_ns: int
    """When it was last seen to be trusted. It is looked at whenever an entry is about to be durable."""
    distrusted_ns: int = NEVER
    """When it was first seen not to be."""
    relapsed_ns: int = NEVER
    """When it was seen to be trusted again after that: never, one hopes."""
    release_ns: int = NEVER
    lost_ns: int = NEVER
    lost: str = ""
    fences: dict[str, int] = field(default_factory=dict)
    """Of each name, if it is joint: granted in several shards."""

    def fence_of(self, name: str) -> int:
        """With which one of its names is held."""
        return self.fences.get(name, self.fence)


class Fault(NamedTuple):
    """Something that was done to the world."""

    at_ns: int
    kind: str
    what: str


class Replicated(NamedTuple):
    """The state of a node's replica at the end."""

    node: str
    position: int
    state_hash: str


@dataclass
class History:
    """All of it."""

    seed: int
    asks: list[Ask] = field(default_factory=list)
    holds: list[Held] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    leads: list[Led] = field(default_factory=list)
    snapshots: list[Saved] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    replicas: list[Replicated] = field(default_factory=list)
    rates: dict[str, float] = field(default_factory=dict)
    """How fast the clock of each node's machine goes."""
    complaints: list[str] = field(default_factory=list)
    """What event loops had to complain of."""
    healed_ns: int = 0
    """When the last fault was over."""
    idle_ns: int = NEVER
    """When every client had ended all it did; never, if one hung."""
    resting_ns: int = NEVER
    """When what they had given up had had time to be given back."""
    living: tuple[str, ...] = ()
    """The clients that were there then."""
    closed_ns: int = NEVER
    """When every client was closed."""
    wild: tuple[str, ...] = ()
    """Clients that keep to no rule."""
    calm_ns: int = NEVER
    """From when on no fault, past or present, explains the loss of a session; never, if nobody is wild."""
    calm_until_ns: int = NEVER
    busy: tuple[str, ...] = ()
    """Clients that did not come to an end in time."""
    beside: "list[History]" = field(default_factory=list)
    """Of each shard after the first, where there are several: what was stored, led, saved, replicated and said."""

    def parts(self) -> "list[History]":
        """The history of each shard: its own journal and answers, and what clients saw of all of them."""
        return [self] + [
            replace(
                self,
                said=each.said,
                stored=each.stored,
                leads=each.leads,
                snapshots=each.snapshots,
                replicas=each.replicas,
                beside=[],
            )
            for each in self.beside
        ]

    def digest(self) -> str:
        """The same for the same history."""
        digest = blake2b(digest_size=8)
        for part in (self.asks, self.holds, self.stored, self.leads, self.faults, self.complaints):
            digest.update(repr(part).encode())
        for said in self.said:
            digest.update(repr((said.at_ns, said.node, said.session, said.words, said.heard_ns)).encode())
        for each in self.beside:
            digest.update(each.digest().encode())
        return digest.hexdigest()
