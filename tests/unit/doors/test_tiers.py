"""The two tiers on the wire: which machine a connection belongs to, and that neither knows of the other."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fencehold.core.commands import OpenSession
from fencehold.doors.resp.bounds import Bounds
from fencehold.doors.resp.door import Door
from fencehold.engines.file import FileJournal
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.node.leader import Bounds as LeaderBounds
from fencehold.node.node import Node
from fencehold.server import Config, Server
from tests.unit.doors.box import Box, Client, as_map, serving
from tests.unit.node.doubles import HandClock, until
from tests.unit.node.test_node import told


async def volatile(box: Box, version: int = 3, *, session: int | None = None, grace_ms: int = 0) -> Client:
    """A client of the volatile machine."""
    client = await box.client(version)
    assert await client.call("TIER", "EFFICIENCY") == "OK"
    if session is not None:
        await client.call("SESSION.OPEN", "TTL", session, "GRACE", grace_ms)
    return client


def machine_of(box: Box) -> Any:
    """The state of the volatile machine."""
    return box.server.volatile.node.replica.machine.state


async def test_a_connection_belongs_to_the_journal_unless_it_says_otherwise() -> None:
    """HELLO, TIER and INFO say which machine it is; words are not case-sensitive."""
    async with serving() as box:
        client = await box.client()
        assert await client.call("TIER") == "CORRECTNESS"
        assert (await client.map("HELLO"))["tier"] == "CORRECTNESS"
        assert "tier:CORRECTNESS" in (await client.call("INFO")).splitlines()
        greeted = as_map(await client.call("HELLO", 3, "SETNAME", "me", "TIER", "efficiency"))
        assert (greeted["tier"], greeted["role"]) == ("EFFICIENCY", "leader")
        assert await client.call("CLIENT", "GETNAME") == "me"
        assert await client.call("TIER") == "EFFICIENCY"
        facts = (await client.call("INFO")).splitlines()
        assert {"tier:EFFICIENCY", "engine:memory", "durable:0", "role:leader"} <= set(facts)
        assert await client.call("TIER", "correctness") == "OK"
        assert await client.call("TIER") == "CORRECTNESS"


async def test_the_tiers_do_not_see_one_another() -> None:
    """One name has a holder in each tier; lists, sessions and events are of one machine."""
    async with serving() as box:
        one, other = await box.client(3, session=60_000), await volatile(box, session=60_000)
        watcher = await volatile(box)
        await watcher.call("LOCK.WATCH", "")
        fence = (await one.map("LOCK.ACQUIRE", "both", "WAIT", 0))["fence"]
        await one.call("LOCK.ACQUIRE", "durable", "WAIT", 0)
        claim = (await other.map("LOCK.ACQUIRE", "both", "WAIT", 0))["fence"]
        assert fence != claim
        assert [name["name"] for name in (await one.call("LOCK.LIST"))[1]] == ["both", "durable"]
        assert [name["name"] for name in (await other.call("LOCK.LIST"))[1]] == ["both"]
        assert [hold["fence"] for hold in (await other.call("LOCK.INFO", "both"))["holds"]] == [claim]
        assert len((await one.call("SESSION.LIST"))[1]) == len((await other.call("SESSION.LIST"))[1]) == 1
        _, event = await watcher.push()
        assert (event["kind"], event["fence"]) == ("acquired", claim)
        await watcher.no_push()
        assert await other.refusal("LOCK.RELEASE", "durable", fence) == "NOTOWNER"


async def test_the_volatile_tier_appends_nothing_to_the_journal() -> None:
    """Sessions, acquires, waits and releases of that tier are no entries of the journal."""
    async with serving() as box:
        before, journal = box.server.node.appends, box.server.node.position
        one, other = await volatile(box, session=60_000), await volatile(box, session=60_000)
        fence = (await one.map("LOCK.ACQUIRE", "a"))["fence"]
        other.send("LOCK.ACQUIRE", "a")
        await until(lambda: machine_of(box).waiters)
        await one.call("LOCK.EXTEND", "a", fence, 30_000)
        await one.call("LOCK.RELEASE", "a", fence)
        assert (await other.reply())["fence"] > fence
        await one.call("SESSION.CLOSE")
        assert (box.server.node.appends, box.server.node.position) == (before, journal)
        assert box.server.volatile.node.appends > 0


async def test_the_volatile_tier_does_not_wait_for_the_journal() -> None:
    """While an append of the journal is under way, and takes for ever, the volatile machine answers."""
    journal = MemoryJournal(MemoryStore())
    append, free = journal.append, asyncio.Event()

    async def held(*args: Any, **kwargs: Any) -> None:
        await free.wait()
        await append(*args, **kwargs)

    async with serving(journal=lambda: journal) as box:
        journal.append = held  # type: ignore[method-assign]
        one, other = await box.client(3), await volatile(box)
        one.send("LOCK.ACQUIRE", "a")
        for number in range(10):
            assert (await other.map("LOCK.ACQUIRE", f"n{number}"))["fence"]
        assert box.server.node.position == 0
        free.set()
        assert (await one.reply())["fence"] == 1


async def test_a_session_resumes_within_its_tier_and_not_across() -> None:
    """The number and secret of a session mean nothing in the other tier, which says so, and costs it nothing."""
    async with serving() as box:
        for tier, another in (("EFFICIENCY", "CORRECTNESS"), ("CORRECTNESS", "EFFICIENCY")):
            first, second, third = [await box.client(3) for _ in range(3)]
            await first.call("TIER", tier)
            session = await first.map("SESSION.OPEN", "TTL", 60_000, "GRACE", 60_000)
            fence = (await first.map("LOCK.ACQUIRE", "a"))["fence"]
            await second.call("TIER", another)
            failed = await second.failure("SESSION.RESUME", session["session"], session["secret"])
            assert failed.code == "NOSESSION"
            assert f"is not of the {another} tier" in failed.detail
            await third.call("HELLO", 3, "TIER", tier)
            await third.call("SESSION.RESUME", session["session"], session["secret"])
            assert await third.call("LOCK.RELEASE", "a", fence) == "OK"
            await third.call("SESSION.CLOSE")


async def test_the_tier_cannot_change_once_there_is_something_to_lose() -> None:
    """After a session, an implicit one, a watch, or with replies due, it is a usage error; all stays as it is."""
    async with serving() as box:
        opened, implicit, watching, waiting = [await box.client(3) for _ in range(4)]
        await opened.call("SESSION.OPEN", "TTL", 60_000)
        fence = (await implicit.map("LOCK.ACQUIRE", "a"))["fence"]
        await watching.call("LOCK.WATCH", "")
        for client, why in ((opened, "session"), (implicit, "session"), (watching, "watch")):
            for words in (("TIER", "EFFICIENCY"), ("HELLO", 3, "TIER", "EFFICIENCY")):
                failed = await client.failure(*words)
                assert failed.code == "USAGE"
                assert f"the tier is chosen before the first {why}" in failed.detail
            assert await client.call("TIER") == "CORRECTNESS"
            assert await client.call("TIER", "CORRECTNESS") == "OK"
        assert await implicit.call("LOCK.RELEASE", "a", fence) == "OK"
        waiting.send("SESSION.OPEN", "TTL", 60_000)
        waiting.send("TIER", "EFFICIENCY")
        assert (await waiting.reply())["session"]
        with pytest.raises(Exception, match="while replies are due"):
            await waiting.reply()
        await opened.call("SESSION.CLOSE")
        assert await opened.refusal("TIER", "EFFICIENCY") == "USAGE"


async def test_a_tier_that_is_none_is_refused() -> None:
    """What is no tier is a usage error."""
    async with serving() as box:
        client = await box.client()
        for words in (("TIER", "FAST"), ("TIER", ""), ("TIER", "A", "B"), ("HELLO", 3, "TIER")):
            assert await client.refusal(*words) == "USAGE"
        assert await client.call("TIER") == "CORRECTNESS"


async def test_the_volatile_tier_is_refused_where_there_is_none() -> None:
    """So says the error, and it is one of usage."""
    door = Door(Node(MemoryJournal(MemoryStore()), HandClock()))
    client = Client(*await asyncio.open_connection("127.0.0.1", await door.open("127.0.0.1", 0)))
    assert "has no EFFICIENCY tier" in (await client.failure("TIER", "EFFICIENCY")).detail
    await client.close()
    door.drain()
    await door.close()


async def test_plain_clients_have_implicit_sessions_in_either_tier() -> None:
    """A plain client waits in its slot, is kept alive by its connection, and lets go with it."""
    async with serving(door=Bounds(implicit_ttl_ms=90)) as box:
        one, other = await volatile(box, 2), await volatile(box, 2)
        fence = (await one.map("LOCK.ACQUIRE", "a"))["fence"]
        other.send("LOCK.ACQUIRE", "a")
        await until(lambda: machine_of(box).waiters)
        before = machine_of(box).now_at
        for _ in range(20):
            await asyncio.sleep(0.01)
            box.clock.advance(10)
        assert machine_of(box).now_at > before + 90
        assert len(machine_of(box).sessions) == 2
        await one.close()
        assert as_map(await other.reply())["fence"] > fence
        assert not box.state.sessions


async def test_stopping_answers_what_was_asked_of_either_tier() -> None:
    """What was taken is answered, whichever machine it was for; then the connections end."""
    server = Server(Config(port=0, leader=LeaderBounds(tick_s=0.002)))
    await server.start()
    clients = [Client(*await asyncio.open_connection("127.0.0.1", server.port)) for _ in range(2)]
    for client, tier in zip(clients, ("EFFICIENCY", "CORRECTNESS"), strict=True):
        await client.call("TIER", tier)
        client.send("LOCK.ACQUIRE", "a")
    await until(lambda: server.node.replica.machine.state.held and server.volatile.node.replica.machine.state.held)
    stopping = asyncio.create_task(server.stop())
    for client in clients:
        assert as_map(await client.reply())["name"] == "a"
        assert await client.ended() == ""
        await client.close()
    await stopping
    assert not server.volatile.node.leads
    # Implicit sessions end with their connections, before the machine does.
    assert not server.volatile.node.replica.machine.state.sessions


async def test_after_a_restart_the_volatile_tier_is_empty_and_its_fences_are_greater(tmp_path: Path) -> None:
    """What was claimed is forgotten, its session is told gone, and a late release meets no new holder."""
    config = Config(data=tmp_path / "data", port=0)
    fences: list[int] = []
    session: dict[str, Any] = {}
    for _ in range(2):
        async with Server(config) as server:
            client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
            await client.call("HELLO", 3, "TIER", "EFFICIENCY")
            if session:
                again = ("SESSION.RESUME", session["session"], session["secret"])
                assert await client.refusal(*again) == "NOSESSION"
            session = await client.map("SESSION.OPEN", "TTL", 60_000, "GRACE", 60_000)
            fences.append((await client.map("LOCK.ACQUIRE", "a", "WAIT", 0))["fence"])
            if len(fences) == 2:
                assert await client.refusal("LOCK.RELEASE", "a", fences[0]) != "OK"
                assert (await client.call("LOCK.INFO", "a"))["holds"][0]["fence"] == fences[1]
        assert await client.ended() == ""
        await client.close()
    assert fences[0] < fences[1]
    journal = FileJournal(tmp_path / "data")
    opened = await journal.open()
    # Nor is there a trace of it on the disk.
    assert (opened.end, opened.snapshot) == (0, None)
    await journal.close()


async def test_a_watcher_that_comes_back_after_a_restart_is_told_what_it_missed() -> None:
    """A position of an earlier life is before the first of this one: there is a gap, and then what is new."""
    position = 0
    for _ in range(2):
        async with Server(Config(port=0)) as server:
            await told(server.volatile.node, OpenSession(60_000, secret="s"))
            client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
            await client.call("HELLO", 3, "TIER", "EFFICIENCY")
            since = ("FROM", position) if position else ()
            begun = await client.call("LOCK.WATCH", "", *since)
            if position:
                assert (await client.push())[1]["kind"] == "gap"
                assert (await client.push())[1]["kind"] == "opened"
            assert begun["position"] >= position
            position = begun["position"]
        assert await client.ended() == ""
        await client.close()
