"""What the observer takes for each operation: short holds of names that come once, by 64 sessions, with a history
that is full, so that as much is dropped as is written.

All of it in one process and without a server, from the frame that a node sends to the row that is dropped.
"""

import random
from collections.abc import Iterator
from time import process_time

from bench import folders
from bench.samples import Figures
from fencehold.core.commands import Acquire, Command, Entry, OpenSession, Release
from fencehold.core.machine import Machine
from fencehold.core.outcomes import Granted
from fencehold.observe.frames import Entries, Journaled, Unframer, framed, read_said
from fencehold.observe.history.store import Bounds
from fencehold.observe.observer import Observer, Settings

SESSIONS = 64
COMMANDS = (40, 64)
"""Of an entry, at the least and at the most."""
_A_MS = 31
"""Operations in a millisecond."""
_IN_A_FRAME = 30
"""Entries: those of 50 ms."""
_FRAMES_A_BATCH = 5
_START_MS = 1_800_000_000_000


class Busy:
    """A machine that is asked without a pause: each session acquires a name, then releases it."""

    def __init__(self) -> None:
        self._machine = Machine()
        self._lots = random.Random(17)
        self._told = 0
        self._held: dict[int, tuple[str, int]] = {}
        opening = OpenSession(60_000, meta='{"client": "worker", "host": "box", "pid": 4711}')
        self._first = [self._applied(Entry(0, (opening,) * SESSIONS, _START_MS))]

    def frame(self) -> tuple[bytes, int]:
        """What a node tells in one go, and of how many operations."""
        things, self._first = [*self._first, *(self._entry() for _ in range(_IN_A_FRAME))], []
        told, self._told = self._told, self._machine.position
        said = Entries("correctness", told, self._told, True, things, [0.0005] * len(things))
        return framed(said), sum(len(thing.entry.commands) for thing in things)

    def _entry(self) -> Journaled:
        asking = self._lots.sample(sorted(self._machine.state.sessions), self._lots.randint(*COMMANDS))
        thing = self._applied(Entry(len(asking) // _A_MS, tuple(map(self._command, asking))))
        for command, outcome in zip(thing.entry.commands, thing.applied.outcomes, strict=True):
            if isinstance(command, Acquire) and isinstance(outcome, Granted):
                self._held[command.session] = command.names[0], outcome.fence
        return thing

    def _command(self, session: int) -> Command:
        held = self._held.pop(session, None)
        if held is not None:
            return Release(session, (held[0],), held[1])
        return Acquire(session, (f"n:{self._lots.randrange(10**9):012d}",), wait_ms=0)

    def _applied(self, entry: Entry) -> Journaled:
        return Journaled(entry, self._machine.apply(self._machine.position + 1, entry))


def observed(operations: int, rows_max: int) -> Figures:
    """Observe so many operations with a history that is full."""
    folder = folders.new_folder()
    try:
        observer = Observer(Settings(history=str(folder / "h"), bounds=Bounds(rows_max=rows_max)))
        busy, unframer = Busy(), Unframer()

        def taken(count: int) -> Iterator[tuple[float, int]]:
            while count > 0:
                frames = [busy.frame() for _ in range(_FRAMES_A_BATCH)]
                begun = process_time()
                for data, _ in frames:
                    for frame in unframer.feed(data):
                        observer.take(read_said(frame))
                observer.settle()
                many = sum(number for _, number in frames)
                count -= many
                yield process_time() - begun, many

        # Each hold is two operations.
        list(taken(2 * rows_max))
        took = list(taken(operations))
        observer.close()
        return {
            "us": sum(seconds for seconds, _ in took) / sum(many for _, many in took) * 1e6,
            "least_us": min(seconds / many for seconds, many in took) * 1e6,
        }
    finally:
        folders.remove(folder)
