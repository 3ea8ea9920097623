"""How the stamp of a write gets into the bytes of an object, and out of them again.

1. *No two writes of a guard have the same bytes*: each has a stamp, its fence and a random number. S3 makes
   an object's ETag of its bytes alone. Without a stamp, a write that says the same as the one before, or changes
   metadata only, would leave the ETag as it was, and a condition on it would not see that write.
2. What is put in is returned unchanged.

`line` puts it into a first line of its own. `gzip` puts it into an extra field of a gzip header, and declares
`Content-Encoding: gzip`: an HTTP client that decodes gzip sees only the bytes that were put.
"""

import gzip
import struct
from typing import Literal, NamedTuple, TypeAlias

from fencehold.errors import Damaged

Form: TypeAlias = Literal["line", "gzip"]
FORMS: tuple[Form, ...] = ("line", "gzip")

_LINE = b"fencehold fence 1 "
_GZIP = b"\x1f\x8b\x08"
_FEXTRA = 4
_FIELD = b"Fh"
_HEADER_BYTES = 10
_LEVEL = 6


class Stamp(NamedTuple):
    """What makes one write different from every other."""

    fence: int
    draw: str

    @property
    def text(self) -> bytes:
        return f"{self.fence} {self.draw}".encode()


def wrap(form: Form, body: bytes, stamp: Stamp) -> bytes:
    """The bytes of an object with this body."""
    if form == "line":
        return _LINE + stamp.text + b"\n" + body
    packed = gzip.compress(body, _LEVEL, mtime=0)
    field = _FIELD + struct.pack("<H", len(stamp.text)) + stamp.text
    flags = bytes([packed[3] | _FEXTRA])
    extra = struct.pack("<H", len(field)) + field
    return packed[:3] + flags + packed[4:_HEADER_BYTES] + extra + packed[_HEADER_BYTES:]


def unwrap(data: bytes) -> bytes:
    """What was put, of the bytes of an object that a guard wrote; for readers that have none.

    Raises:
        Damaged: no guard wrote these.
    """
    if data.startswith(_LINE):
        return data.partition(b"\n")[2]
    if data.startswith(_GZIP):
        try:
            return gzip.decompress(data)
        except (OSError, EOFError) as error:
            raise Damaged(f"an object that is not whole: {error}") from error
    raise Damaged("an object that says it was written by a guard, and was not")
