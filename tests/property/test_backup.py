"""A backup taken at any point of any conversation, and a journal that begins with it.

The conversations are those of `conversation`. Now and then what was said so far, with a snapshot amid it, goes
through the bytes of a backup into another journal; what a node would find there is compared with the machine.
"""

import asyncio
from io import BytesIO

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from fencehold.backup import export, fence_after, load, restore
from fencehold.core import commands as c
from fencehold.core.machine import Machine
from fencehold.core.quotas import Usage
from fencehold.core.state import State
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.journal.codec import encode
from fencehold.journal.port import Record, Snapshot
from fencehold.types import Epoch, Position
from tests.property.conversation import LIMITS, Conversation, make_small
from tests.property.tables import TABLES
from tests.property.test_machine_model import EXAMPLES, PROFILE

NOW_US = 1_800_000_000_000_000
_CHANGED = {"position", "fence", "leader", "leader_address"}
"""What a restore changes. The rest of the tables is compared; what the last entry led to is none."""
_BESIDE = {"notices", "outcomes", "repeated", "ticking", "saving"}
_WORKED_OUT = {"rulebook", "usage"}
"""Made of the policy, which is compared, and of what is held and awaited."""
_DUE = {"sessions_due", "holds_due", "waiters_due", "delays_due", "kept_due"}
"""Made of the other tables, and kept in an order that no answer depends on."""


class BackedUp(Conversation):
    """Keeps all entries, and restores them elsewhere from time to time."""

    def __init__(self) -> None:
        super().__init__()
        # The limits come by an entry, as a server sets them: a journal begins with a machine that has none.
        self.entries: list[c.Entry] = []
        self.journaled = Machine()
        self._journal(c.Entry(0, (c.SetLimits(LIMITS),)))

    def _journal(self, entry: c.Entry) -> None:
        self.entries.append(entry)
        self.journaled.apply(len(self.entries), entry)

    def send(self, elapsed_ms: int) -> None:
        entry = c.Entry(elapsed_ms, tuple(self.pending))
        super().send(elapsed_ms)
        self._journal(entry)

    @precondition(lambda self: len(self.entries) > 1)
    @rule(snapshot=st.integers(0, 1_000), is_trimmed=st.booleans(), later_us=st.sampled_from((0, 1, 10**9)))
    def back_up_and_restore(self, snapshot: int, is_trimmed: bool, later_us: int) -> None:
        store = self.store(snapshot % (len(self.entries) + 1), is_trimmed)
        machine, fence = asyncio.run(through_a_backup(store, NOW_US + later_us))
        assert machine.fence == fence >= NOW_US + later_us
        compare(machine.state, self.copy(c.Entry(0)).state)
        self.judge_what_follows(machine, fence)

    def copy(self, entry: c.Entry) -> Machine:
        """The machine as it is, after one entry more: by any entry, also one in which no time passes, what is due
        comes to its end."""
        machine = Machine.restore(b"".join(self.journaled.snapshot()))
        machine.apply(machine.position + 1, entry)
        return machine

    def store(self, snapshot_at: int, is_trimmed: bool) -> MemoryStore:
        """A journal of all entries so far."""
        store = MemoryStore()
        store.epoch = Epoch(1)
        store.records = [
            Record(Position(at), Epoch(1), encode(entry)) for at, entry in enumerate(self.entries, start=1)
        ]
        if snapshot_at:
            earlier = Machine()
            for at, entry in enumerate(self.entries[:snapshot_at], start=1):
                earlier.apply(at, entry)
            store.snapshot = Snapshot(Position(snapshot_at), b"".join(earlier.snapshot()))
        if is_trimmed:
            store.trimmed = Position(snapshot_at)
            del store.records[:snapshot_at]
        return store

    def judge_what_follows(self, restored: Machine, fence: int) -> None:
        """To the byte, it is the machine that was told of the raised fence; and it ends all it knows of."""
        told = self.copy(c.Entry(0, (c.RaiseFence(fence), c.Announce("", ""))))
        assert told.state_hash() == restored.state_hash()
        for machine in (told, restored):
            closed = tuple(c.CloseSession(session) for session in machine.state.sessions)
            machine.apply(machine.position + 1, c.Entry(300, closed))
        assert told.state_hash() == restored.state_hash()


async def through_a_backup(store: MemoryStore, now_us: int) -> tuple[Machine, int]:
    """The machine in a journal that began with the backup of another, and what its fence was raised to."""
    sink, target = BytesIO(), MemoryStore()
    await export(MemoryJournal(store), sink, now_us=NOW_US, made_by="")
    loaded = load(BytesIO(sink.getvalue()), "backup")
    fence = fence_after(loaded.head, now_us=now_us)
    restored = await restore(MemoryJournal(target), loaded, fence)
    journal = MemoryJournal(target)
    opened = await journal.open()
    assert opened.snapshot is not None
    assert opened.snapshot.position == opened.end == restored.position == store.end + 1
    return Machine.restore(opened.snapshot.data), fence


def _used(usage: Usage | None) -> list[list[tuple[str, int, int, int]]]:
    if usage is None:
        return []
    return [
        [(who, had.sessions, had.holds, had.waiters) for who, had in sorted(table.items())]
        for table in (usage.principals, usage.under)
    ]


def compare(found: State, expected: State) -> None:
    """Everything but the fence, and who leads, is as it was."""
    for table in sorted(TABLES - _CHANGED - _BESIDE - _DUE - _WORKED_OUT - {"sessions"}):
        assert getattr(found, table) == getattr(expected, table), f"{table} differs"
    assert (found.rulebook is None) is (expected.rulebook is None)
    assert _used(found.usage) == _used(expected.usage), "usage differs"
    for session, other in zip(found.sessions.values(), expected.sessions.values(), strict=True):
        for field in session.__struct_fields__:
            if field != "due_at":
                assert getattr(session, field) == getattr(other, field), f"{field} of {session} differs"


@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G12")
def test_a_restored_backup_is_the_journal_but_for_its_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was said before, wherever the snapshot stood: all is there, and fences go on above."""
    make_small(monkeypatch)
    run_state_machine_as_test(BackedUp, settings=settings(PROFILE, max_examples=(EXAMPLES + 5) // 6))
