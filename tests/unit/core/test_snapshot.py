"""Snapshots: the same state, the same bytes, and nothing taken for a snapshot that is not one."""

from base64 import b64decode
from hashlib import blake2b

import pytest

from fencehold.core import snapshot
from fencehold.core.anchors import granted_unix_ms
from fencehold.core.commands import (
    Acquire,
    AcquireAtLeast,
    Announce,
    ChangeMap,
    Entry,
    Extend,
    FollowMap,
    FoundShard,
    Mode,
    OpenSession,
    Release,
    Renew,
    SealSlots,
    SetLimits,
)
from fencehold.core.limits import Limits
from fencehold.core.machine import Machine
from fencehold.core.state import Home, SlotMove, Stage
from fencehold.errors import SnapshotUnreadable, UsageError
from fencehold.placement.map import even_map
from fencehold.placement.slots import slot_of

OLDER = (
    "RkVOQ0VIT0xEAQAAADiZAgwDAQGdzQEAzIDNBABAzScQzQPozgABhqDNEADOAA9CQM4FJlwAziQMhADOADbugM0H0JCgoAAAAE2Rk50BzXUwzQPo"
    "oXOweyJjbGllbnQiOiJvbGQifQUAAgGQkJGSApenZ3JhbnRlZAECkaFhAwwAkZIBoWHNdTWRmqFhAaADDAChWAAAoAAAAAD1pExNn5xJYFvT+FqF"
    "V0nUYNkzX/xm2cry9VdvIqlqOQ=="
)
"""A snapshot as it was written before there were anchors."""


def feed(machine: Machine, *commands: object, elapsed_ms: int = 0, unix_ms: int = 0) -> None:
    machine.apply(machine.position + 1, Entry(elapsed_ms, commands, unix_ms))  # type: ignore[arg-type]


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    feed(machine, OpenSession(30_000, 1_000, "secret", "{}"), OpenSession(30_000))
    feed(machine, Acquire(1, ("a",), 1, owner="t1"), Acquire(2, ("a", "b"), 1, wait_ms=5_000), elapsed_ms=10)
    feed(machine, Acquire(1, ("pool",), 2, mode=Mode.PERMIT, limit=3, ttl_ms=900, lock_delay_ms=50))
    feed(machine, Acquire(2, ("book",), 2, mode=Mode.SHARED), Acquire(2, ("book",), 3, mode=Mode.SHARED))
    return machine


def whole(machine: Machine) -> bytes:
    return b"".join(machine.snapshot())


@pytest.mark.guarantee("G12")
def test_a_restored_machine_is_the_same_to_the_byte(machine: Machine) -> None:
    """Snapshot, restore and snapshot again give the same bytes and the same hash."""
    for unix_ms in (0, 1_767_268_800_000):
        feed(machine, unix_ms=unix_ms)
        data = whole(machine)
        restored = Machine.restore(data)
        assert whole(restored) == data
        assert restored.state_hash() == machine.state_hash() == data[-32:].hex()
        assert restored.state.anchors == machine.state.anchors


def test_states_that_differ_have_different_hashes(machine: Machine) -> None:
    """The hash covers everything: a renewal, a limit, a position."""
    hashes = {machine.state_hash()}
    feed(machine)
    hashes.add(machine.state_hash())
    feed(machine, Renew((1,)), elapsed_ms=1)
    hashes.add(machine.state_hash())
    feed(machine, SetLimits(Limits(name_bytes_max=9)))
    feed(machine, Announce("a", "10.0.0.1:7420"))
    hashes.add(machine.state_hash())
    other = Machine.restore(whole(machine))
    for replica, unix_ms in ((machine, 1_767_268_800_000), (other, 1_767_268_800_001)):
        feed(replica, unix_ms=unix_ms)
        hashes.add(replica.state_hash())
    assert len(hashes) == 6


@pytest.mark.guarantee("G12")
def test_a_snapshot_is_of_its_start_whatever_happens_meanwhile(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries applied between two chunks change nothing in the chunks to come."""
    monkeypatch.setattr(snapshot, "_SLICE", 1)
    feed(machine, unix_ms=1_767_268_800_000)
    expected = whole(machine)
    under_way = machine.snapshot()
    chunks = [next(under_way)]
    feed(machine, Release(1, ("a",), 1, 3), Extend(1, ("pool",), 2, 5_000), OpenSession(9_000))
    feed(machine, Extend(1, ("pool",), 2, 7_000), Renew((1, 2)), Acquire(2, ("book",), 4, mode=Mode.SHARED))
    chunks.append(next(under_way))
    for _ in range(20):
        feed(machine, elapsed_ms=2_000, unix_ms=1_767_268_805_000)
    assert not machine.state.sessions
    assert b"".join([*chunks, *under_way]) == expected


def test_one_snapshot_at_a_time(machine: Machine) -> None:
    """A second snapshot is refused until the first was drawn or closed."""
    first = machine.snapshot()
    with pytest.raises(UsageError, match="under way"):
        machine.snapshot()
    first.close()
    assert list(first) == []
    assert whole(machine)
    assert machine.state.saving is None


def test_many_sessions_make_many_chunks(machine: Machine) -> None:
    """What is drawn at a time is bounded, however much there is."""
    feed(machine, *(OpenSession(1_000) for _ in range(2_000)))
    sizes = [len(chunk) for chunk in machine.snapshot()]
    assert len(sizes) > 5
    assert max(sizes) < 100_000


def test_a_snapshot_of_an_older_version_is_read() -> None:
    """It has no anchors, so nothing in it has a time of day; from here on things have."""
    machine = Machine.restore(b64decode(OLDER))
    [hold] = machine.state.holders("a")
    assert (machine.position, machine.fence, hold.fence, hold.since_at) == (2, 3, 3, 12)
    assert granted_unix_ms(machine.state, hold) is None
    feed(machine, Acquire(1, ("b",)), unix_ms=1_767_268_800_000)
    assert granted_unix_ms(machine.state, machine.state.held["b"]) == 1_767_268_800_000


def test_only_one_of_several_shards_says_so_in_its_snapshots() -> None:
    """The only one has the bytes it always had; a shard's say which one it is, and of how many."""
    alone, shard = Machine(), Machine()
    feed(shard, FoundShard(1, 4))
    feed(alone)
    for machine, version in ((alone, 1), (shard, 4)):
        feed(machine, OpenSession(30_000))
        data = whole(machine)
        assert data[9] == version
        assert Machine.restore(data).state.home == machine.state.home
        assert whole(Machine.restore(data)) == data
    assert shard.state.home == Home(1, 4, 4096, 8191)


def test_only_where_slots_have_moved_a_snapshot_has_the_map() -> None:
    """A shard has the bytes it always had until it takes a map; then it says where every slot is, and how far."""
    shard = Machine()
    feed(shard, FoundShard(1, 4), OpenSession(30_000), Acquire(1, ("c",)))
    before = whole(shard)
    feed(shard, ChangeMap(even_map(4).moved([7365, 7366, 1], 3)), FollowMap(even_map(4)))
    placed = whole(shard)
    assert (before[9], placed[9]) == (4, 7)
    again = Machine.restore(placed)
    assert again.state.placed == even_map(4).moved([7365, 7366, 1], 3)
    assert (again.state.slots, list(again.state.draining)) == (shard.state.slots, [7365])
    assert whole(again) == placed
    feed(again, Release(1, ("c",), 1), SealSlots())
    assert again.state.slots[7365] == SlotMove(7365, 2, Stage.CLOSED, 3, 1)


def test_what_is_no_snapshot_is_refused(machine: Machine) -> None:
    """Foreign bytes, an unknown version and damage anywhere are told apart and refused."""
    data = whole(machine)
    with pytest.raises(SnapshotUnreadable, match="not a Fencehold snapshot"):
        Machine.restore(b"nonsense")
    with pytest.raises(SnapshotUnreadable, match=r"format version 63.*1 to 7 are"):
        Machine.restore(data[:9] + b"c" + data[10:])
    for cut in range(10, len(data)):
        with pytest.raises(SnapshotUnreadable, match="damaged or cut short"):
            Machine.restore(data[:cut])
    for at in range(10, len(data), 7):
        with pytest.raises(SnapshotUnreadable, match="damaged"):
            Machine.restore(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])


def test_a_right_hash_over_wrong_content_is_refused() -> None:
    """The hash alone does not make a snapshot."""
    body = b"FENCEHOLD\x01" + (3).to_bytes(4) + b"abc" + bytes(4)
    with pytest.raises(SnapshotUnreadable, match="content"):
        Machine.restore(body + blake2b(body, digest_size=32).digest())
    empty = b"FENCEHOLD\x01" + bytes(4)
    with pytest.raises(SnapshotUnreadable, match="content"):
        Machine.restore(empty + blake2b(empty, digest_size=32).digest())


def keeping(machine: Machine, count: int) -> None:
    """Have that many names kept for a least time: one held, the others released."""
    feed(machine, OpenSession(30_000, meta="m"))
    session = machine.state.session_last
    for number in range(count):
        feed(machine, AcquireAtLeast(session, (f"job {count - number}",), owner="t", at_least_ms=9_000))
        if number:
            feed(machine, Release(session, (f"job {count - number}",), machine.fence))


@pytest.mark.guarantee("G12")
def test_names_that_are_kept_are_in_a_snapshot_of_version_two(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What no earlier version can know is told by the version, and comes back; slices of it are of one moment."""
    monkeypatch.setattr(snapshot, "_SLICE", 2)
    plain = whole(machine)
    keeping(machine, 5)
    data = whole(machine)
    assert (plain[9], data[9]) == (1, 2)
    restored = Machine.restore(data)
    assert restored.state.kept == machine.state.kept
    assert whole(restored) == data
    under_way = machine.snapshot()
    chunks = [next(under_way)]
    for _ in range(6):
        feed(machine, elapsed_ms=2_000)
    assert not machine.state.kept
    assert b"".join([*chunks, *under_way]) == data
    assert whole(machine)[9] == 1


NOTE = '{"why":"' + 900 * "x" + '"}'


@pytest.mark.guarantee("G12")
def test_metadata_is_in_a_snapshot_once_for_all_that_was_granted_together(machine: Machine) -> None:
    """Not once for each name. It comes back with each hold, and is one text there, too."""
    plain = whole(machine)
    feed(machine, Acquire(1, tuple(f"n{number:02}" for number in range(64)), meta=NOTE))
    feed(machine, Acquire(1, ("other",)), Acquire(1, ("third",), meta="3"), Acquire(2, ("fourth",), meta=NOTE))
    data = whole(machine)
    assert (plain[9], data[9], data.count(b"x" * 900)) == (1, 6, 2)
    restored = Machine.restore(data)
    assert restored.state.held == machine.state.held
    assert restored.state.noted == 66
    assert len({id(restored.state.held[f"n{number:02}"].meta) for number in range(64)}) == 1
    assert whole(restored) == data
    under_way = machine.snapshot()
    chunks = [next(under_way)]
    for name, hold in tuple(machine.state.held.items()):
        if hold.meta:
            feed(machine, Release(hold.session, (name,), hold.fence))
    assert b"".join([*chunks, *under_way]) == data
    # Where no hold has any, the bytes are those that an older version reads.
    assert (machine.state.noted, whole(machine)[9]) == (0, 1)


def test_a_shard_with_a_policy_keeps_both_beside_metadata() -> None:
    """The newest version has all that the others have."""
    machine = Machine()
    feed(machine, FoundShard(1, 4))
    feed(machine, OpenSession(30_000))
    name = next(name for name in map(str, range(1_000)) if machine.state.home and _is_home(machine, name))
    feed(machine, Acquire(1, (name,), meta=NOTE))
    data = whole(machine)
    assert data[9] == 6
    assert Machine.restore(data).state.home == machine.state.home
    assert whole(Machine.restore(data)) == data


def _is_home(machine: Machine, name: str) -> bool:
    home = machine.state.home
    return home is not None and home.first <= slot_of(name) <= home.last


def test_more_metadata_than_holds_is_refused(machine: Machine) -> None:
    """A count that is beyond the holds is not believed, right hash or not."""
    feed(machine, Acquire(1, ("noted",), meta=NOTE))
    data = whole(machine)[:-32]
    # The count of one, after the text.
    at = data.index(b'x"}') + 3
    assert data[at] == 1
    wrong = data[:at] + bytes([100]) + data[at + 1 :]
    with pytest.raises(SnapshotUnreadable, match="content"):
        Machine.restore(wrong + blake2b(wrong, digest_size=32).digest())


@pytest.mark.guarantee("G12")
def test_a_state_that_keeps_nothing_has_the_bytes_it_always_had(machine: Machine) -> None:
    """The first version of the format is what is written, and read, where nothing newer is needed."""
    assert machine.state_hash() == "f387463643e0355bfac2ed0d44e0add140987c5d786cc3d9716ed7a56b28d8be"


def test_many_kept_names_make_many_chunks(machine: Machine) -> None:
    """What is drawn at a time is bounded, however many names are kept."""
    keeping(machine, 5_000)
    sizes = [len(chunk) for chunk in machine.snapshot()]
    assert len(sizes) >= 6
    assert max(sizes) < 100_000


def test_a_snapshot_that_says_it_keeps_names_and_does_not_is_refused(machine: Machine) -> None:
    """A version that promises more than there is makes no snapshot."""
    body = bytearray(whole(machine)[:-32])
    body[9] = 2
    body += (3).to_bytes(4) + b"abc" + bytes(4)
    with pytest.raises(SnapshotUnreadable, match="content"):
        Machine.restore(bytes(body) + blake2b(body, digest_size=32).digest())
