"""Several nodes on one journal: one leads, the others stand by and take over; with real doors and lines."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import hiredis
import pytest

from fencehold.core.commands import Acquire, OpenSession
from fencehold.core.outcomes import Granted, Opened
from fencehold.doors.resp.bounds import Bounds as DoorBounds
from fencehold.drivers.address import endpoint
from fencehold.drivers.resp.wire import command
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import NotLeader, OutcomeUnknown, Unavailable
from fencehold.journal import port
from fencehold.journal.port import Record
from fencehold.node.leader import Bounds
from fencehold.node.suspicion import Patience
from fencehold.server import Config, Server
from fencehold.types import Position
from tests.contract.engines.embedded import OneFault
from tests.unit.node.doubles import until
from tests.unit.node.test_node import asked, told

QUICK = Patience(leader_timeout_s=0.3, confirm_s=0.1, stagger_s=0.1)


class Cluster:
    """Servers on one store, by name."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.faults: dict[str, OneFault] = {}
        self.servers: dict[str, Server] = {}

    async def start(self, name: str, patience: Patience = QUICK, door: DoorBounds | None = None) -> Server:
        self.faults[name] = OneFault()
        config = Config(
            node=name, port=0, patience=patience, leader=Bounds(tick_s=0.02), listener=door or DoorBounds()
        )
        server = Server(config, journal=MemoryJournal(self.store, faults=self.faults[name]))
        await server.start()
        self.servers[name] = server
        return server

    async def stop(self) -> None:
        for server in self.servers.values():
            await server.stop()

    async def stands_by(self, server: Server, behind: Server) -> None:
        """Wait until a node follows another, in the eyes of both."""
        await until(lambda: server.node.role == "standby" and server.node.leader == behind.node.member)
        await until(lambda: server.node.member in [each.member for each in behind.node.standbys.all()])


@asynccontextmanager
async def cluster(*names: str, door: DoorBounds | None = None) -> AsyncIterator[tuple[Cluster, list[Server]]]:
    """Nodes of which the first leads and the others stand by, in their order."""
    async with AsyncExitStack() as stack:
        nodes = Cluster()
        stack.push_async_callback(nodes.stop)
        first = await nodes.start(names[0], door=door)
        await until(lambda: first.node.leads)
        servers = [first]
        for name in names[1:]:
            servers.append(await nodes.start(name, door=door))
            await nodes.stands_by(servers[-1], first)
        yield nodes, servers


async def said(server: Server, *commands: bytes) -> list[Any]:
    """What a node replies to commands on a connection of their own."""
    reader, writer = await asyncio.open_connection(*endpoint(f"127.0.0.1:{server.port}"))
    parser = hiredis.Reader()
    replies: list[Any] = []
    writer.write(b"".join(commands))
    while len(replies) < len(commands) and (data := await reader.read(65_536)):
        parser.feed(data)
        replies += iter(parser.gets, False)
    writer.close()
    await writer.wait_closed()
    return replies


async def test_the_first_node_leads_and_the_others_follow() -> None:
    """A cluster that starts has one leader at once, and standbys whose state is the leader's."""
    async with cluster("a", "b", "c") as (_, (a, b, c)):
        assert isinstance(await told(a.node, OpenSession(60_000, secret="s")), Opened)
        assert isinstance(await told(a.node, Acquire(1, ("orders",))), Granted)
        await until(lambda: b.node.position >= 3 and c.node.position >= 3)
        for standby in (b, c):
            assert standby.node.replica.machine.state.held["orders"].fence == 1
        assert [server.node.role for server in (a, b, c)] == ["leader", "standby", "standby"]


async def test_a_standby_says_who_leads_and_answers_only_what_may_be_stale() -> None:
    """Commands and readings are refused with the leader's address; a look is answered from what it followed."""
    async with cluster("a", "b") as (_, (a, b)):
        refused = await told(b.node, OpenSession(60_000))
        assert isinstance(refused, NotLeader)
        assert refused.leader == f"127.0.0.1:{a.port}"
        assert isinstance(await asked(b.node.ask, lambda state: state.fence), NotLeader)
        assert await asked(b.node.look, lambda state: state.fence) == 0
        name = command("LOCK.INFO", "x")
        stale = command("LOCK.INFO", "x", "STALE")
        current, old, watch = await said(b, name, stale, command("LOCK.WATCH", "x"))
        assert str(current) == f"NOTLEADER this node stands by; ask 127.0.0.1:{a.port}"
        assert b"holds" in dict(zip(old[::2], old[1::2], strict=True))
        assert str(watch).startswith("USAGE")


async def test_a_standby_lists_the_names_it_has_followed() -> None:
    """As they are when it is asked, also those that came into use since it was asked first; and when it leads."""
    async with cluster("a", "b") as (_, (a, b)):
        await told(a.node, OpenSession(60_000, secret="s"))
        for start in range(0, 3_000, 50):
            await told(a.node, Acquire(1, tuple(f"n:{number:04}" for number in range(start, start + 50))))
        pages = command("LOCK.LIST", "COUNT", 2, "STALE"), command("LOCK.LIST", "PREFIX", "n:29", "STALE")
        await until(lambda: b.node.position == a.node.position)
        (cursor, page), (end, last) = await said(b, *pages)
        assert (cursor, len(page), end, len(last)) == (b"n:0001", 2, b"", 100)
        assert b.node.names.index is not None
        await told(a.node, Acquire(1, ("m",)))
        await until(lambda: b.node.position == a.node.position)
        assert (await said(b, pages[0]))[0][0] == b"n:0000"
        (refused,) = await said(b, command("LOCK.LIST"))
        assert str(refused).startswith("NOTLEADER")
        await a.stop()
        await until(lambda: b.node.leads)
        await told(b.node, Acquire(1, ("l",)))
        assert (await said(b, command("LOCK.LIST", "COUNT", 2)))[0][0] == b"m"


@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G3")
async def test_a_leader_that_stops_hands_over_what_it_granted() -> None:
    """After a clean stop the first standby leads at once; sessions, holds and fences are as they were."""
    async with cluster("a", "b", "c") as (_, (a, b, c)):
        await told(a.node, OpenSession(60_000, secret="s"))
        await told(a.node, Acquire(1, ("orders",)))
        await a.stop()
        await until(lambda: b.node.leads)
        assert b.node.epoch == a.node.epoch + 1
        granted = await told(b.node, Acquire(1, ("other",)))
        assert granted.fence == 2
        assert b.node.replica.machine.state.held["orders"].session == 1
        await until(lambda: c.node.leader == b.node.member)


@pytest.mark.guarantee("G10")
async def test_a_sealed_leader_is_silent_and_follows_the_one_that_sealed_it() -> None:
    """A leader that was replaced refuses what it had taken, lets its clients go, and stands by."""
    async with cluster("a", "b") as (nodes, (a, b)):
        reader, writer = await asyncio.open_connection("127.0.0.1", a.port)
        await told(a.node, OpenSession(60_000, secret="s"))
        epoch = await _take_over(nodes)
        refused = await told(a.node, Acquire(1, ("orders",)))
        assert isinstance(refused, Unavailable)
        # Let go, without a word.
        assert await reader.read() == b""
        writer.close()
        await until(lambda: any(server.node.leads for server in (a, b)))
        leader = a if a.node.leads else b
        assert leader.node.epoch > epoch
        assert "orders" not in leader.node.replica.machine.state.held


async def _take_over(nodes: Cluster) -> int:
    """Take the next epoch by hand, as a node would that nobody knows."""
    journal = MemoryJournal(nodes.store)
    await journal.open()
    epoch = await journal.lead()
    await journal.close()
    return epoch


async def test_a_leader_that_hangs_is_replaced_and_wakes_up_as_a_standby() -> None:
    """A leader that writes nothing more is replaced after a while, though its line answers."""
    async with cluster("a", "b") as (nodes, (a, b)):
        held = _hold_back(nodes, a)
        await until(lambda: b.node.leads)
        held.set()
        await nodes.stands_by(a, b)
        assert isinstance(await told(b.node, OpenSession(60_000)), Opened)


async def test_a_standby_that_could_not_take_over_tries_again_without_waiting_anew() -> None:
    """The engine was away just when it was to lead: as long as nothing was written since, it is still to lead."""
    async with cluster("a", "b") as (nodes, (a, b)):
        lead, held = b.node.journal.lead, _hold_back(nodes, a)

        async def failing(known: Any = None) -> Any:
            b.node.journal.lead = lead  # type: ignore[method-assign]
            # From here on, silence is no reason any more.
            b.node._patience = Patience(leader_timeout_s=1_000, confirm_s=1_000)
            raise Unavailable("etcd has no leader")

        b.node.journal.lead = failing  # type: ignore[method-assign]
        await until(lambda: b.node.leads)
        held.set()
        await nodes.stands_by(a, b)


@pytest.mark.guarantee("G7")
async def test_a_plain_clients_lock_outlives_its_leader_for_as_long_as_it_was_told() -> None:
    """The leader hangs and is replaced while the connection stands: nobody else has the lock in that time."""
    async with cluster("a", "b", door=DoorBounds(implicit_ttl_ms=1_500)) as (nodes, (a, b)):
        reader, writer = await asyncio.open_connection("127.0.0.1", a.port)
        writer.write(command("HELLO", 3) + command("LOCK.ACQUIRE", "orders", "TTL", 60_000))
        *_, grant = await _replies(reader, 2)
        granted_at = asyncio.get_running_loop().time()
        held = _hold_back(nodes, a)
        await until(lambda: b.node.leads)
        (again,) = await said(b, command("LOCK.ACQUIRE", "orders", "WAIT", 10_000))
        kept_ms = (asyncio.get_running_loop().time() - granted_at) * 1000
        assert again is not None
        assert kept_ms >= 1_000
        assert grant[b"ttl_ms"] == 1_000
        # The old leader wakes up, finds that another leads, and lets its client go.
        held.set()
        assert await reader.read() == b""
        writer.close()


async def _replies(reader: asyncio.StreamReader, count: int) -> list[Any]:
    parser, replies = hiredis.Reader(), list[Any]()
    while len(replies) < count:
        parser.feed(await reader.read(65_536))
        replies += iter(parser.gets, False)
    return replies


class Distant(MemoryJournal):
    """A journal that cannot be reached so many times more."""

    away = 0

    async def open(self) -> port.Opened:
        self._reach()
        return await super().open()

    async def tail(self, after: Position) -> AsyncIterator[Record]:
        async for record in super().tail(after):
            self._reach()
            yield record

    def _reach(self) -> None:
        if self.away:
            self.away -= 1
            raise Unavailable("etcd has no leader")


async def test_a_standby_that_has_followed_since_tries_again_as_soon_as_the_first_time() -> None:
    """While its journal is away it waits ever longer between tries; when it is away again, that begins anew."""
    async with cluster("a") as (nodes, (a,)):
        journal, pauses = Distant(nodes.store), list[float]()
        config = Config(node="b", port=0, patience=Patience(leader_timeout_s=1_000))
        b = nodes.servers["b"] = Server(config, journal=journal)

        async def pause(seconds: float) -> None:
            pauses.append(seconds)

        b.node._pause = pause  # type: ignore[method-assign]
        await b.start()
        await nodes.stands_by(b, a)
        for away in (4, 2):
            pauses.clear()
            journal.away = away
            await until(lambda away=away: len(pauses) == away)  # type: ignore[misc]
            assert pauses == [0.05, 0.1, 0.2, 0.5][:away]
            position = b.node.position
            await until(lambda position=position: b.node.position > position + 1)  # type: ignore[misc]
            await nodes.stands_by(b, a)


async def test_nodes_that_take_over_at_once_do_not_seal_one_another() -> None:
    """One of them takes the epoch; however long it takes to write, the others wait for it and then follow it."""
    async with cluster("a") as (nodes, (a,)):
        # From the moment the leader is gone, silence is no reason for anybody.
        patient = Patience(leader_timeout_s=1_000, confirm_s=1_000, stagger_s=0.001)
        others = [await nodes.start(name, patient) for name in ("b", "c", "d")]
        for standby in others:
            await nodes.stands_by(standby, a)
        written = [_hold_back(nodes, standby) for standby in others]
        await a.stop()
        await until(lambda: nodes.store.epoch == a.node.epoch + 1)
        await until(lambda: sum(standby.node.role == "standby" for standby in others) == 2)
        # Said by those who wait: there is nobody to be sent to.
        for standby in others:
            if standby.node.role == "standby":
                assert str(standby.node.refusal()) == "another node takes over"
        for free in written:
            free.set()
        await until(lambda: any(standby.node.leads and standby.node.appends for standby in others))
        (leader,) = [standby for standby in others if standby.node.leads]
        for standby in others:
            if standby is not leader:
                await nodes.stands_by(standby, leader)
        assert nodes.store.epoch == leader.node.epoch == a.node.epoch + 1


async def test_a_node_that_led_before_waits_for_the_one_that_takes_over() -> None:
    """It is the one that was announced last, and opens the journal anew; another has the next epoch already."""
    async with cluster("a") as (nodes, (a,)):
        a.node._patience = Patience(leader_timeout_s=1_000, confirm_s=1_000)
        epoch = await _take_over(nodes)
        await until(lambda: a.node.role == "standby")
        assert str(a.node.refusal()) == "another node takes over"
        b = await nodes.start("b")
        # Nobody knows when the one that took it will write: those who are less patient take the next.
        await until(lambda: b.node.leads)
        assert b.node.epoch == epoch + 1
        await nodes.stands_by(a, b)


def _hold_back(nodes: Cluster, server: Server) -> asyncio.Event:
    """Let no append of a node get through until the event is set."""
    journal, free = server.node.journal, asyncio.Event()
    append = journal.append

    async def held(*args: Any, **kwargs: Any) -> None:
        await free.wait()
        await append(*args, **kwargs)

    journal.append = held  # type: ignore[method-assign]
    if server.node.leading is not None:
        # Nor past it, where its client stands.
        server.node.leading._append_here = None
    return free


@pytest.mark.guarantee("G9")
async def test_an_append_whose_outcome_is_unknown_is_told_so_and_the_journal_decides() -> None:
    """The caller hears "don't know"; the node opens anew, and what had landed is there."""
    async with cluster("a", "b") as (nodes, (a, b)):
        await told(a.node, OpenSession(60_000, secret="s"))
        nodes.faults["a"].armed = ("append.stored", OutcomeUnknown("the reply was lost"))
        outcome = await told(a.node, Acquire(1, ("orders",)))
        assert isinstance(outcome, OutcomeUnknown | Granted)
        await until(lambda: a.node.leads or b.node.leads)
        leader = a if a.node.leads else b
        repeated = await told(leader.node, Acquire(1, ("other",)))
        assert isinstance(repeated, Granted)


async def test_a_node_that_cannot_reach_its_journal_says_so_at_once_and_goes_on_trying() -> None:
    """It listens, refuses with what is wrong, and stands by or leads as soon as it can."""
    nodes = Cluster()
    journal = MemoryJournal(nodes.store)
    open_, out_of_reach = journal.open, [True]

    async def opened() -> Any:
        if out_of_reach[0]:
            raise Unavailable("etcd: connection refused")
        return await open_()

    journal.open = opened  # type: ignore[method-assign]
    server = Server(Config(node="a", port=0, patience=QUICK), journal=journal)
    await server.start()
    (reply,) = await said(server, command("SESSION.OPEN", "TTL", 1000))
    assert str(reply).startswith("UNAVAILABLE")
    assert "connection refused" in str(reply)
    out_of_reach[0] = False
    await until(lambda: server.node.leads)
    await server.stop()


async def test_the_nodes_can_be_listed() -> None:
    """The leader knows itself and who follows it, how far behind; a standby knows the leader."""
    async with cluster("a", "b") as (_, (a, b)):
        (listed,) = await said(a, command("NODE.LIST"))
        known = dict(zip(listed[::2], listed[1::2], strict=True))
        assert (known[b"node"], known[b"role"]) == (b"a", b"leader")
        (standby,) = known[b"standbys"]
        assert b"b" in standby
        (listed,) = await said(b, command("NODE.LIST"))
        known = dict(zip(listed[::2], listed[1::2], strict=True))
        assert (known[b"role"], known[b"leader"]) == (b"standby", b"a")
        assert known[b"leader_address"] == f"127.0.0.1:{a.port}".encode()
