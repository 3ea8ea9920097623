"""The layout: which znodes a journal is made of, and what their values say.

::

    /fencehold/epoch                            its version is the newest epoch; 0: there never was a leader
    /fencehold/entries/<bucket>/<position>      the epoch and the entry
    /fencehold/snapshot                         the pointer: which of the snapshots is current
    /fencehold/snapshots/<generation>-<token>/<chunk>

1. Entries form one stretch of positions without gaps, and there is always at least one: the last is the end of
   the journal. In a journal that is empty, or begins with a snapshot from elsewhere, it is a *stub*: a position
   without an entry, whose value is empty. So every append can ask for the one before it.
2. A thousand positions share a bucket, so that no znode has more children than fit into an answer. The bucket is
   made with its first position.
3. The generation of a snapshot is the version the pointer has once it points there. So what is still being
   written has a generation after the pointer's, and what has one before it can never be current again.
"""

import struct
import zlib

import msgspec

from fencehold.drivers.zookeeper.kazoo_client import ZookeeperAnswer
from fencehold.errors import Damaged, Trimmed
from fencehold.journal.port import Record
from fencehold.types import BEGINNING, Epoch, Position

BUCKET = 1_000
_HEAD = struct.Struct("!BI")
_VERSION = 1


class Layout:
    """The paths of one journal."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.epoch = f"{root}/epoch"
        self.entries = f"{root}/entries"
        self.pointer = f"{root}/snapshot"
        self.snapshots = f"{root}/snapshots"

    def ancestors(self) -> list[str]:
        """The root and what is above it, from the top."""
        parts = self.root.split("/")
        return ["/".join(parts[:count]) for count in range(2, len(parts) + 1)]

    def bucket(self, number: int) -> str:
        return f"{self.entries}/{number:013d}"

    def entry(self, position: int) -> str:
        return f"{self.entries}/{position // BUCKET:013d}/{position:016d}"

    def snapshot(self, name: str) -> str:
        return f"{self.snapshots}/{name}"

    def chunk(self, name: str, number: int) -> str:
        return f"{self.snapshots}/{name}/{number:06d}"


def opens_bucket(position: int) -> bool:
    """Whether this position is the first of its bucket."""
    return position % BUCKET == 0


STUB = b""


def entry_value(epoch: Epoch, entry: bytes) -> bytes:
    """The value of an entry's znode."""
    return _HEAD.pack(_VERSION, epoch) + entry


def record(position: Position, value: bytes) -> Record:
    """What an entry's znode says.

    Raises:
        Trimmed: it is a stub; the entry that was there is in a snapshot.
        Damaged: the value is not one of ours.
    """
    if value == STUB:
        raise Trimmed(f"the journal begins after position {position}: start from the snapshot")
    if len(value) <= _HEAD.size or value[0] != _VERSION:
        raise Damaged(f"the znode of position {position} holds {len(value)} bytes that are no entry")
    return Record(position, Epoch(_HEAD.unpack_from(value)[1]), value[_HEAD.size :])


class Pointer(msgspec.Struct, frozen=True):
    """Which snapshot is current, and what it must be made of."""

    position: int
    name: str
    chunks: int
    size: int
    crc32: int

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class Pointed(msgspec.Struct, frozen=True):
    """The pointer as it was read."""

    version: int
    pointer: Pointer | None

    @property
    def position(self) -> Position:
        return Position(self.pointer.position) if self.pointer is not None else BEGINNING


NO_POINTER = b""


def pointed(answer: ZookeeperAnswer) -> Pointed:
    """What the pointer's znode says.

    Raises:
        Damaged: it is missing, or its value is not one of ours.
    """
    if answer.is_missing:
        raise Damaged("the pointer to the snapshot is missing: the journal was removed, or a part of it")
    value, stat = answer.unwrap()
    try:
        return Pointed(stat.version, msgspec.json.decode(value, type=Pointer) if value else None)
    except msgspec.DecodeError as error:
        raise Damaged(f"the pointer to the snapshot cannot be read: {error}") from error


def snapshot_name(generation: int, token: str) -> str:
    return f"{generation:010d}-{token}"


def generation(name: str) -> int | None:
    """The generation of the snapshot of this name; None for a name that is not one of ours."""
    number, _, _ = name.partition("-")
    return int(number) if number.isdecimal() else None


class Digest:
    """What the chunks of a snapshot add up to."""

    def __init__(self) -> None:
        self.chunks = self.size = self.crc32 = 0

    def add(self, chunk: bytes) -> None:
        self.chunks += 1
        self.size += len(chunk)
        self.crc32 = zlib.crc32(chunk, self.crc32)

    def fits(self, pointer: Pointer) -> bool:
        return (self.chunks, self.size, self.crc32) == (pointer.chunks, pointer.size, pointer.crc32)
