"""A server and the process that observes it: fed, asked, killed, left behind."""

import asyncio
import json
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fencehold import aio
from fencehold.core.commands import Acquire, OpenSession, Release
from fencehold.drivers.resp.wire import command
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import Unavailable, UsageError
from fencehold.node.suspicion import Patience
from fencehold.observe import feed as feeds
from fencehold.observe.feed import Feed, Observing
from fencehold.observe.frames import Entries, Said
from fencehold.observe.history.schema import positions_in
from fencehold.server import Config, Server
from tests.unit.node.doubles import until
from tests.unit.node.test_cluster import said

PATIENT = Patience(leader_timeout_s=30.0)
"""A leader that stops says so; one that is slow is left alone."""

connected = partial(aio.connect, connect_timeout=60.0)
"""What is asked of the past waits for the observer: a process that starts meanwhile, which may take seconds."""


def config(folder: Path, **more: Any) -> Config:
    return Config(data=folder / "data", port=0, observing=Observing(folder / "history.sqlite"), **more)


def url(server: Server) -> str:
    return f"fencehold://127.0.0.1:{server.port}"


def feed_of(server: Server) -> Feed:
    assert server.observer is not None
    return server.observer


async def figures(server: Server) -> dict[tuple[str, ...], Any]:
    """What the observer has counted, by metric and labels."""
    answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    feed_of(server).ask_figures(answered.set_result)
    found = json.loads(await answered)
    return {(name, *row[0]): row[1] for name, rows in found.items() for row in rows}


async def test_what_a_server_grants_is_remembered_and_counted(tmp_path: Path) -> None:
    """Asked at once, and again after a restart: nothing is missing, and nothing is there twice."""
    async with Server(config(tmp_path)) as server, connected(url(server), name="worker") as client:
        for _ in range(3):
            async with client.lock("order:1"):
                pass
        past = await client.history("order:1")
        assert [(hold.client, hold.ended) for hold in past.holds] == [("worker", "released")] * 3
        assert past.remarks == ()
        assert past.known_since is not None
        assert (await client.history("order:1", at="1h")).holds == ()
        with pytest.raises(UsageError, match="at="):
            await client.history("order:1", at="1h", since="2h")
        key = ("fencehold_operations_total", "acquire", "granted", "correctness", "resp", "order:*")
        assert (await figures(server))[key] == 3
    async with Server(config(tmp_path)) as server, connected(url(server)) as client:
        again = await client.history("order:1")
        assert again.holds == past.holds
        assert again.remarks == ()
        # What the journal tells again when it is opened is not counted again.
        assert key not in await figures(server)


async def test_a_lost_history_is_filled_again_by_the_journal(tmp_path: Path) -> None:
    """All of it, as long as no snapshot stands in the place of entries."""
    async with Server(config(tmp_path)) as server, connected(url(server)) as client:
        async with client.lock("a"):
            pass
        past = await client.history("a")
    for file in tmp_path.glob("history.sqlite*"):
        file.unlink()
    async with Server(config(tmp_path)) as server, connected(url(server)) as client:
        assert await client.history("a") == past


async def test_an_observer_that_was_killed_is_started_again(tmp_path: Path) -> None:
    """Locks are granted meanwhile; what it missed is a gap, and it goes on."""
    async with Server(config(tmp_path)) as server, connected(url(server)) as client:
        async with client.lock("a"):
            pass
        await client.history("a")
        pid = feed_of(server).pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        async with client.lock("a"):
            pass
        while True:
            try:
                past = await client.history("a")
            except Unavailable:
                continue
            if feed_of(server).pid not in (None, pid):
                break
        async with client.lock("a"):
            pass
        assert len((await client.history("a")).holds) >= len(past.holds)
        assert (await client.history("a")).holds[0].ended == "released"


async def test_an_observer_that_does_not_keep_up_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries are dropped and counted, and the history says which positions it misses."""
    async with Server(config(tmp_path)) as server, connected(url(server)) as client:
        async with client.lock("a"):
            pass
        await client.history("a")
        monkeypatch.setattr(feeds, "_BACKLOG_BYTES_MAX", -1)
        async with client.lock("missed"):
            pass
        feed_of(server).flush()
        monkeypatch.undo()
        async with client.lock("a"):
            pass
        past = await client.history("a")
        assert [hold.ended for hold in past.holds] == ["released"] * 2
        assert [remark.kind for remark in past.remarks] == ["gap"]
        assert (await client.history("missed")).holds == ()
        assert feed_of(server).dropped >= 1
        assert (await figures(server))["fencehold_observer_gaps_total",] == 1


async def test_a_server_that_stops_at_once_needs_no_observer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is started a moment after the first entry; what it would have been told, the journal tells the next."""
    monkeypatch.setattr(feeds, "_START_S", 600.0)
    async with Server(config(tmp_path)) as server, connected(url(server)) as client:
        async with client.lock("a"):
            pass
        assert feed_of(server).pid is None
    assert positions_in(tmp_path / "history.sqlite") == {}
    async with Server(config(tmp_path)) as server, connected(url(server)) as client:
        assert len((await client.history("a")).holds) == 1


async def test_without_an_observer_the_past_is_not_known(tmp_path: Path) -> None:
    """It is said how to have one; figures that are looked up are there all the same."""
    async with Server(Config(data=tmp_path, port=0)) as server, connected(url(server)) as client:
        with pytest.raises(UsageError, match="keeps no history"):
            await client.history("a")


async def test_where_no_history_is_kept_that_is_said_at_once() -> None:
    """It is no outage that would pass: nobody tries again."""
    async with Server(Config(port=0, observing=Observing())) as server, connected(url(server)) as client:
        with pytest.raises(UsageError, match="keeps no history"):
            await client.history("a")


async def test_a_standby_keeps_a_history_of_its_own_and_goes_on_as_leader(tmp_path: Path) -> None:
    """It is asked for what it knows itself, says how far behind it is, and counts from when it leads."""
    store = MemoryStore()

    def node(name: str) -> Server:
        observing = Observing(tmp_path / name)
        return Server(
            Config(node=name, port=0, patience=PATIENT, observing=observing), journal=MemoryJournal(store)
        )

    first, second = node("a"), node("b")
    await first.start()
    await second.start()
    try:
        nodes = f"fencehold://127.0.0.1:{first.port},127.0.0.1:{second.port}"
        async with connected(nodes, name="worker") as client:
            async with client.lock("x"):
                pass
            await until(lambda: second.node.position >= first.node.position)
            (found,) = await said(second, command("LOCK.HISTORY", "x"))
            (measured,) = await said(second, command("METRICS"))
            assert [hold["client"] for hold in json.loads(found)["holds"]] == ["worker"]
            figures = json.loads(measured)
            assert figures["looked_up"]["fencehold_standby"] == [[["0"], 1]]
            assert figures["looked_up"]["fencehold_followed_seconds"][0][1] >= 0
            assert "fencehold_operations_total" not in figures["counted"]
            await until(first.node.standbys.all)
            (measured,) = await said(first, command("METRICS"))
            assert json.loads(measured)["looked_up"]["fencehold_standby_lag_positions"][0][0] == ["b", "0"]
            await first.stop()
            async with client.lock("x"):
                pass
            past = await client.history("x")
            assert [hold.ended for hold in past.holds] == ["released"] * 2
            assert past.remarks == ()
            (measured,) = await said(second, command("METRICS"))
            counted = json.loads(measured)["counted"]
            assert counted["fencehold_leader_changes_total"][0][1] >= 1
            assert counted["fencehold_operations_total"]
    finally:
        await first.stop()
        await second.stop()


async def test_a_standby_without_a_history_tells_its_observer_of_sessions_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it follows is counted elsewhere; once it leads, it tells everything, and counts."""
    store = MemoryStore()
    told: list[Said] = []

    def node(name: str) -> Server:
        return Server(
            Config(node=name, port=0, patience=PATIENT, observing=Observing()), journal=MemoryJournal(store)
        )

    first, second = node("a"), node("b")
    feed, send = feed_of(second), feed_of(second)._send

    def note(frame: Said) -> None:
        told.append(frame)
        send(frame)

    monkeypatch.setattr(feed, "_send", note)
    await first.start()
    await second.start()
    try:
        nodes = f"fencehold://127.0.0.1:{first.port},127.0.0.1:{second.port}"
        async with connected(nodes, name="worker") as client:
            for _ in range(3):
                async with client.lock("x"):
                    pass
            await until(lambda: second.node.position >= first.node.position)
            feed.flush()
            assert kinds(told) == {OpenSession}
            await first.stop()
            async with client.lock("x"):
                pass
            feed.flush()
            assert kinds(told) >= {OpenSession, Acquire, Release}
            (measured,) = await said(second, command("METRICS"))
            operations = json.loads(measured)["counted"]["fencehold_operations_total"]
            assert {labels[0]: count for labels, count in operations}["acquire"] == 1
    finally:
        await first.stop()
        await second.stop()


def kinds(told: list[Said]) -> set[type]:
    """Commands of clients that an observer was told of."""
    entries = [thing.entry for frame in told if isinstance(frame, Entries) for thing in frame.things]
    return {type(each) for entry in entries for each in entry.commands} & {OpenSession, Acquire, Release}
