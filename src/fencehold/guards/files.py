"""A guard for files that the processes of a machine share: whole files replaced, records appended.

::

    guard = Guard()
    with client.lock("prices") as hold:
        guard.enter("prices.json", hold)           # raise the mark, then read: `guard.read` does both
        prices = json.loads(guard.read("prices.json", hold))
        guard.replace("prices.json", json.dumps(prices).encode(), hold)

1. *Check and write are under one OS lock*, on a note beside the file, `.prices.json.fence`, that keeps the mark.
2. *The mark is durable before what it admits*: a crash between the two leaves a mark that is raised and a file as
   it was. The other way round, a stale holder could write over what is new.
3. *A file is whole, even if a process is killed at any moment*: it is replaced by renaming, and an append is
   complete, or undone by the next call.
4. *What returned is on the disk*: contents, mark and names are synced before.
5. *Only writes through the guard are checked.* The disk does not know fences: a program that opens the file itself
   can still write. A reader without a hold may just open it: it sees whole files, and a part of an append in
   progress.

A program that replaces the file must be able to write in its folder. It is for the processes of one machine: on a
network file system an OS lock is a lease of its server, which may grant it to another while its owner is paused.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeAlias, TypeVar

from fencehold.durations import Duration, seconds_of
from fencehold.errors import LimitExceeded, OutcomeUnknown, UsageError
from fencehold.guards.files_place import Owned, Place, write_all, write_file
from fencehold.guards.offer import Offer, Offered, offer_of

__all__ = ["AsyncGuard", "Guard"]

TIMEOUT_S = 10.0
SIZE_MAX = 256 * 1024 * 1024

P = ParamSpec("P")
R = TypeVar("R")
AnyPath: TypeAlias = "str | os.PathLike[str]"


class Guard:
    """Refuses stale fences in front of files; for threads. It keeps nothing open between calls."""

    def __init__(self, *, strict: bool = False, timeout: Duration = TIMEOUT_S, size_max: int = SIZE_MAX) -> None:
        """`timeout`: how long to wait for others who are writing; `size_max`: bytes of what is read or written.

        `strict`: a file without a mark is an error; `register` the files there are.
        """
        self._strict = strict
        self._timeout = seconds_of("timeout", timeout)
        self._size_max = size_max

    def register(self, path: AnyPath, name: str) -> None:
        """Register a file, guarded by the fences of that name, with none seen yet.

        Raises:
            UsageError: it is guarded by those of another.
        """
        place, first = Place(path), Offer(name, 1).checked()
        with place.locked(first, strict=False, timeout_s=self._timeout) as owned:
            if owned.note.name != name:
                raise UsageError(f"{str(place.path)!r} is guarded by the fences of {owned.note.name!r} already")

    def enter(self, path: AnyPath, hold: Offered, name: str | None = None) -> None:
        """Raise the mark. Call it before anything is read.

        Raises:
            StaleFence: another has held the name since; stop.
            UsageError: no fence of the name that guards the file; or strict, and it has no mark.
            Unavailable: others were writing for all of the timeout. Nothing happened.
            Damaged: the note beside the file is not whole. Nothing happened: an operator must decide.
        """
        offer = offer_of(hold, name)
        with Place(path).locked(offer, strict=self._strict, timeout_s=self._timeout) as owned:
            owned.admit(offer)

    def check(self, path: AnyPath, hold: Offered, name: str | None = None) -> None:
        """The same, later: to stop work early. It protects only what is written by this guard's own calls."""
        self.enter(path, hold, name)

    def read(self, path: AnyPath, hold: Offered, name: str | None = None) -> bytes:
        """Raise the mark, then read all of the file. Raises as `enter`.

        Raises:
            LimitExceeded: it is larger than `size_max`.
            FileNotFoundError: there is none; the mark is raised anyway.
        """
        offer = offer_of(hold, name)
        with Place(path).locked(offer, strict=self._strict, timeout_s=self._timeout) as owned:
            owned.admit(offer)
            with owned.place.path.open("rb") as file:
                self._fits(os.fstat(file.fileno()).st_size)
                return file.read()

    def replace(self, path: AnyPath, data: bytes, hold: Offered, name: str | None = None) -> None:
        """Replace the file by these bytes, atomically and durably. Its permissions stay. Raises as `enter`.

        Raises:
            OSError: the disk is full, or alike; the file is as it was.
            OutcomeUnknown: it was replaced, and may be as it was after a power failure.
        """
        self._fits(len(data))
        offer = offer_of(hold, name)
        with Place(path).locked(offer, strict=self._strict, timeout_s=self._timeout) as owned:
            # Before the work, too: a stale holder costs the disk nothing.
            owned.refuse_stale(offer)
            _replace(owned, data, offer)

    def append(self, path: AnyPath, data: bytes, hold: Offered, name: str | None = None) -> None:
        """Add these bytes to the file, all of them and durably; there need not be one yet. Raises as `enter`.

        Raises:
            OSError: the disk is full, or alike; the file is as it was.
        """
        self._fits(len(data))
        offer = offer_of(hold, name)
        with Place(path).locked(offer, strict=self._strict, timeout_s=self._timeout) as owned:
            owned.refuse_stale(offer)
            _append(owned, bytes(data), offer)

    def _fits(self, size: int) -> None:
        if size > self._size_max:
            raise LimitExceeded(f"a guarded file is read or written {self._size_max} bytes at a time, not {size}")


def _replace(owned: Owned, data: bytes, offer: Offer) -> None:
    place = owned.place
    try:
        write_file(place.new, data, os.O_TRUNC, _mode(place.path))
        owned.admit(offer)
        # That no append is in progress must be as durable as the file it would be undone in.
        owned.sync()
        os.replace(place.new, place.path)
    except OSError:
        place.new.unlink(missing_ok=True)
        raise
    try:
        place.sync_names()
    except OSError as error:
        raise OutcomeUnknown(f"{str(place.path)!r} was replaced, but may not be on the disk: {error}") from error


def _append(owned: Owned, data: bytes, offer: Offer) -> None:
    place = owned.place
    is_new = not place.path.exists()
    fd = os.open(place.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        if is_new:
            place.sync_names()
        # One write for the mark and for how to undo the append.
        owned.put(owned.note._replace(mark=offer.fence).appending(os.fstat(fd).st_size, data))
        write_all(fd, data)
        os.fdatasync(fd)
        owned.put(owned.note.settled, durably=False)
    except OSError as error:
        _take_back(fd, owned, error)
        raise
    finally:
        os.close(fd)


def _take_back(fd: int, owned: Owned, error: OSError) -> None:
    """The append failed: undo it now, not at the next append, as a reader may come before that."""
    if owned.note.length == 0:
        return
    try:
        os.ftruncate(fd, owned.note.before)
    except OSError:
        raise OutcomeUnknown(
            f"{str(owned.place.path)!r}: a part of what was to be added is there: {error}"
        ) from error


def _mode(path: Path) -> int | None:
    with suppress(FileNotFoundError):
        return path.stat().st_mode & 0o7777
    return None


class AsyncGuard:
    """The same on an event loop: each call in a thread, which is waited for even if the call is cancelled.

    See `Guard` for what each call raises. One that is cancelled may have happened.
    """

    def __init__(self, *, strict: bool = False, timeout: Duration = TIMEOUT_S, size_max: int = SIZE_MAX) -> None:
        self._guard = Guard(strict=strict, timeout=timeout, size_max=size_max)

    async def register(self, path: AnyPath, name: str) -> None:
        """Register a file, guarded by the fences of that name, with none seen yet."""
        await _in_thread(self._guard.register, path, name)

    async def enter(self, path: AnyPath, hold: Offered, name: str | None = None) -> None:
        """Raise the mark. Call it before anything is read."""
        await _in_thread(self._guard.enter, path, hold, name)

    async def check(self, path: AnyPath, hold: Offered, name: str | None = None) -> None:
        """The same, later: to stop work early."""
        await _in_thread(self._guard.check, path, hold, name)

    async def read(self, path: AnyPath, hold: Offered, name: str | None = None) -> bytes:
        """Raise the mark, then read all of the file."""
        return await _in_thread(self._guard.read, path, hold, name)

    async def replace(self, path: AnyPath, data: bytes, hold: Offered, name: str | None = None) -> None:
        """Replace the file by these bytes, atomically and durably."""
        await _in_thread(self._guard.replace, path, data, hold, name)

    async def append(self, path: AnyPath, data: bytes, hold: Offered, name: str | None = None) -> None:
        """Add these bytes to the file, all of them and durably."""
        await _in_thread(self._guard.append, path, data, hold, name)


async def _in_thread(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    task = asyncio.ensure_future(asyncio.to_thread(call, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        # A thread cannot be stopped. Nothing is left behind that writes when its caller believes it is over.
        await asyncio.wait({task})
        task.cancelled() or task.exception()
        raise
