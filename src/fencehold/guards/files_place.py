"""A guarded file and the note beside it, used by one process at a time.

1. *One OS lock covers check and write*: `flock` on the note, which is never renamed and never removed. It belongs
   to the opening, so that threads exclude one another, too; it ends with the process, however that ends.
2. *Waiting for it is bounded.* After the timeout nothing has happened: `Unavailable`.
3. *A note is made whole*: written and synced under another name, then linked to its own. So an empty one was not
   left by a crash: it is damage.
4. *The next call undoes an interrupted append*, before anything else is done.
"""

import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from zlib import crc32

from fencehold.errors import StaleFence, Unavailable, UsageError
from fencehold.guards.files_note import HEAD_BYTES, NOTE_BYTES_MAX, Note, decode
from fencehold.guards.offer import Offer
from fencehold.locks.traces import noted

_POLL_MIN_S, _POLL_MAX_S = 0.000_5, 0.02
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW


class Place:
    """A guarded file's path, and those of the files beside it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # One file has one note, whatever path is used for it.
        self.path = Path(os.path.realpath(path))
        self.note = self.path.with_name(f".{self.path.name}.fence")
        self.new = self.path.with_name(f".{self.path.name}.fence-new")
        """The file that will replace it. One name for all: a process that is killed leaves at most one."""

    def make_note(self, name: str) -> None:
        """Create the note, with a mark of 0, unless there is one. Idempotent."""
        draft = self.note.with_name(f"{self.note.name}-{secrets.token_hex(8)}")
        try:
            write_file(draft, Note(name).encode(), os.O_EXCL)
            with suppress(FileExistsError):
                os.link(draft, self.note)
        finally:
            draft.unlink(missing_ok=True)
        self.sync_names()

    def sync_names(self) -> None:
        """Make the names in the folder durable."""
        fd = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    @contextmanager
    def locked(self, offer: Offer, *, strict: bool, timeout_s: float) -> Iterator["Owned"]:
        """Lock the file exclusively.

        Raises:
            UsageError: strict, and there is no note; or it is guarded by another name.
            Unavailable: others held it all the time. Nothing happened.
            Damaged: the note is not whole. Nothing happened.
        """
        until = time.monotonic() + timeout_s
        fd = self._lock(offer, strict, until)
        try:
            owned = Owned(self, fd, decode(os.pread(fd, NOTE_BYTES_MAX + 1, 0), str(self.note)))
            owned.settle()
            yield owned
        finally:
            # Explicitly, and not left to `close`: a process that was forked meanwhile shares the open file.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def _lock(self, offer: Offer, strict: bool, until: float) -> int:
        while True:
            fd = self._open(offer, strict)
            try:
                _flock(fd, until, str(self.path))
                if self._is_here(fd):
                    return fd
            except BaseException:
                os.close(fd)
                raise
            # It was removed while we waited: a lock on it excludes no other process.
            os.close(fd)

    def _open(self, offer: Offer, strict: bool) -> int:
        while True:
            try:
                return os.open(self.note, os.O_RDWR | _FLAGS)
            except FileNotFoundError:
                if strict:
                    raise UsageError(
                        f"{str(self.path)!r} has no mark: this guard is strict, register the file first"
                    ) from None
                self.make_note(offer.name)

    def _is_here(self, fd: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(fd), os.stat(self.note, follow_symlinks=False))
        return False


class Owned:
    """The file and its note, while this process has them exclusively."""

    def __init__(self, place: Place, fd: int, note: Note) -> None:
        self.place = place
        self.note = note
        self._fd = fd

    def refuse_stale(self, offer: Offer) -> None:
        """Raise if the offer must not write here."""
        if offer.name != self.note.name:
            raise UsageError(
                f"{str(self.place.path)!r} is guarded by the fences of {self.note.name!r}, not of {offer.name!r}"
            )
        if offer.fence < self.note.mark:
            raise noted(StaleFence(name=offer.name, fence=offer.fence, mark=self.note.mark))

    def admit(self, offer: Offer) -> None:
        """Check the offer and raise the mark, durably."""
        self.refuse_stale(offer)
        if offer.fence > self.note.mark:
            self.put(self.note._replace(mark=offer.fence))

    def put(self, note: Note, *, durably: bool = True) -> None:
        """Write the note."""
        # The name behind it is there from the beginning.
        os.pwrite(self._fd, note.encode()[:HEAD_BYTES], 0)
        self.note = note
        if durably:
            self.sync()

    def sync(self) -> None:
        """Make durable what was put before; costs nothing if it is."""
        os.fdatasync(self._fd)

    def settle(self) -> None:
        """Undo an append that was interrupted: all of it is there, or nothing."""
        note = self.note
        if note.length == 0:
            return
        with suppress(FileNotFoundError):
            fd = os.open(self.place.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                if _is_partial(fd, note):
                    os.ftruncate(fd, note.before)
                    os.fdatasync(fd)
            finally:
                os.close(fd)
        # If this is lost in a power failure, the same is found, and done, again.
        self.put(note.settled, durably=False)


def write_file(path: Path, data: bytes, flags: int, mode: int | None = None) -> None:
    """Make a file of these bytes, durably except for its name."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | _FLAGS | flags, 0o666)
    try:
        if mode is not None:
            os.fchmod(fd, mode)
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, where one call may write less."""
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def _is_partial(fd: int, note: Note) -> bool:
    size = os.fstat(fd).st_size
    if not note.before < size <= note.before + note.length:
        return False
    return size < note.before + note.length or crc32(os.pread(fd, note.length, note.before)) != note.digest


def _flock(fd: int, until: float, path: str) -> None:
    pause = _POLL_MIN_S
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise Unavailable(f"{path!r}: others were writing all the time; nothing happened") from None
        time.sleep(pause)
        pause = min(pause * 1.5, _POLL_MAX_S)
