"""The note beside a guarded file: which name guards it, the mark, and an append in progress.

1. *A note is whole or refused.* It has a checksum over all of it, and a fixed size for its name; an empty, torn or
   foreign file is `Damaged`, and never taken for a mark of 0.
2. *What changes is in the first 512 bytes*, written in one call: a disk writes such a sector whole or not at all,
   and a process that is killed has written it whole or not at all. The name behind it never changes.
3. It is text, so that an operator who must decide can read it.
"""

import re
from typing import NamedTuple
from zlib import crc32

from fencehold.errors import Damaged

_HEAD = "fencehold fence 1 mark={:019d} before={:019d} length={:019d} digest={:08x} check={:08x}\n"
_READ = re.compile(
    rb"fencehold fence 1 mark=(\d{19}) before=(\d{19}) length=(\d{19}) digest=([0-9a-f]{8}) check=([0-9a-f]{8})\n"
)
HEAD_BYTES = len(_HEAD.format(0, 0, 0, 0, 0))
NOTE_BYTES_MAX = HEAD_BYTES + 513


class Note(NamedTuple):
    """What is known of a guarded file beside it."""

    name: str
    """Of the lock whose fences guard it."""
    mark: int = 0
    before: int = 0
    """The size of the file before the append in progress."""
    length: int = 0
    """How much that append adds; 0: none is in progress."""
    digest: int = 0
    """The checksum of what it adds."""

    @property
    def settled(self) -> "Note":
        """The same, with no append in progress."""
        return self._replace(before=0, length=0, digest=0)

    def appending(self, before: int, data: bytes) -> "Note":
        """The same, with an append in progress."""
        return self._replace(before=before, length=len(data), digest=crc32(data))

    def encode(self) -> bytes:
        return self._head(crc32(self._head(0) + self._tail())) + self._tail()

    def _head(self, check: int) -> bytes:
        return _HEAD.format(self.mark, self.before, self.length, self.digest, check).encode()

    def _tail(self) -> bytes:
        return self.name.encode() + b"\n"


def decode(text: bytes, place: str) -> Note:
    """The note that these bytes are.

    Raises:
        Damaged: they are none.
    """
    found = _READ.match(text)
    if found is not None and text.endswith(b"\n"):
        mark, before, length = map(int, found.groups()[:3])
        note = Note(_name(text[HEAD_BYTES:-1]), mark, before, length, int(found[4], 16))
        if note.encode() == text:
            return note
    raise Damaged(
        f"{place} is not a complete note of a guard ({len(text)} bytes): the fences seen are not known. Nothing "
        "was written. If the name is not held, remove it, and the next fence counts as the first"
    )


def _name(text: bytes) -> str:
    # What cannot be decoded does not come out the same when it is encoded again, and is refused by that.
    return text.decode(errors="replace")
