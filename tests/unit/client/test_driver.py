"""The driver: sockets and timers at the protocol's orders."""

import asyncio

import pytest

from fencehold import State, aio
from fencehold.client import endpoints
from fencehold.client.aio import watch as watching
from fencehold.client.driver import PARKED_MAX, Driver
from fencehold.drivers.resp.wire import command
from fencehold.locks.views import Event
from tests.unit.client.service import Cable, service, until


async def test_what_one_turn_asks_for_is_written_at_once() -> None:
    """Requests of one turn of the loop travel in one write."""
    async with service() as url, aio.connect(url) as client:
        driver = client._channel.driver
        connection = driver._connection
        assert connection is not None
        assert connection.transport is not None
        writes: list[bytes] = []
        write = connection.transport.write

        def record(data: bytes) -> None:
            writes.append(data)
            write(data)

        connection.transport.write = record  # type: ignore[assignment, method-assign]
        await asyncio.gather(*(client.explain(f"n{i}") for i in range(10)))
        assert sum(data.count(b"LOCK.INFO") for data in writes) == 10
        assert len(writes) <= 2


@pytest.mark.guarantee("G7")
async def test_too_many_parked_connections_cost_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the oldest parked connection has to be closed, the hold is trusted for the grace only."""
    monkeypatch.setattr(endpoints, "PAUSE_MAX_S", 0.01)

    async with service() as url, Cable(url) as cable:
        client = await aio.connect(cable.url, ttl=30, grace=0.1, connect_timeout=0.1)
        hold = await client.lock("a").acquire()
        assert hold is not None
        driver = client._channel.driver
        cable.hold_still()
        asking = asyncio.create_task(client.explain("a"))
        parked = 0
        while hold.safe_for() > 1:
            parked = max(parked, len(driver._parked))
            await asyncio.sleep(0.005)
        assert parked == PARKED_MAX
        await until(lambda: hold.state is State.LOST)
        await asyncio.gather(asking, return_exceptions=True)
        cable.flow()
        await client.close()


async def test_a_node_that_cannot_be_found_is_passed_over() -> None:
    """A host that does not exist, and a port where nobody listens, are followed by one that works."""
    async with service() as url:
        port = url.rpartition(":")[2]
        nodes = f"fencehold://no-such-host.invalid:1,127.0.0.1:1,127.0.0.1:{port}"
        async with aio.connect(nodes) as client, client.lock("a") as hold:
            hold.check()


async def test_a_watch_is_asked_for_again_from_the_middle_of_an_entry() -> None:
    """Of an entry that was told in part when the connection was lost, the rest comes, and nothing twice."""
    async with service() as url, aio.connect(url) as client, client.watch("a") as watch:
        told = {b"kind": b"acquired", b"position": 1 << 40, b"names": [b"a1"]}
        for index in (2, 5, 5, 2):
            watch._watches[0]._on_event({**told, b"index": index})
        assert [event.index for _, event in watch._events] == [2, 5]
        assert watch._watches[0]._subscriptions() == [command("LOCK.WATCH", "a", "FROM", 1 << 40, "INDEX", 5)]


async def test_a_watcher_that_falls_behind_is_told_of_the_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that nobody looks at do not pile up: a gap takes their place."""
    monkeypatch.setattr(watching, "EVENTS_MAX", 3)

    async with service() as url, aio.connect(url) as client, client.watch("a") as watch:
        for position in range(5):
            watch._put(Event("acquired", position, 0, 0, "", ("a",), 1, ""))
        kinds = [((event := await anext(watch)).kind, event.position) for _ in range(3)]
        assert kinds == [("gap", 2), ("acquired", 3), ("acquired", 4)]


async def test_drivers_of_closed_clients_are_forgotten() -> None:
    """A closed client leaves nothing that would be looked after in a child process."""
    async with service() as url:
        client = await aio.connect(url)
        driver: Driver = client._channel.driver
        await client.close()
        assert driver._open == set()
        assert not driver._attempts
        assert driver._timer is None or driver._timer.cancelled()
