"""The layout: paths in the order of their numbers, values that are read back or refused."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencehold.drivers.zookeeper.kazoo_client import ZookeeperAnswer
from fencehold.engines.zookeeper.layout import (
    BUCKET,
    STUB,
    Digest,
    Layout,
    Pointer,
    entry_value,
    generation,
    opens_bucket,
    pointed,
    record,
    snapshot_name,
)
from fencehold.errors import Damaged, Trimmed
from fencehold.journal.port import Record
from fencehold.types import Epoch, Position

POSITIONS = st.integers(0, 10**15).map(Position)


@given(POSITIONS, POSITIONS)
def test_paths_are_in_the_order_of_positions(one: Position, other: Position) -> None:
    """Names have digits of equal number, so sorting them sorts positions; buckets and positions alike."""
    layout = Layout("/root")
    assert (layout.entry(one) < layout.entry(other)) == (one < other)
    assert layout.entry(one).startswith(layout.bucket(one // BUCKET) + "/")


@given(POSITIONS, st.integers(1, (1 << 31) - 1).map(Epoch), st.binary(min_size=1))
def test_an_entry_is_read_back(position: Position, epoch: Epoch, entry: bytes) -> None:
    """Every epoch and every entry survive being a value."""
    assert record(position, entry_value(epoch, entry)) == Record(position, epoch, entry)


def test_what_is_no_entry_is_not_taken_for_one() -> None:
    """A stub stands for what a snapshot holds; anything else that we did not write is damage."""
    with pytest.raises(Trimmed):
        record(Position(5), STUB)
    for value in (b"x", entry_value(Epoch(1), b""), b"\x07" + entry_value(Epoch(1), b"entry")[1:]):
        with pytest.raises(Damaged, match="position 5"):
            record(Position(5), value)


def test_a_bucket_is_opened_by_its_first_position() -> None:
    """A thousand positions share a bucket, and the first of each makes it."""
    assert [position for position in range(2_500) if opens_bucket(position)] == [0, 1_000, 2_000]


def test_the_ancestors_of_a_root_begin_at_the_top() -> None:
    """Each can be made when the one before it is there."""
    assert Layout("/a/b/c").ancestors() == ["/a", "/a/b", "/a/b/c"]


def test_a_pointer_is_read_back_or_refused() -> None:
    """Nothing saved is no pointer; a value that is none, or a node that is missing, is damage."""
    pointer = Pointer(7, "0000000003-token", 2, 300, 12345)
    stat = SimpleNamespace(version=3)
    seen = pointed(ZookeeperAnswer((pointer.encode(), stat)))
    assert (seen.version, seen.pointer, seen.position) == (3, pointer, 7)
    empty = pointed(ZookeeperAnswer((b"", stat)))
    assert (empty.pointer, empty.position) == (None, 0)
    with pytest.raises(Damaged):
        pointed(ZookeeperAnswer((b"{}", stat)))


def test_a_snapshot_says_its_generation() -> None:
    """The generation is read back from the name; names that are not ours have none."""
    assert generation(snapshot_name(42, "to-ken")) == 42
    assert generation("somebody-elses") is None


def test_a_digest_tells_every_difference() -> None:
    """A snapshot whose chunks differ in number, size or content from what was saved does not fit."""
    digest = Digest()
    for chunk in (b"one", b"two"):
        digest.add(chunk)
    pointer = Pointer(1, "name", digest.chunks, digest.size, digest.crc32)
    assert digest.fits(pointer)
    for chunks in ([b"one"], [b"onetwo"], [b"two", b"one"], [b"one", b"two", b""]):
        other = Digest()
        for chunk in chunks:
            other.add(chunk)
        assert not other.fits(pointer)
