"""A machine fed by hand, and what observers are told of it."""

import json
from typing import Any

from fencehold.core.commands import Acquire, Command, Entry, Mode, OpenSession, OpenSessionAs, Release
from fencehold.core.machine import Machine
from fencehold.core.outcomes import Applied, Granted
from fencehold.observe.facts import Fact, facts_of
from fencehold.observe.frames import Began, Entries, Journaled

START_MS = 1_800_000_000_000


class Story:
    """Entries, one after the other."""

    def __init__(self) -> None:
        self.machine = Machine()
        self.told: list[Journaled] = []
        self._is_dated = False

    def entry(self, *commands: Command, elapsed_ms: int = 0) -> Applied:
        """One more, after so long."""
        date = 0 if self._is_dated else START_MS
        self._is_dated = True
        entry = Entry(elapsed_ms, commands, date)
        applied = self.machine.apply(self.machine.position + 1, entry)
        self.told.append(Journaled(entry, applied))
        return applied

    def open(self, client: str, *, principal: str = "", ttl_ms: int = 60_000, **more: Any) -> int:
        """A session of a client."""
        meta = json.dumps({"client": client, "host": "box", "pid": 7, **more})
        command = (
            OpenSessionAs(ttl_ms, meta=meta, principal=principal) if principal else OpenSession(ttl_ms, meta=meta)
        )
        self.entry(command)
        return self.machine.state.session_last

    def acquire(self, session: int, *names: str, elapsed_ms: int = 0, **terms: Any) -> int:
        """Acquire names; the fence, or 0 if it waits."""
        (outcome,) = self.entry(Acquire(session, names, **terms), elapsed_ms=elapsed_ms).outcomes
        return outcome.fence if isinstance(outcome, Granted) else 0

    def release(self, session: int, fence: int, *names: str, elapsed_ms: int = 0) -> None:
        self.entry(Release(session, names, fence), elapsed_ms=elapsed_ms)

    def facts(self) -> list[Fact]:
        """All that happened."""
        return [fact for thing in self.told for fact in facts_of(thing.entry, thing.applied)]

    def entries(self, since: int = 0, *, leads: bool = True, append_s: tuple[float, ...] = ()) -> Entries:
        """What a node tells of the entries after a position."""
        things = [thing for thing in self.told if thing.applied.position > since]
        return Entries("correctness", since, self.machine.position, leads, things, list(append_s))

    def began(self) -> Began:
        """What a node tells when it opens the journal."""
        return Began(self.machine.position)


SHARED = Mode.SHARED
