"""The chain of an audit log on disk: its files and lines, where it ends, and whether it is intact.

Each record has a number, and the hash of the line before. A line that was changed, removed or inserted breaks the
chain, across rotated files, too. Of a line that a crash tore, nothing is kept.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fencehold.errors import UsageError

FIRST = "0" * 64
"""The `prev` of the first record there is."""
CURRENT = "audit.log"
_ROTATED = re.compile(r"audit-(\d{12})\.log")


class End(NamedTuple):
    """Where a log ends."""

    seq: int = 0
    hash: str = FIRST
    position: int = 0
    """The last position of the journal that a record is about, and how many there are about it."""
    there: int = 0

    def after(self, record: dict[str, Any], line: bytes) -> "End":
        """Where it ends when this record follows."""
        position = 0 if record.get("tier") == "EFFICIENCY" else record.get("position", 0)
        there = self.there + 1 if position == self.position else 1
        held = (position, there) if position >= self.position and position else (self.position, self.there)
        return End(record["seq"], hashlib.sha256(line).hexdigest(), *held)


class BrokenChain(UsageError):
    """A record that is not what was written; the message says which."""


def files(folder: Path) -> list[Path]:
    """The files of a log, oldest first."""
    rotated = sorted(path for path in folder.glob("audit-*.log") if _ROTATED.fullmatch(path.name))
    return [*rotated, *([folder / CURRENT] if (folder / CURRENT).exists() else [])]


def lines(folder: Path) -> Iterator[tuple[str, bytes]]:
    """All lines of a log, each with its place."""
    for path in files(folder):
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                yield f"{path.name}, line {number}", line


def verify(folder: Path) -> tuple[End, End]:
    """Check that the chain is intact; returns where it begins, which is before the oldest record, and where it
    ends.

    Raises:
        BrokenChain: it is not; the message says where.
    """
    first = end = None
    for where, line in lines(folder):
        try:
            record = msgspec.json.decode(line)
            seq, prev = record["seq"], record["prev"]
        except (msgspec.DecodeError, KeyError, TypeError):
            raise BrokenChain(f"{where} is not a record") from None
        if not line.endswith(b"\n"):
            raise BrokenChain(f"{where} is cut off")
        if end is None:
            first = end = End(seq - 1, prev)
        if seq != end.seq + 1:
            raise BrokenChain(f"{where}: record {seq} follows record {end.seq}")
        if prev != end.hash:
            raise BrokenChain(f"{where}: record {end.seq} is not what it was when record {seq} was written")
        end = end.after(record, line.removesuffix(b"\n"))
    return first or End(), end or End()


def end_of(folder: Path) -> End:
    """Where a log ends; `verify` finds what is broken before that."""
    end = End()
    for path in files(folder)[-2:]:
        with path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                try:
                    end = end.after(msgspec.json.decode(line), line.removesuffix(b"\n"))
                except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError):
                    raise UsageError(f"{path} is not an audit log: move it away, and see what wrote it") from None
    return end


def opened(path: Path) -> int:
    """A file of a log, to be written at its end by its owner alone."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)


def without_torn_line(file: int) -> int:
    """Cut off what a crash left of a last line; returns the size of the file then."""
    size = os.fstat(file).st_size
    at = size
    while at:
        start = max(0, at - 65_536)
        newline = os.pread(file, at - start, start).rfind(b"\n")
        if newline >= 0:
            at = start + newline + 1
            break
        at = start
    if at < size:
        os.ftruncate(file, at)
    return at
