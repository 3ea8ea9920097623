"""The volatile machine: its lives beside a node, alone and among others."""

import asyncio
from collections.abc import Callable
from itertools import count, pairwise
from typing import Any

import pytest

from fencehold.core.commands import Acquire, CloseSession, OpenSession, Release
from fencehold.core.limits import Limits
from fencehold.core.outcomes import Granted, Opened, Reason
from fencehold.drivers.resp.wire import command
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import InvariantViolated, NotLeader, Unavailable
from fencehold.node.leader import Bounds
from fencehold.node.node import Node
from fencehold.node.volatile import Volatile
from fencehold.server import Config, Server
from tests.contract.engines.embedded import OneFault
from tests.unit.doors.box import Client
from tests.unit.node.doubles import HandClock, settle, until
from tests.unit.node.test_cluster import _take_over, cluster, said
from tests.unit.node.test_node import asked, told

CHOOSE = command("TIER", "EFFICIENCY")


def beside(now_us: Callable[[], int] = lambda: 1_000, limits: Limits | None = None) -> tuple[Node, Volatile]:
    """A node that does not run, and a volatile machine beside it."""
    node = Node(MemoryJournal(MemoryStore()), HandClock())
    return node, Volatile(node, HandClock(), limits=limits, bounds=Bounds(tick_s=0.002), now_us=now_us)


async def ended(running: asyncio.Task[None], volatile: Volatile) -> None:
    volatile.stop()
    await asyncio.wait_for(running, 20)


def serves(volatile: Volatile) -> bool:
    return volatile.node.leads


async def granted(node: Node, session: int, name: str = "a") -> int:
    """Acquire; returns the fence."""
    outcome = await told(node, Acquire(session, (name,), wait_ms=0))
    assert isinstance(outcome, Granted)
    return outcome.fence


async def client_of(server: Server, tier: str = "EFFICIENCY") -> Client:
    client = Client(*await asyncio.open_connection("127.0.0.1", server.port))
    await client.call("HELLO", 3, "TIER", tier)
    return client


async def test_it_serves_when_the_node_beside_it_leads_and_not_before() -> None:
    """Until then it refuses as the node does; told twice, it does not begin anew."""
    node, volatile = beside()
    running = asyncio.create_task(volatile.run())
    await settle()
    life = volatile.node
    assert not serves(volatile)
    assert str(await told(life, OpenSession(60_000))) == "no node leads at the moment"
    assert isinstance(await asked(life.look, lambda state: state.fence), Unavailable)
    node.on_promoted()
    await settle()
    assert serves(volatile)
    assert isinstance(await told(life, OpenSession(60_000)), Opened)
    node.on_promoted()
    await settle()
    assert volatile.node is life
    assert len(life.replica.machine.state.sessions) == 1
    await ended(running, volatile)


@pytest.mark.parametrize("step_us", [1_000, 0, -1_000])
async def test_each_life_is_empty_and_its_fences_and_positions_are_above_those_before(step_us: int) -> None:
    """Deposed and leading again, it knows nothing of what was and repeats no number, wherever the clock went."""
    moments = count(1_000_000, step_us)
    node, volatile = beside(lambda: next(moments))
    running = asyncio.create_task(volatile.run())
    lives: list[tuple[int, int]] = []
    for _ in range(3):
        node.on_promoted()
        await settle()
        life = volatile.node
        assert not life.replica.machine.state.sessions
        first = life.position
        opened = await told(life, OpenSession(60_000, secret="s"))
        fences = [await granted(life, opened.session, f"n{number}") for number in range(5)]
        assert fences == sorted(fences)
        lives.append((min(first, fences[0]), max(life.position, fences[-1])))
        volatile.forget()
        assert volatile.node is not life
        await settle()
        assert not life.leads
    assert all(last < first for (_, last), (first, _) in pairwise(lives))
    await ended(running, volatile)


async def test_a_release_from_an_earlier_life_meets_no_new_holder() -> None:
    """Session 1 of this life holds the name; the fence of session 1 of the last life releases nothing."""
    moments = count(1_000_000, 1_000)
    node, volatile = beside(lambda: next(moments))
    running = asyncio.create_task(volatile.run())
    fences = []
    for _ in range(2):
        volatile.forget()
        node.on_promoted()
        await settle()
        assert (await told(volatile.node, OpenSession(60_000, secret="s"))).session == 1
        fences.append(await granted(volatile.node, 1))
    released = await told(volatile.node, Release(1, ("a",), fences[0]))
    assert released.reason is not Reason.OK
    assert volatile.node.replica.machine.state.held["a"].fence == fences[1]
    await ended(running, volatile)


async def test_what_was_taken_before_it_is_forgotten_is_no_part_of_the_next_life() -> None:
    """A command of the old life is answered by the old life; the new one waits to begin."""
    node, volatile = beside()
    running = asyncio.create_task(volatile.run())
    node.on_promoted()
    await settle()
    old = volatile.node
    answers: list[Any] = []
    old.submit(OpenSession(60_000), lambda outcome, _: answers.append(outcome))
    volatile.forget()
    old.submit(OpenSession(60_000), lambda outcome, _: answers.append(outcome))
    await settle()
    assert {type(answer) for answer in answers} == {Opened, Unavailable}
    assert not volatile.node.leads
    assert not volatile.node.replica.machine.state.sessions
    await ended(running, volatile)


async def test_forgotten_before_it_had_its_turn_it_does_not_begin() -> None:
    """Promoted and deposed in one breath: nothing serves."""
    node, volatile = beside()
    running = asyncio.create_task(volatile.run())
    await settle()
    node.on_promoted()
    volatile.forget()
    await settle()
    assert not serves(volatile)
    node.on_promoted()
    await settle()
    assert serves(volatile)
    await ended(running, volatile)


async def test_it_stops_whether_it_serves_or_waits() -> None:
    """Stopped before it began, while it serves, or after it was forgotten, `run` returns."""
    for steps in ((), ("begin",), ("begin", "forget"), ("stop",), ("begin", "stop", "forget")):
        _, volatile = beside()
        running = asyncio.create_task(volatile.run())
        for step in steps:
            getattr(volatile, step)()
            await settle()
        await ended(running, volatile)
        assert not volatile.node.leads


async def test_the_limits_are_those_of_the_server() -> None:
    """They hold from the first command on."""
    node, volatile = beside(limits=Limits(sessions_max=1))
    running = asyncio.create_task(volatile.run())
    node.on_promoted()
    await settle()
    assert isinstance(await told(volatile.node, OpenSession(60_000)), Opened)
    assert not isinstance(await told(volatile.node, OpenSession(60_000)), Opened)
    await ended(running, volatile)


async def test_it_serves_as_soon_as_a_server_is_started() -> None:
    """Who connects first is not told to wait."""
    async with Server(Config(port=0)) as server:
        assert server.node.leads
        assert server.volatile.node.leads
        assert server.volatile.node.role == "leader"


async def test_beside_a_node_that_is_alone_it_goes_on_while_the_journal_is_away() -> None:
    """The node's journal fails and is opened anew; what is claimed in the volatile tier stays claimed."""
    faults = OneFault()
    journal = MemoryJournal(MemoryStore(), faults=faults)
    async with Server(Config(port=0), journal=journal) as server:
        life = server.volatile.node
        await told(life, OpenSession(60_000, secret="s"))
        fence = await granted(life, 1)
        faults.armed = ("append.before", Unavailable("the disk is full"))
        assert isinstance(await told(server.node, OpenSession(60_000)), Unavailable)
        assert not server.node.leads
        await granted(life, 1, "b")
        assert (life.role, server.node.role) == ("leader", "waiting")
        await until(lambda: server.node.leads)
        assert server.volatile.node is life
        assert life.replica.machine.state.held["a"].fence == fence


async def test_a_failure_of_the_volatile_machine_ends_the_server() -> None:
    """As one of the node does: it is told to who waits for the server's end, and the journal is let go."""
    server = Server(Config(port=0))
    await server.start()
    serving = asyncio.create_task(server.serve())
    opened = await told(server.volatile.node, OpenSession(60_000))
    assert isinstance(opened, Opened)
    server.volatile.node.replica.machine.state.sessions[opened.session].names_awaited = 1
    await told(server.volatile.node, CloseSession(opened.session))
    with pytest.raises(InvariantViolated, match="has nothing left"):
        await asyncio.wait_for(serving, 20)
    assert not server.node.leads
    await server.stop()


async def test_a_failure_of_the_node_ends_the_volatile_machine() -> None:
    """Neither goes on without the other."""
    faults = OneFault()
    server = Server(Config(port=0), journal=MemoryJournal(MemoryStore(), faults=faults))
    await server.start()
    serving = asyncio.create_task(server.serve())
    faults.armed = ("append.before", InvariantViolated("no such entry"))
    await told(server.node, OpenSession(60_000))
    with pytest.raises(InvariantViolated):
        await asyncio.wait_for(serving, 20)
    assert not server.volatile.node.leads
    await server.stop()


# Among several nodes.


async def test_a_standby_names_the_leader_in_either_tier() -> None:
    """All who want a name of the volatile tier are sent to one machine; a standby has nothing stale of it."""
    async with cluster("a", "b") as (_, (a, b)):
        refused = f"NOTLEADER this node stands by; ask 127.0.0.1:{a.port}"
        asks = (command("LOCK.ACQUIRE", "x"), command("SESSION.OPEN", "TTL", 1000), command("SESSION.LIST"))
        stale = command("LOCK.INFO", "x", "STALE")
        chosen, *replies = await said(b, CHOOSE, *asks, stale)
        assert chosen == b"OK"
        assert [str(reply) for reply in replies] == [refused] * 4
        assert isinstance(await told(b.volatile.node, OpenSession(60_000)), NotLeader)
        client = await client_of(b)
        hello = await client.call("HELLO")
        assert (hello["role"], hello["tier"]) == ("standby", "EFFICIENCY")
        assert (await client.call("NODE.LIST"))["leader_address"] == f"127.0.0.1:{a.port}"
        assert await client.refusal("LOCK.WATCH", "") == "NOTLEADER"
        await client.close()


async def test_a_client_that_waits_at_a_standby_is_served_when_that_leads() -> None:
    """It chose its tier while another node led; when this one does, the same connection is served."""
    async with cluster("a", "b") as (_, (a, b)):
        client = await client_of(b)
        assert await client.refusal("LOCK.ACQUIRE", "x") == "NOTLEADER"
        await a.stop()
        await until(lambda: b.node.leads)
        assert (await client.map("LOCK.ACQUIRE", "x", "WAIT", 0))["fence"]
        await client.close()


async def test_after_a_stop_the_next_leader_has_an_empty_volatile_machine() -> None:
    """Sessions of the journal live on; those of the volatile tier are told that they are gone."""
    async with cluster("a", "b") as (_, (a, b)):
        sessions = {}
        for tier in ("EFFICIENCY", "CORRECTNESS"):
            client = await client_of(a, tier)
            sessions[tier] = await client.map("SESSION.OPEN", "TTL", 60_000, "GRACE", 60_000)
            sessions[tier]["fence"] = (await client.map("LOCK.ACQUIRE", "x"))["fence"]
            sessions[tier]["client"] = client
        await a.stop()
        await until(lambda: b.node.leads)
        for tier, session in sessions.items():
            assert await session["client"].ended() == ""
            await session["client"].close()
            client = await client_of(b, tier)
            resume = ("SESSION.RESUME", session["session"], session["secret"])
            if tier == "EFFICIENCY":
                assert await client.refusal(*resume) == "NOSESSION"
                assert (await client.map("LOCK.ACQUIRE", "x", "WAIT", 0))["fence"] > session["fence"]
            else:
                await client.call(*resume)
                assert await client.call("LOCK.RELEASE", "x", session["fence"]) == "OK"
            await client.close()


async def test_a_deposed_node_forgets_the_volatile_machine_and_lets_both_tiers_go() -> None:
    """Sealed, it drops what was claimed, ends every connection, and begins with nothing should it lead again."""
    async with cluster("a") as (nodes, (a,)):
        life = a.volatile.node
        clients = [await client_of(a, tier) for tier in ("EFFICIENCY", "CORRECTNESS")]
        session = await clients[0].map("SESSION.OPEN", "TTL", 60_000, "GRACE", 60_000)
        fence = (await clients[0].map("LOCK.ACQUIRE", "x"))["fence"]
        await _take_over(nodes)
        for client in clients:
            assert await client.ended() == ""
            await client.close()
        assert a.volatile.node is not life
        await until(lambda: a.node.leads and a.volatile.node.leads)
        assert not life.leads
        client = await client_of(a)
        assert await client.refusal("SESSION.RESUME", session["session"], session["secret"]) == "NOSESSION"
        assert (await client.map("LOCK.ACQUIRE", "x", "WAIT", 0))["fence"] > fence
        await client.close()


async def test_a_plain_client_of_a_deposed_node_leaves_no_trace_in_the_next_life() -> None:
    """Its connection ends after the new life began: that must not suspend a session of the same number there."""
    async with cluster("a") as (nodes, (a,)):
        life, old = a.volatile.node, await client_of(a)
        await old.call("LOCK.ACQUIRE", "x")
        await _take_over(nodes)
        await until(lambda: a.volatile.node is not life and a.volatile.node.leads)
        new = await client_of(a)
        fence = (await new.map("LOCK.ACQUIRE", "x", "WAIT", 0))["fence"]
        assert await old.ended() == ""
        await old.close()
        await until(lambda: len(a.door.connections) == 1)
        await settle()
        assert a.volatile.node.replica.machine.state.held["x"].fence == fence
        assert await new.call("LOCK.RELEASE", "x", fence) == "OK"
        await new.close()
