"""Backups between engines: from files to etcd, to ZooKeeper, to Postgres and back, on real servers."""

import asyncio
import itertools
import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from fencehold.backup import export, load
from fencehold.core import commands as c
from fencehold.core.machine import Machine
from fencehold.engines.file import FileJournal
from fencehold.engines.registry import journal_of
from fencehold.errors import Sealed
from fencehold.journal.codec import encode
from fencehold.journal.port import Journal
from fencehold.runtime.calendar import now_us
from fencehold.types import Epoch, Position
from rig.processes import free_port
from tests.contract.engines import etcd, postgres, zookeeper
from tests.contract.harness import run
from tests.e2e.served import serving
from tests.e2e.test_cli_journal import call, facts
from tests.unit.backup.samples import ENTRIES, machine_of

_numbers = itertools.count(1)

SHARED: dict[str, Callable[[], str]] = {
    "etcd": lambda: etcd.members().url(f"backup/{next(_numbers)}"),
    "zookeeper": lambda: zookeeper.ensemble().url(f"/backup/{next(_numbers)}"),
    "postgres": lambda: postgres.server().url(f"backup_{next(_numbers)}"),
}
"""A URL under which no journal was before, of each engine that nodes share."""


async def fill(journal: Journal, entries: list[c.Entry]) -> None:
    await journal.open()
    epoch = await journal.lead()
    for position, entry in enumerate(entries, start=1):
        await journal.append(encode(entry), epoch=epoch, position=Position(position))
    await journal.close()


def moved(engine: str, backup: Path, target: str) -> dict[str, Any]:
    """Export from one engine, import into another; what the import says."""
    said = call("export", "--engine", engine, str(backup))
    assert said.code == 0, said.err
    said = call("import", str(backup), "--engine", target, "--json")
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads(said.out)
    return found


@pytest.mark.guarantee("G1")
def test_a_journal_goes_round_all_engines_and_keeps_everything_but_its_fence(tmp_path: Path) -> None:
    """Files, etcd, ZooKeeper, Postgres, files: the same state to the byte, but for fences, which only grow."""
    run(fill(FileJournal(tmp_path / "first"), list(ENTRIES)))
    urls = [str(tmp_path / "first"), *(make() for make in SHARED.values()), str(tmp_path / "last")]
    fences = [
        moved(source, tmp_path / f"backup {number}", target)["fence"]
        for number, (source, target) in enumerate(itertools.pairwise(urls))
    ]
    assert call("export", "--engine", urls[-1], str(tmp_path / "backup")).code == 0
    with (tmp_path / "backup").open("rb") as source:
        machine = load(source, "backup").replay.machine
    raised = [c.Entry(0, (c.RaiseFence(fence), c.Announce("", ""))) for fence in fences]
    assert machine.state_hash() == machine_of([*ENTRIES, *raised]).state_hash()
    assert fences == sorted(set(fences))


@pytest.mark.parametrize("name", SHARED)
def test_a_journal_that_was_imported_is_whole_and_imported_once(name: str, tmp_path: Path) -> None:
    """What is found there is what was in the backup; a second import is refused and changes nothing."""
    url = SHARED[name]()
    run(fill(FileJournal(tmp_path / "data"), list(ENTRIES)))
    told = moved(str(tmp_path / "data"), tmp_path / "backup", url)
    found = facts("--engine", url)
    assert (found["engine"], found["epoch"], found["position"], found["fence"]) == (name, 0, 8, told["fence"])
    same = ("session_count", "hold_count", "waiter_count", "logical_s", "longest_ttl_s")
    assert [found[fact] for fact in same] == [told["backup"][fact] for fact in same]
    again = call("import", str(tmp_path / "backup"), "--engine", url)
    assert again.code == 2
    assert "not empty" in again.err
    assert facts("--engine", url) == found


@pytest.mark.parametrize("name", SHARED)
async def test_a_leader_is_not_disturbed_by_an_export(name: str) -> None:
    """While it appends, saves and trims, backups are taken: each is a prefix, and the leader is never sealed."""
    url = SHARED[name]()

    leader = journal_of(url)
    await leader.open()
    epoch = await leader.lead()
    machine = Machine()
    stop = asyncio.Event()
    leading = asyncio.create_task(lead(leader, epoch, machine, stop))
    backups = [await backup_of(url) for _ in range(5)]
    stop.set()
    entries = await leading
    assert await leader.lead() == epoch + 1
    await leader.close()
    for data in backups:
        head, replay = load(BytesIO(data), "backup")
        assert head.epoch == epoch
        assert replay.machine.state_hash() == machine_of(entries[: head.position]).state_hash()


@pytest.mark.guarantee("G1")
@pytest.mark.parametrize("name", SHARED)
def test_a_service_goes_on_from_the_backup_of_one_that_runs(name: str, tmp_path: Path) -> None:
    """Exported beside a server that serves, imported elsewhere: what it held is held, and fences go on above."""
    url, other = SHARED[name](), SHARED[name]()
    with serving(tmp_path, "--engine", url) as server:
        first = json.loads(server.call("acquire", "kept", "--ttl", "10m", "--json").out)
        assert call("export", "--engine", url, str(tmp_path / "backup")).code == 0
        lost = json.loads(server.call("acquire", "lost", "--json").out)
    assert call("import", str(tmp_path / "backup"), "--engine", other).code == 0
    with serving(tmp_path, "--engine", other) as server:
        assert server.call("ls").out.split("\t")[0] == "kept"
        assert server.call("release", first["token"]).code == 0
        again = json.loads(server.call("acquire", "lost", "--json").out)
    assert again["fence"] > lost["fence"] > first["fence"]


async def lead(journal: Journal, epoch: Epoch, machine: Machine, stop: asyncio.Event) -> list[c.Entry]:
    """Append one entry after the other, with a snapshot and a trim after each fifty."""
    entries: list[c.Entry] = []
    while not stop.is_set() or len(entries) < 120:
        number = len(entries)
        commands = (c.OpenSession(60_000),) if number < 3 else (c.Acquire(1 + number % 3, (f"n{number}",)),)
        entries.append(c.Entry(10, commands))
        position = Position(len(entries))
        try:
            await journal.append(encode(entries[-1]), epoch=epoch, position=position)
        except Sealed as error:
            raise AssertionError("a backup has sealed the leader") from error
        machine.apply(position, entries[-1])
        if position % 50 == 0:
            await journal.save(position, machine.snapshot())
            await journal.trim()
    return entries


async def backup_of(url: str) -> bytes:
    """A backup, as soon as there is something to back up."""
    sink = BytesIO()
    journal = journal_of(url)
    while not (await journal.open()).end:
        await journal.close()
    await journal.close()
    await export(journal, sink, now_us=now_us(), made_by="")
    return sink.getvalue()


@pytest.mark.parametrize(
    "scheme", ["etcd://127.0.0.1:{}", "zookeeper://127.0.0.1:{}", "postgresql://127.0.0.1:{}/x"]
)
def test_an_engine_that_is_not_there_is_69(scheme: str, tmp_path: Path) -> None:
    """One sentence, no traceback, and no file."""
    said = call("export", "--engine", scheme.format(free_port()), str(tmp_path / "backup"))
    assert said.code == 69, said.err
    assert said.err.startswith("fencehold: ")
    assert "Traceback" not in said.err
    assert list(tmp_path.iterdir()) == []
