"""The engines that need no server: memory and file."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fencehold.engines.file import FileJournal
from fencehold.engines.file.worker import FileWorker
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import OutcomeUnknown, Unavailable
from fencehold.runtime.disk import Disk
from fencehold.runtime.faults import Faults
from tests.contract.harness import Cluster

T = TypeVar("T")


class OneFault(Faults):
    """Raises once at the point it is armed for."""

    armed: tuple[str, Exception] | None = None

    def reach(self, point: str) -> None:
        if self.armed is not None and self.armed[0] == point:
            (_, error), self.armed = self.armed, None
            raise error


class MemoryHarness:
    volume = 100_000
    cluster: Cluster | None = None

    def __init__(self, path: Path) -> None:
        self._store = MemoryStore()
        self._faults = OneFault()

    def handle(self) -> MemoryJournal:
        return MemoryJournal(self._store, faults=self._faults)

    quick_handle = handle

    def lose_next_reply(self) -> None:
        self._faults.armed = ("append.stored", OutcomeUnknown("the reply was lost"))

    def fail_next_append(self) -> None:
        self._faults.armed = ("append.before", Unavailable("out of reach"))


class OneFaultDisk(Disk):
    """A disk that syncs and then says it could not, or is full, once."""

    sync_fails = full = False

    def datasync(self, fd: int) -> None:
        super().datasync(fd)
        if self.sync_fails:
            self.sync_fails = False
            raise OSError(errno.EIO, "injected")

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        if self.full:
            self.full = False
            raise OSError(errno.ENOSPC, "injected")
        return super().pwrite(fd, data, offset)


class UnsyncedDisk(Disk):
    """A disk whose data syncs do nothing: 100 000 of them would take half a minute and test the disk."""

    def datasync(self, fd: int) -> None:
        pass


class InlineWorker(FileWorker):
    """Does the work at once, on the event loop: two hand-overs between threads cost ten times the rest."""

    def do(self, work: Callable[..., T], *args: Any) -> "asyncio.Future[T]":
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        future.set_result(work(*args))
        return future


class QuickFileJournal(FileJournal):
    worker = InlineWorker


class FileHarness:
    volume = 100_000
    cluster: Cluster | None = None

    def __init__(self, path: Path) -> None:
        self._path = path / "journal"
        self._disk = OneFaultDisk()

    def handle(self) -> FileJournal:
        # Segments as small as they get, so that every test crosses from one to the next.
        return FileJournal(self._path, segment_bytes_max=1_000, allocate_bytes=300, disk=self._disk)

    def quick_handle(self) -> QuickFileJournal:
        return QuickFileJournal(self._path, segment_bytes_max=1 << 20, disk=UnsyncedDisk())

    def lose_next_reply(self) -> None:
        self._disk.sync_fails = True

    def fail_next_append(self) -> None:
        self._disk.full = True
