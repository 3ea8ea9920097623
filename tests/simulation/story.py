"""The story: what the journal says happened, entry by entry, told by a machine that was never killed.

It is replayed once, from the first entry, whatever nodes made of snapshots and trims. On the way the guarantees
that can be seen in a journal are judged by `tests.property.guarantees`, and everything that an answer could be
explained by is noted with the time it was durable.
"""

import json
from dataclasses import dataclass, field
from typing import NamedTuple

from fencehold.core import commands as c
from fencehold.core import outcomes as o
from fencehold.core.machine import Machine
from fencehold.core.release import LAPSED_MAX
from fencehold.journal.codec import decode
from tests.property import guarantees as judged
from tests.simulation.store import Stored


class Violation(NamedTuple):
    """A guarantee that was broken."""

    guarantee: str
    at_ns: int
    what: str

    def __str__(self) -> str:
        return f"{self.guarantee} at {self.at_ns / 1e9:.6f}: {self.what}"


class Grant(NamedTuple):
    """What an entry gave away."""

    at_ns: int
    position: int
    granted: o.Granted
    mode: c.Mode
    limit: int


@dataclass
class Story:
    """What happened, by what it may explain. Instants are those at which an entry was durable."""

    machine: Machine = field(default_factory=Machine)
    violations: list[Violation] = field(default_factory=list)
    grants: dict[int, Grant] = field(default_factory=dict)
    """By fence."""
    broken: dict[tuple[str, int], int] = field(default_factory=dict)
    """Name and fence of holds that an operator ended."""
    ended: dict[tuple[str, int], int] = field(default_factory=dict)
    """Name and fence of holds that ended other than by a release."""
    requests: dict[tuple[int, int], int] = field(default_factory=dict)
    """Session and request of all that were acted upon, first time."""
    finals: dict[tuple[int, int], int] = field(default_factory=dict)
    """The same of those whose wait came to an end."""
    cancels: dict[tuple[int, int], int] = field(default_factory=dict)
    opened: dict[int, int] = field(default_factory=dict)
    closed: dict[int, int] = field(default_factory=dict)
    over: dict[int, int] = field(default_factory=dict)
    """Sessions that have ended."""
    expired: dict[int, int] = field(default_factory=dict)
    """Those that ended because they were not renewed."""
    renewed: dict[tuple[int, int], int] = field(default_factory=dict)
    """Session and logical time."""
    breaks: dict[int, int] = field(default_factory=dict)
    """By the new fence."""
    clients: dict[int, str] = field(default_factory=dict)
    """What the client of each session calls itself."""
    ttls_ns: dict[int, int] = field(default_factory=dict)
    """Of each session."""
    asks: dict[tuple[int, int], c.Acquire] = field(default_factory=dict)
    latest: list[Grant] = field(default_factory=list)
    """What the last entry gave away."""
    _history: judged.History | None = field(default_factory=lambda: judged.History(LAPSED_MAX))

    def tell(self, record: Stored) -> bool:
        """Apply the next entry; False if the machine cannot."""
        entry = decode(record.data)
        self.latest = []
        try:
            applied = self.machine.apply(record.position, entry)
        except Exception as error:
            self._break("machine", record.at_ns, f"position {record.position}: {error!r}")
            return False
        self._judge(record, entry, applied)
        self._note(record.at_ns, entry, applied)
        return True

    def _break(self, guarantee: str, at_ns: int, what: str) -> None:
        self.violations.append(Violation(guarantee, at_ns, what))

    def _judge(self, record: Stored, entry: c.Entry, applied: o.Applied) -> None:
        if self._history is None:
            return
        try:
            self._history.follow(entry, applied)
            if any(isinstance(outcome, o.Granted) for outcome in applied.outcomes) or applied.notices:
                judged.g2_exclusive_is_exclusive(self.machine.state)
        except (AssertionError, KeyError) as error:
            guarantee, _, what = str(error).partition(": ")
            self._break(
                guarantee if what else "journal", record.at_ns, f"position {record.position}: {what or error!r}"
            )
            # From here on it would only say the same again.
            self._history = None

    def _note(self, at_ns: int, entry: c.Entry, applied: o.Applied) -> None:
        for index, (command, outcome) in enumerate(zip(entry.commands, applied.outcomes, strict=True)):
            match command:
                case c.Acquire() | c.Release() | c.Extend() | c.Refuse():
                    self._on_request(at_ns, applied, command, outcome, index in applied.repeated)
                case c.Cancel():
                    self.cancels.setdefault((command.session, command.request), at_ns)
                case c.Renew():
                    for session in command.sessions:
                        self.renewed.setdefault((session, applied.at_ms), at_ns)
                case c.OpenSession() if isinstance(outcome, o.Opened):
                    self.opened[outcome.session] = at_ns
                    self.clients[outcome.session] = _client(command.meta)
                    self.ttls_ns[outcome.session] = command.ttl_ms * 1_000_000
                case c.CloseSession():
                    self.closed.setdefault(command.session, at_ns)
                case c.Break() if isinstance(outcome, o.Broken):
                    self.breaks[outcome.fence] = at_ns
                case _:
                    pass
        for _, notice in applied.notices:
            self._on_notice(at_ns, applied, notice)

    def _on_request(
        self, at_ns: int, applied: o.Applied, command: c.Request, outcome: o.Outcome, is_repeated: bool
    ) -> None:
        key = (command.session, command.request)
        self.requests.setdefault(key, at_ns)
        if isinstance(command, c.Acquire) and not is_repeated:
            self.asks[key] = command
            if isinstance(outcome, o.Granted):
                self._on_granted(at_ns, applied.position, outcome, command)

    def _on_notice(self, at_ns: int, applied: o.Applied, notice: o.Notice) -> None:
        match notice:
            case o.WaitEnded():
                key = (notice.session, notice.request)
                self.finals.setdefault(key, at_ns)
                if isinstance(notice.answer, o.Granted):
                    self._on_granted(at_ns, applied.position, notice.answer, self.asks.get(key))
            case o.HoldEnded():
                self._on_ended(at_ns, notice.name, notice.fence, notice.ending)
            case o.SessionEnded():
                self.over[notice.session] = at_ns
                if notice.ending is o.Ending.EXPIRED:
                    self.expired[notice.session] = at_ns
                for name, fence in notice.holds:
                    self._on_ended(at_ns, name, fence, notice.ending)

    def _on_granted(self, at_ns: int, position: int, granted: o.Granted, ask: c.Acquire | None) -> None:
        mode, limit = (ask.mode, ask.limit) if ask is not None else (c.Mode.EXCLUSIVE, 0)
        if granted.fence in self.grants:
            self._break("G1", at_ns, f"fence {granted.fence} is given away twice in the journal")
        grant = self.grants[granted.fence] = Grant(at_ns, position, granted, mode, limit)
        self.latest.append(grant)

    def _on_ended(self, at_ns: int, name: str, fence: int, ending: o.Ending) -> None:
        self.ended.setdefault((name, fence), at_ns)
        # To disable a user is an act of an operator, as a break is: neither waits for the client.
        if ending in (o.Ending.BROKEN, o.Ending.REVOKED):
            self.broken.setdefault((name, fence), at_ns)


def _client(meta: str) -> str:
    """What a client calls itself; empty if what it says makes no sense, as a wild one's need not."""
    try:
        said = json.loads(meta or "{}")
    except ValueError:
        return ""
    return str(said.get("client", "")) if isinstance(said, dict) else ""
