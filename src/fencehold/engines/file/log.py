"""Appending: the segment in use, room in it, one write and one sync for each entry.

All of it runs on the appender's thread, which alone owns the state here; `end`, `epoch` and `stopped` may be read
by other threads. So a caller that is cancelled cannot tear anything: the append under way ends, and the next is
checked against where the log really ends. The rules it obeys:

1. An entry is counted and marked after its sync returned, never before.
2. An error before any byte of the record is written, or after which those bytes were surely taken away, is
   `Unavailable`, and the log goes on. So a full disk is waited out.
3. A sync that failed, or a write whose traces could not be taken away, *stops* the log: `OutcomeUnknown`, and
   nothing more is written until the journal is opened anew. The sync is never tried again: the kernel may have
   dropped the pages it could not write, and would report success for data that is gone.
"""

import contextlib
import errno
import os
from time import perf_counter
from typing import NoReturn

from fencehold.engines.file.directory import Directory, seed_name, segment_name
from fencehold.engines.file.marks import Mark, write_epoch
from fencehold.engines.file.recovery import recover
from fencehold.engines.file.segments import HEAD_BYTES, RECORD_BYTES, Segment, create, encode, scan
from fencehold.engines.file.snapshots import put_in_place
from fencehold.errors import OutcomeUnknown, OutOfPlace, Overloaded, Sealed, Unavailable, UsageError
from fencehold.journal.port import Opened
from fencehold.journal.sync_times import SyncTimes
from fencehold.types import BEGINNING, Epoch, Position

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_ROOM_S = 1.0
"""How soon to try again when the disk is full: an operator has to make room."""


class Log:
    """The log of a directory this process owns."""

    def __init__(
        self,
        directory: Directory,
        *,
        segment_bytes_max: int,
        allocate_bytes: int,
        sync_times: SyncTimes | None = None,
    ) -> None:
        self.end = Position(0)
        self.epoch = Epoch(0)
        self.stopped: str | None = None
        self._directory = directory
        self._disk = directory.disk
        self._segment_bytes_max = segment_bytes_max
        self._allocate_bytes = allocate_bytes
        self._mark: Mark | None = None
        self._fd: int | None = None
        self._file = directory.path
        self._salt = self._offset = self._allocated = 0
        self._rolls = False
        self._sync_times = SyncTimes() if sync_times is None else sync_times

    def open(self) -> Opened:
        """Own the directory, recover it, and be ready to append. On an error everything is closed."""
        try:
            self._directory.own()
            opened, segment = recover(self._directory)
            self._mark = Mark(self._directory, opened.end)
            if segment is not None:
                self._resume(segment)
        except OSError as error:
            self.close()
            raise Unavailable(
                f"{self._directory.path}: cannot be opened: {_said(error)}; put that right, then open it again"
            ) from error
        except BaseException:
            self.close()
            raise
        self.end, self.epoch = opened.end, opened.epoch
        return opened

    def lead(self, known: Epoch | None = None) -> Epoch:
        """Take the next epoch."""
        self.refuse_if_stopped()
        if known is not None and self.epoch > known:
            raise Sealed(f"epoch {self.epoch} was taken before", newest=self.epoch)
        epoch = Epoch(self.epoch + 1)
        try:
            write_epoch(self._directory, epoch)
        except OutcomeUnknown as error:
            self.stop(str(error))
            raise
        except OSError as error:
            raise _refused(
                error, f"{self._directory.path}: epoch {epoch} was not taken: {_said(error)}"
            ) from error
        self.epoch = epoch
        return epoch

    def append(self, entry: bytes, epoch: Epoch, position: Position) -> None:
        """Append at the end, and return when it is durable."""
        self._check(epoch, position)
        size = RECORD_BYTES + len(entry)
        fd = self._fd
        if fd is None or self._rolls or self._offset + size > self._allocated:
            fd = self._make_room(size)
        try:
            self._disk.write(fd, encode(entry, epoch, position, self._salt), self._offset)
        except OSError as error:
            self._take_back(fd, error)
        began = perf_counter()
        try:
            self._disk.datasync(fd)
        except OSError as error:
            self._lost_track(error, "syncing")
        self._sync_times.add(perf_counter() - began)
        self._offset += size
        self.end = position
        if self._mark is not None:
            self._mark.set(position)

    def seed(self, position: Position) -> None:
        """Begin after the seed at `position`, of which a finished draft is there."""
        self.refuse_to_seed(position)
        try:
            self._directory.publish(seed_name(position))
        except OSError as error:
            raise Unavailable(f"{self._directory.path}: it was not seeded: {_said(error)}") from error
        except OutcomeUnknown as error:
            self.stop(str(error))
            raise
        try:
            put_in_place(self._directory, position)
            self._leave_segment()
            self._resume(scan(self._directory, Position(position + 1), self.epoch))
        except (OSError, OutcomeUnknown) as error:
            self.stop(f"{self._directory.file(seed_name(position))}: not yet in its place: {error}")
            raise OutcomeUnknown(f"{self.stopped}; close the journal and open it anew, then read") from error
        self.end = position
        if self._mark is not None:
            self._mark.set(position)

    def refuse_to_seed(self, position: Position) -> None:
        """Raises what keeps it from being seeded there, if anything does."""
        self.refuse_if_stopped()
        if position <= BEGINNING:
            raise UsageError(f"{self._directory.path}: a journal is seeded at a position above 0, not {position}")
        try:
            is_empty = not self.end and not self._directory.snapshots()
        except OSError as error:
            raise Unavailable(f"{self._directory.path}: cannot be read: {_said(error)}") from error
        if not is_empty:
            raise UsageError(
                f"{self._directory.path}: only an empty journal can be seeded, and this one ends at {self.end}"
            )

    def roll(self) -> None:
        """Let the next entry begin a new segment: a snapshot is on its way that makes those before it unnecessary,
        and only whole segments are trimmed. May be called on any thread: the next append does it."""
        self._rolls = True

    def stop(self, reason: str) -> None:
        """Write nothing more until the journal is opened anew."""
        self.stopped = self.stopped or reason

    def refuse_if_stopped(self) -> None:
        if self.stopped is not None:
            raise Unavailable(
                f"{self._directory.path}: stopped, since {self.stopped}; check the disk, then close the journal "
                "and open it anew"
            )

    def close(self) -> None:
        """Free the room that was not used, and close everything. Never fails."""
        if self._fd is not None:
            # After a failure the file stays as it is: it is evidence, and only recovery may judge it.
            if self.stopped is None:
                self._give_back_room(self._fd)
            fd, self._fd = self._fd, None
            # Every entry was synced, or its caller got an error: an error of closing says nothing new.
            with contextlib.suppress(OSError):
                self._disk.close(fd)
        if self._mark is not None:
            self._mark.close()
        self._directory.disown()

    def _resume(self, segment: Segment) -> None:
        self._fd = self._disk.open(segment.file, os.O_RDWR)
        self._file, self._salt, self._offset = segment.file, segment.salt, segment.offset
        self._allocated = self._disk.size(self._fd)

    def _check(self, epoch: Epoch, position: Position) -> None:
        self.refuse_if_stopped()
        if epoch < self.epoch:
            raise Sealed(f"{self._directory.path}: epoch {epoch} was sealed by epoch {self.epoch}")
        if epoch > self.epoch:
            raise UsageError(f"{self._directory.path}: epoch {epoch} was never taken: the newest is {self.epoch}")
        if position != self.end + 1:
            raise OutOfPlace(f"{self._directory.path}: the next position is {self.end + 1}, not {position}")

    def _make_room(self, size: int) -> int:
        """Have room for `size` bytes at the offset, in this segment or in a new one."""
        fd = self._fd
        if fd is None or (self._offset > HEAD_BYTES and self._offset + size > self._segment_bytes_max):
            return self._begin_segment(size)
        if self._rolls and self._offset > HEAD_BYTES:
            # Only to have more to trim: where there is no room for another segment, this one will do.
            with contextlib.suppress(Overloaded):
                return self._begin_segment(size)
        self._rolls = False
        if self._offset + size <= self._allocated:
            return fd
        # In steps, since overwriting zeros is quicker to sync than growing the file; but a nearly full disk that
        # has no room for a step may still have room for the entry.
        for allocated in (self._step_ahead(self._offset, size), self._offset + size):
            try:
                self._disk.write(fd, bytes(allocated - self._allocated), self._allocated)
            except OSError as error:
                self._no_room(fd, error, final=allocated == self._offset + size)
            else:
                self._allocated = allocated
                break
        return fd

    def _step_ahead(self, offset: int, size: int) -> int:
        """Where to allocate to: a step ahead, no further than the segment goes, but far enough for the entry."""
        return max(offset + size, min(offset + self._allocate_bytes, self._segment_bytes_max))

    def _no_room(self, fd: int, error: OSError, *, final: bool) -> None:
        message = f"{self._file}: offset {self._offset}: no room for position {self.end + 1}: {_said(error)}"
        try:
            # What was written of the room are zeros, and harmless; but others need the space, to free more.
            self._disk.truncate(fd, self._allocated)
        except OSError as also:
            self.stop(f"{message}; then {_said(also)}")
            final = True
        if error.errno not in FULL:
            self.stop(message)
            final = True
        if final:
            raise _refused(error, f"{message}; make room on the disk, then try again") from error

    def _begin_segment(self, size: int) -> int:
        first = Position(self.end + 1)
        try:
            fd, salt, allocated = self._created(first, size)
        except OutcomeUnknown as error:
            # Not of the entry: nothing of it is written. But an empty segment of this name may stay behind.
            self.stop(str(error))
            raise Unavailable(f"{error}; nothing was appended; close the journal and open it anew") from error
        except OSError as error:
            raise _refused(
                error,
                f"{self._directory.file(segment_name(first))}: no new segment: {_said(error)}; "
                "make room on the disk, then try again",
            ) from error
        self._leave_segment()
        self._rolls = False
        self._fd, self._salt, self._offset, self._allocated = fd, salt, HEAD_BYTES, allocated
        self._file = self._directory.file(segment_name(first))
        return fd

    def _created(self, first: Position, size: int) -> tuple[int, int, int]:
        """A new segment with room for a step ahead; on a nearly full disk for the entry alone."""
        ahead, least = self._step_ahead(HEAD_BYTES, size), HEAD_BYTES + size
        try:
            return *create(self._directory, first, ahead), ahead
        except OSError as error:
            if error.errno not in FULL or ahead == least:
                raise
        return *create(self._directory, first, least), least

    def _leave_segment(self) -> None:
        if self._fd is not None:
            self._give_back_room(self._fd)
            fd, self._fd = self._fd, None
            self._disk.close(fd)

    def _give_back_room(self, fd: int) -> None:
        # Neither synced nor needed: zeros after the last record mean the same as its being the end of the file.
        with contextlib.suppress(OSError):
            self._disk.truncate(fd, self._offset)
            self._allocated = self._offset

    def _take_back(self, fd: int, error: OSError) -> NoReturn:
        """The record was written in part: cut it off durably, or lose track of it."""
        if error.errno not in FULL:
            self._lost_track(error, "writing")
        try:
            # A record that ends in zeros may be whole though its writing was cut short, so it must not stay; and
            # without the sync it could come back.
            self._disk.truncate(fd, self._offset)
            self._disk.sync(fd)
        except OSError as also:
            self._lost_track(also, f"writing ({_said(error)}), then cutting")
        self._allocated = self._offset
        raise _refused(
            error,
            f"{self._file}: offset {self._offset}: no room for position {self.end + 1}: {_said(error)}; "
            "make room on the disk, then try again",
        ) from error

    def _lost_track(self, error: OSError, doing: str) -> NoReturn:
        reason = f"{self._file}: offset {self._offset}: {doing} position {self.end + 1} failed: {_said(error)}"
        self.stop(reason)
        raise OutcomeUnknown(
            f"{reason}; the entry may be there: check the disk, then close the journal, open it anew and read"
        ) from error


def _said(error: OSError) -> str:
    return error.strerror or str(error)


def _refused(error: OSError, message: str) -> Unavailable:
    """Certainly nothing happened: for want of room, or for another reason."""
    return Overloaded(message, retry_after_s=_ROOM_S) if error.errno in FULL else Unavailable(message)
