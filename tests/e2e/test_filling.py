"""A journal that is being filled: by what is taken, by what is refused, and by others on the same disk."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fencehold.engines.etcd import EtcdJournal
from fencehold.engines.file import FileJournal
from fencehold.engines.postgres import PostgresJournal
from rig.postgres import Postgres, reachable_folder
from tests.robustness.filling import Flood, accepted, alarms_of, flooded, refused, small_etcd

pytestmark = pytest.mark.slow
ROUNDS = 8


def _is_mounted(folder: Path, size: str) -> bool:
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "fencehold-test", str(folder)]
    return subprocess.run(mount, capture_output=True, check=False).returncode == 0


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    if not _is_mounted(tmp_path, "24m"):
        pytest.fail("a file system has to be mounted for this, which needs root, as partitions do")
    try:
        yield tmp_path
    finally:
        _unmount(tmp_path)


@asynccontextmanager
async def _small_postgres() -> AsyncIterator[Postgres]:
    """A server whose tables are on a file system of 40 MiB; its log is elsewhere, as it is where that matters."""
    folder = reachable_folder()
    server, kept = Postgres(folder), folder / "kept"
    server.start()
    server.stop()
    base = server.data / "base"
    shutil.copytree(base, kept)
    mounted = _is_mounted(base, "40m")
    try:
        if not mounted:
            pytest.fail("a file system has to be mounted for this, which needs root, as partitions do")
        shutil.copytree(kept, base, dirs_exist_ok=True)
        for path in (base, *base.rglob("*")):
            server.give(path)
        server.start()
        yield server
    finally:
        server.stop()
        if mounted:
            _unmount(base)
        shutil.rmtree(folder, ignore_errors=True)


def _check(flood: Flood) -> None:
    assert flood.told["Overloaded"] > 0
    assert flood.failed == [], "releases and renewals go on"


async def test_an_etcd_with_a_small_quota_is_never_filled(tmp_path: Path) -> None:
    """Floods of what is taken, then of what is refused: no alarm, releases and renewals go on, and it lifts."""
    async with small_etcd(tmp_path, 32) as cluster:
        _check(await accepted(EtcdJournal.from_url(cluster.url("a")), ROUNDS))
        flood = await refused(EtcdJournal.from_url(cluster.url("b")), ROUNDS)
        assert flood.failed == []
        assert list(alarms_of(cluster)) == []
        assert int(cluster.status(0)["dbSize"]) < 31 << 20


async def test_a_small_disk_is_never_filled(small_disk: Path) -> None:
    """The same on a disk: the journal never finds it full."""
    _check(await accepted(FileJournal(small_disk / "journal"), ROUNDS))
    assert (await refused(FileJournal(small_disk / "journal"), ROUNDS)).failed == []


async def test_a_disk_that_others_fill_is_waited_out(small_disk: Path) -> None:
    """While it is full new work is refused, what is held stays held, and all goes on when there is room again."""
    async with flooded(FileJournal(small_disk / "journal")) as flood:
        await flood.round()
        _fill(small_disk / "ballast")
        async with asyncio.timeout(30):
            # Until the node has looked at it, the disk itself says no: then the journal is opened anew.
            while not flood.told["Overloaded"] + flood.told["Unavailable"]:
                await flood.round()
        (small_disk / "ballast").unlink()
        await flood.lifted()
        assert flood.wrong() == set()
        flood.failed.clear()
        await flood.release_all()
        assert flood.failed == []


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


async def test_a_postgres_with_a_bound_is_never_filled() -> None:
    """With room_bytes= in its URL, no append is ever refused by the server."""
    async with _small_postgres() as server:
        url = server.url("journal", room_bytes=str(30 << 20))
        _check(await accepted(PostgresJournal.from_url(url), ROUNDS))


async def test_a_postgres_that_is_full_refuses_and_recovers() -> None:
    """Without a bound its disk may be full: that is said, nothing is lost, and it goes on when there is room."""
    async with _small_postgres() as server:
        ballast = server.data / "base" / "ballast"
        ballast.write_bytes(bytes(8 << 20))
        async with flooded(PostgresJournal.from_url(server.url("journal"))) as flood:
            async with asyncio.timeout(60):
                while not flood.told["Overloaded"]:
                    await flood.round()
            ballast.unlink()
            await flood.lifted()
            assert flood.wrong() == set()
            # One met the full disk, and was told so.
            flood.failed.clear()
            await flood.release_all()
            assert flood.failed == []
