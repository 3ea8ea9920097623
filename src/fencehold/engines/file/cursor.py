"""Reading entries in order, from segment to segment, in steps that fit in memory.

It runs beside the appender and shares nothing with it but the files. The rules it obeys:

1. It never looks beyond the position it is told was acknowledged, so what it reads is settled: bytes there that
   are not a whole record of the next position are damage.
2. No file stays open between steps, so a reader that is given up leaks nothing and holds up no trim.
3. A segment that is gone was trimmed if a snapshot covers the next position; otherwise it was lost.
"""

import os

from fencehold.engines.file.directory import Directory, segment_name
from fencehold.engines.file.records import HEAD_BYTES, RECORD_BYTES, decode_head, find, length_at
from fencehold.errors import Damaged, Trimmed, Unavailable
from fencehold.journal.port import Record
from fencehold.types import Position

_STEP_BYTES = 256 << 10


class Cursor:
    """A place in the log: the entry at `position` has been read, the next one begins at an offset."""

    def __init__(self, directory: Directory, after: Position) -> None:
        self.position = after
        self._directory = directory
        self._disk = directory.disk
        self._file: str | None = None
        self._salt = 0
        self._offset = 0
        self._found = Position(0)
        """The position before the offset: behind `position` until the first entry wanted is found."""

    def step(self, end: Position) -> list[Record]:
        """The next entries, at least one, none beyond `end`.

        Raises:
            Trimmed: the next entry is gone, and a snapshot covers it.
            Damaged: stored bytes are not what was written.
            Unavailable: the file cannot be read.
        """
        try:
            records: list[Record] = []
            while not records:
                records = self._step(end)
            return records
        except FileNotFoundError:
            raise self._missing() from None
        except OSError as error:
            raise Unavailable(f"{self._file}: cannot be read: {error.strerror}") from error

    def _step(self, end: Position) -> list[Record]:
        if self._file is None:
            self._enter(self._holding(Position(self.position + 1)))
        data = self._data()
        records, offset = [], 0
        while self._found < end and (place := find(data, offset, self._salt)):
            if place.position != self._found + 1:
                raise self._damaged(offset, f"position {place.position} stands where {self._found + 1} belongs")
            if place.position > self.position:
                records.append(Record(*place[:2], data[offset + RECORD_BYTES : place.end]))
                self.position = place.position
            self._found, offset = place.position, place.end
        if offset == 0:
            self._enter_next(data)
        self._offset += offset
        return records

    def _data(self) -> bytes:
        """The bytes from the offset on: a step's worth, or as many as the next record takes."""
        fd = self._disk.open(str(self._file), os.O_RDONLY)
        try:
            data = self._disk.pread(fd, _STEP_BYTES, self._offset)
            size = length_at(data, 0)
            if size is not None and size > len(data) == _STEP_BYTES:
                data += self._disk.pread(fd, size - len(data), self._offset + len(data))
            return data
        finally:
            self._disk.close(fd)

    def _holding(self, position: Position) -> Position:
        firsts = [first for first in self._directory.segments() if first <= position]
        if not firsts:
            raise self._missing()
        return firsts[-1]

    def _enter_next(self, data: bytes) -> None:
        following = Position(self._found + 1)
        if self._offset > HEAD_BYTES and following in self._directory.segments():
            self._enter(following)
        elif not any(data) and following <= max(self._directory.snapshots(), default=0):
            raise self._missing()
        else:
            raise self._damaged(0, f"not the whole record of position {following}")

    def _enter(self, first: Position) -> None:
        self._file = self._directory.file(segment_name(first))
        fd = self._disk.open(self._file, os.O_RDONLY)
        try:
            head = self._disk.pread(fd, HEAD_BYTES, 0)
        finally:
            self._disk.close(fd)
        self._salt = decode_head(head, first, self._file)
        self._offset, self._found = HEAD_BYTES, Position(first - 1)

    def _missing(self) -> Trimmed | Damaged:
        wanted = Position(self.position + 1)
        covered = max(self._directory.snapshots(), default=Position(0))
        if wanted <= covered:
            return Trimmed(f"{self._directory.path}: position {wanted} was trimmed; the snapshot is at {covered}")
        return Damaged(
            f"{self._directory.path}: position {wanted} is missing: no segment holds it; "
            "restore the segments from a copy"
        )

    def _damaged(self, offset: int, what: str) -> Damaged:
        return Damaged(f"{self._file}: offset {self._offset + offset}: {what}; restore the file from a copy")
