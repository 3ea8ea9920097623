"""The directory of a journal: the names in it, its one owner, and how a file is replaced whole.

The rules it obeys:

1. One opening owns the directory, by a lock on `lock` that ends with its process, however it ends.
2. A file that must be whole is written beside its place as `<name>.tmp`, synced, renamed into place, and the
   directory is synced. So a file under its own name is whole, or was damaged later; a `.tmp` is a leftover.
3. The directory itself is the list of segments and snapshots. Nothing in memory could disagree with it.
"""

import contextlib
import os

from fencehold.errors import AlreadyOwned, OutcomeUnknown
from fencehold.runtime.disk import Disk
from fencehold.types import Position

DRAFT = ".tmp"
SEGMENT = ".log"
SNAPSHOT = ".snapshot"
SEED = ".seed"


def segment_name(first: Position) -> str:
    return f"{first:020d}{SEGMENT}"


def snapshot_name(position: Position) -> str:
    return f"{position:020d}{SNAPSHOT}"


def seed_name(position: Position) -> str:
    return f"{position:020d}{SEED}"


class Directory:
    """One journal's directory, by way of `Disk` alone."""

    def __init__(self, path: str, disk: Disk) -> None:
        self.path = path
        self.disk = disk
        self._lock: int | None = None

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def own(self) -> None:
        """Make the directory if there is none, and become its owner.

        Raises:
            AlreadyOwned: another opening owns it; the message says which process.
        """
        self._make()
        fd = self.disk.open(self.file("lock"), os.O_RDWR | os.O_CREAT)
        try:
            self._lock_for_this_process(fd)
        except BaseException:
            self.disk.close(fd)
            raise
        self._lock = fd

    def disown(self) -> None:
        # The file stays: removing it would let two owners lock two files of the same name.
        if self._lock is not None:
            fd, self._lock = self._lock, None
            self.disk.close(fd)

    def segments(self) -> list[Position]:
        """The first positions of all segments, in order."""
        return self._numbered(SEGMENT)

    def snapshots(self) -> list[Position]:
        """The positions of all snapshots, in order."""
        return self._numbered(SNAPSHOT)

    def seeds(self) -> list[Position]:
        """The positions of all seeds, in order: at most one, and none once it is in its place."""
        return self._numbered(SEED)

    def remove_drafts(self) -> list[str]:
        """Remove what was being written when its writer ended. Nothing refers to it."""
        drafts = sorted(name for name in self.disk.list(self.path) if name.endswith(DRAFT))
        for name in drafts:
            self.disk.unlink(self.file(name))
        return drafts

    def draft(self, name: str) -> int:
        """Open an empty file beside `name`, to be written, synced and published, or discarded."""
        return self.disk.open(self.file(name + DRAFT), os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def discard(self, name: str) -> None:
        """Remove a draft. One that cannot be removed now is removed at the next opening."""
        with contextlib.suppress(OSError):
            self.disk.unlink(self.file(name + DRAFT))

    def publish(self, name: str) -> None:
        """Put the draft, which is synced, in the place of `name`.

        Raises:
            OSError: the place is as it was.
            OutcomeUnknown: the draft is in its place, but a power loss may bring the old file back.
        """
        self.rename(name + DRAFT, name)

    def rename(self, old: str, name: str) -> None:
        """Put a file that is synced in the place of another name. Raises as `publish`."""
        self.disk.replace(self.file(old), self.file(name))
        try:
            self.disk.sync_dir(self.path)
        except OSError as error:
            raise OutcomeUnknown(
                f"{self.file(name)} was replaced, but syncing the directory failed: {error.strerror}"
            ) from error

    def replace(self, name: str, data: bytes) -> None:
        """Replace the contents of a small file, whole or not at all. Raises as `publish`."""
        try:
            fd = self.draft(name)
            try:
                self.disk.write(fd, data, 0)
                self.disk.sync(fd)
            finally:
                self.disk.close(fd)
            self.publish(name)
        except OSError:
            self.discard(name)
            raise

    def _make(self) -> None:
        if not self.disk.exists(self.path):
            self.disk.make_dir(self.path)
            self.disk.sync_dir(os.path.dirname(self.path))

    def _lock_for_this_process(self, fd: int) -> None:
        try:
            self.disk.lock(fd)
        except BlockingIOError:
            raise AlreadyOwned(f"{self.path} is owned by {self._owner(fd)}") from None
        self.disk.write(fd, f"{os.getpid():<20d}\n".encode(), 0)

    def _owner(self, fd: int) -> str:
        text = self.disk.pread(fd, 20, 0).decode("ascii", "replace").strip()
        if not text.isdecimal():
            return "another process"
        return f"process {text}" + (" (this one)" if int(text) == os.getpid() else "")

    def _numbered(self, ending: str) -> list[Position]:
        stems = (name.removesuffix(ending) for name in self.disk.list(self.path) if name.endswith(ending))
        return sorted(Position(int(stem)) for stem in stems if len(stem) == 20 and stem.isdecimal())
