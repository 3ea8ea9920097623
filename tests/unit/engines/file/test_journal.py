"""The file engine's handle: threads, files and owners."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fencehold.engines.file import FileJournal
from fencehold.engines.file.worker import ThreadedPace
from fencehold.errors import AlreadyOwned, Damaged, OutcomeUnknown, OutOfPlace, Unavailable
from fencehold.journal.port import Record
from fencehold.runtime.disk import Disk
from fencehold.types import Epoch, Position
from tests.contract.harness import fill, leading, run
from tests.unit.engines.file.test_stopped import SyncFails

ONE, TWO, THREE = Position(1), Position(2), Position(3)


class ThreadedJournal(FileJournal):
    """Appends on its thread only, however quick the disk: what is tested is the hand-over."""

    pace = ThreadedPace


class HeldDisk(Disk):
    """Holds up data syncs until released."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.released = threading.Event()

    def datasync(self, fd: int) -> None:
        self.reached.set()
        assert self.released.wait(20)
        super().datasync(fd)


async def read_all(journal: FileJournal, after: int = 0) -> list[Record]:
    return [record async for record in journal.read(Position(after))]


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_an_append_cancelled_while_it_syncs_still_lands(tmp_path: Path) -> None:
    """The append under way ends without its caller; the next is told where the log really ends."""

    async def work() -> None:
        disk = HeldDisk()
        journal = ThreadedJournal(tmp_path / "journal", disk=disk)
        await journal.open()
        epoch = await journal.lead()
        tailing = asyncio.ensure_future(anext(aiter(journal.tail(Position(0)))))
        append = asyncio.ensure_future(journal.append(b"one", epoch=epoch, position=ONE))
        await asyncio.to_thread(disk.reached.wait, 20)
        append.cancel()
        with pytest.raises(asyncio.CancelledError):
            await append
        assert await read_all(journal) == []
        queued = asyncio.ensure_future(journal.append(b"also one", epoch=epoch, position=ONE))
        await asyncio.sleep(0)
        disk.released.set()
        with pytest.raises(OutOfPlace):
            await queued
        assert await tailing == Record(ONE, epoch, b"one")
        assert await read_all(journal) == [Record(ONE, epoch, b"one")]
        await journal.close()

    asyncio.run(work())


def test_an_append_cancelled_before_its_turn_never_happens(tmp_path: Path) -> None:
    """Work that its thread had not begun is dropped with its caller."""

    async def work() -> None:
        disk = HeldDisk()
        journal = ThreadedJournal(tmp_path / "journal", disk=disk)
        await journal.open()
        epoch = await journal.lead()
        first = asyncio.ensure_future(journal.append(b"one", epoch=epoch, position=ONE))
        await asyncio.to_thread(disk.reached.wait, 20)
        second = asyncio.ensure_future(journal.append(b"two", epoch=epoch, position=TWO))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        disk.released.set()
        await first
        await journal.append(b"another two", epoch=epoch, position=TWO)
        assert [record.entry for record in await read_all(journal)] == [b"one", b"another two"]
        await journal.close()

    asyncio.run(work())


def test_reads_and_snapshots_do_not_wait_for_an_append(tmp_path: Path) -> None:
    """While an append hangs in its sync, entries are read and a snapshot is saved."""

    async def work() -> None:
        disk = HeldDisk()
        disk.released.set()
        journal = ThreadedJournal(tmp_path / "journal", disk=disk)
        await journal.open()
        epoch = await journal.lead()
        await journal.append(b"one", epoch=epoch, position=ONE)
        disk.reached.clear()
        disk.released.clear()
        append = asyncio.ensure_future(journal.append(b"two", epoch=epoch, position=TWO))
        await asyncio.to_thread(disk.reached.wait, 20)
        await journal.save(ONE, [b"state"])
        await journal.trim()
        assert len(await read_all(journal)) == 1
        assert not append.done()
        disk.released.set()
        await append
        await journal.close()

    asyncio.run(work())


@pytest.mark.parametrize("steps", range(0, 40, 3))
def test_nothing_is_left_open_or_running_after_close(tmp_path: Path, steps: int) -> None:
    """Closing at any moment, with an append, a snapshot, a read and a tail under way, leaks nothing."""

    async def work() -> None:
        journal = FileJournal(tmp_path / "journal")
        await journal.open()
        epoch = await journal.lead()
        await journal.append(b"one", epoch=epoch, position=ONE)
        tasks = [
            asyncio.ensure_future(task)
            for task in (
                journal.append(b"two", epoch=epoch, position=TWO),
                journal.save(ONE, (bytes(100_000) for _ in range(100))),
                anext(aiter(journal.tail(THREE)), None),
                read_all(journal),
            )
        ]
        for _ in range(steps):
            await asyncio.sleep(0)
        await journal.close()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, list | Unavailable)

    # Drivers that other tests used in this process keep threads of their own.
    before = (open_files(), threading.active_count())
    asyncio.run(work())
    assert (open_files(), threading.active_count()) == before
    assert not list((tmp_path / "journal").glob("*.tmp"))


async def _open_and_close(path: Path) -> None:
    journal = FileJournal(path)
    await journal.open()
    await journal.close()


def test_nothing_is_left_after_an_opening_that_failed_or_was_given_up(tmp_path: Path) -> None:
    """An opening that is refused or cancelled lets go of everything, the ownership too."""
    asyncio.run(_open_and_close(tmp_path / "journal"))
    files, threads = open_files(), set(threading.enumerate())
    (tmp_path / "journal" / "epoch").write_bytes(b"damaged")
    with pytest.raises(Damaged):
        asyncio.run(_open_and_close(tmp_path / "journal"))
    (tmp_path / "journal" / "epoch").unlink()

    async def give_up(steps: int) -> None:
        opening = asyncio.ensure_future(FileJournal(tmp_path / "journal").open())
        for _ in range(steps):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        if opening.cancelled():
            await _open_and_close(tmp_path / "journal")

    for steps in range(3):
        asyncio.run(give_up(steps))
    assert open_files() == files
    # Those of other tests may be ending just now.
    assert set(threading.enumerate()) <= threads


def test_closing_gives_back_the_room_ahead(tmp_path: Path) -> None:
    """An open journal has room allocated; a closed one has none left over."""

    async def work() -> None:
        journal = FileJournal(tmp_path / "journal")
        await journal.open()
        await journal.append(b"one", epoch=await journal.lead(), position=ONE)
        segment = tmp_path / "journal" / f"{1:020d}.log"
        assert segment.stat().st_size > 1_000_000
        await journal.close()
        assert segment.stat().st_size < 100

    asyncio.run(work())


def test_a_stopped_journal_refuses_all_but_reading_until_opened_anew(tmp_path: Path) -> None:
    """After a failed sync nothing more is written, closing does not hide it, and opening anew recovers."""

    async def work() -> None:
        disk = SyncFails()
        journal = FileJournal(tmp_path / "journal", disk=disk)
        await journal.open()
        epoch = await journal.lead()
        await journal.append(b"one", epoch=epoch, position=ONE)
        disk.datasync_fails = True
        with pytest.raises(OutcomeUnknown):
            await journal.append(b"two", epoch=epoch, position=TWO)
        disk.datasync_fails = False
        for refused in (
            journal.append(b"two", epoch=epoch, position=TWO),
            journal.lead(),
            journal.save(ONE, [b"state"]),
            journal.trim(),
        ):
            with pytest.raises(Unavailable, match="stopped, since"):
                await refused
        assert [record.entry for record in await read_all(journal)] == [b"one"]
        await journal.close()
        opened = await journal.open()
        assert opened.end in (1, 2)
        await journal.append(b"on", epoch=await journal.lead(), position=Position(opened.end + 1))
        await journal.close()

    asyncio.run(work())


def test_a_snapshot_whose_name_may_not_stay_is_unknown_and_stops_the_journal(tmp_path: Path) -> None:
    """Either of the two snapshots stands, whole; and nothing more is written."""

    async def work() -> None:
        disk = SyncFails()
        journal = FileJournal(tmp_path / "journal", disk=disk)
        await journal.open()
        await journal.append(b"one", epoch=await journal.lead(), position=ONE)
        disk.sync_dir_fails = True
        with pytest.raises(OutcomeUnknown):
            await journal.save(ONE, [b"state"])
        disk.sync_dir_fails = False
        with pytest.raises(Unavailable, match="stopped"):
            await journal.append(b"two", epoch=Epoch(1), position=TWO)
        await journal.close()
        opened = await journal.open()
        assert opened.snapshot is None or opened.snapshot.data == b"state"
        await journal.close()

    asyncio.run(work())


OWNER = """
import asyncio, sys
from fencehold.engines.file import FileJournal
from fencehold.engines.file.worker import ThreadedPace
async def own():
    journal = FileJournal(sys.argv[1])
    await journal.open()
    await journal.append(b"theirs", epoch=await journal.lead(), position=1)
    print("owned", flush=True)
    sys.stdin.read()
asyncio.run(own())
"""


def test_of_two_processes_one_owns_the_journal_until_it_ends(tmp_path: Path) -> None:
    """The second is told who owns it; when the owner is killed, its entries are there for the next."""
    path = tmp_path / "journal"
    command = [sys.executable, "-c", OWNER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"owned\n"
        with pytest.raises(AlreadyOwned, match=f"{path} is owned by process {owner.pid}$"):
            asyncio.run(_open_and_close(path))
        owner.send_signal(signal.SIGKILL)

    async def take_over() -> None:
        journal = FileJournal(path)
        assert (await journal.open()).end == 1
        assert await journal.lead() == 2
        with pytest.raises(AlreadyOwned, match=f"owned by process {os.getpid()} .this one."):
            await FileJournal(path).open()
        await journal.close()

    asyncio.run(take_over())


def test_a_trim_gives_back_all_that_came_before_the_snapshot(tmp_path: Path) -> None:
    """Entries after a save are in a segment of their own, so those before it go, however small they are."""

    async def work() -> None:
        path = tmp_path / "journal"
        async with leading(FileJournal(path)) as (journal, epoch):
            for start in range(1, 100, 10):
                await fill(journal, epoch, range(start, start + 10))
                await journal.save(Position(start + 9), [b"state"])
                await journal.trim()
            await fill(journal, epoch, [101])
            await journal.trim()
            assert [name.name for name in path.glob("*.log")] == [f"{101:020d}.log"]
            assert [record.position async for record in journal.read(Position(100))] == [101]

    run(work())
