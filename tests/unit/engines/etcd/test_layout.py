"""Entries as values in etcd."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencehold.engines.etcd.layout import POSITION_MAX, JournalKeys, decode_entry, encode_beginning, encode_entry
from fencehold.errors import Damaged
from fencehold.journal.port import Record
from fencehold.types import Epoch, Position

POSITIONS = st.integers(0, POSITION_MAX).map(Position)
EPOCHS = st.integers(0, POSITION_MAX).map(Epoch)


@given(POSITIONS, EPOCHS, st.binary(min_size=1))
def test_an_entry_comes_back_as_it_was(position: Position, epoch: Epoch, entry: bytes) -> None:
    """Epoch and entry are read from the value; the position is its key's."""
    assert decode_entry(position, encode_entry(position, epoch, entry)) == Record(position, epoch, entry)


@given(POSITIONS)
def test_a_beginning_is_no_entry(position: Position) -> None:
    """What holds the place before the first entry is never taken for one."""
    assert decode_entry(position, encode_beginning(position)) is None


@pytest.mark.parametrize(
    "value", [encode_entry(Position(7), Epoch(3), b"an entry"), encode_beginning(Position(7))]
)
def test_a_changed_value_is_damage(value: bytes) -> None:
    """A flipped bit, a missing byte or the value of another position is never read as an entry."""
    wrong = [value[:-1], value[1:], b"", value + b"!"]
    wrong += [value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :] for at in range(len(value))]
    for damaged in wrong:
        with pytest.raises(Damaged, match="position 7"):
            decode_entry(Position(7), damaged)
    with pytest.raises(Damaged, match="position 8"):
        decode_entry(Position(8), value)


@given(st.lists(POSITIONS, min_size=2))
def test_keys_sort_as_positions_do(positions: list[Position]) -> None:
    """A range of keys is a range of positions, and a key tells its position."""
    keys = JournalKeys("/a/")
    entries = [keys.entry(position) for position in positions]
    assert sorted(entries) == [keys.entry(position) for position in sorted(positions)]
    assert [keys.position(entry) for entry in entries] == positions
    assert all(keys.entries_start <= entry < keys.entries_end for entry in entries)


@given(st.sampled_from(["epoch", "snapshot", "entries", "snapshots", "b"]), POSITIONS)
def test_ranges_touch_no_journal_below_the_prefix(name: str, position: Position) -> None:
    """A journal may be kept under the prefix of another, whatever it is called."""
    keys, below = JournalKeys("/a/"), JournalKeys(f"/a/{name}/")
    others = [below.epoch, below.snapshot, below.entry(position), below.chunk(f"{position:020d}-x", 0)]
    for start, end in [(keys.entries_start, keys.entries_end), keys.snapshots_before(Position(POSITION_MAX))]:
        assert not any(start <= key < end for key in others)
