"""The newest epoch, in a file of its own, replaced whole.

The rule it obeys: an epoch is durable before anything is written under it, so a record can never be of a newer
epoch than the file names. A file that is not what was written is refused: guessing low would unseal a leader.

::

    epoch   magic 8 | format version u32 | epoch u64 | crc u32
"""

import struct
from zlib import crc32

from fencehold.engines.file.directory import Directory
from fencehold.engines.file.records import check_version
from fencehold.errors import Damaged
from fencehold.types import Epoch

NAME = "epoch"
_MAGIC = b"FHepo\r\n\x1a"
_VERSION = 1
_FIELDS = struct.Struct("<8sIQ")
_CRC = struct.Struct("<I")


def read_epoch(directory: Directory) -> Epoch | None:
    """The newest epoch; None if nobody ever led."""
    file = directory.file(NAME)
    try:
        data = directory.disk.read(file)
    except FileNotFoundError:
        return None
    return _decode(data, file)


def write_epoch(directory: Directory, epoch: Epoch) -> None:
    """Make `epoch` the newest, durably. Raises as `Directory.replace`."""
    fields = _FIELDS.pack(_MAGIC, _VERSION, epoch)
    directory.replace(NAME, fields + _CRC.pack(crc32(fields)))


def _decode(data: bytes, file: str) -> Epoch:
    if len(data) != _FIELDS.size + _CRC.size or not data.startswith(_MAGIC):
        raise Damaged(f"{file}: not an epoch file; restore it from a copy")
    _, version, epoch = _FIELDS.unpack_from(data)
    check_version(version, file)
    if _CRC.unpack_from(data, _FIELDS.size)[0] != crc32(data[: _FIELDS.size]):
        raise Damaged(f"{file}: the newest epoch is damaged; restore the file from a copy")
    return Epoch(epoch)
