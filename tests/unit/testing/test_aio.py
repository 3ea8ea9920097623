"""The same verbs, awaited: the clients live on the test's own loop."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

import fencehold
from fencehold import HoldLost, LockTimeout, SessionExpired, State
from fencehold.aio import Client
from fencehold.testing import AsyncService, Service

Scene = Callable[[AsyncService, Client], Awaitable[None]]


def play(scene: Scene) -> None:
    """Run a scene with a service and a client, and see that it leaves no task behind."""

    async def played() -> None:
        async with Service() as service, service.connect() as client:
            await scene(service, client)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(played())


async def body(client: Client, log: list[str], name: str = "orders", ttl: float | None = None) -> None:
    """What an application does under a lock: something that takes long."""
    async with client.lock(name, ttl=ttl) as hold:
        log.append(f"began {hold.fence}")
        try:
            await asyncio.Event().wait()
        finally:
            log.append(f"stopped {hold.fence}")


async def begun(
    service: AsyncService, client: Client, log: list[str], ttl: float | None = None
) -> "asyncio.Task[None]":
    """A task in the body."""
    task = asyncio.create_task(body(client, log, ttl=ttl))
    await service.until(lambda: log)
    return task


def test_a_healthy_client_keeps_its_session() -> None:
    """Keep-alives are sent from the test's loop while it waits for time to pass."""

    async def scene(service: AsyncService, client: Client) -> None:
        async with client.lock("orders") as hold:
            await service.advance(100)
            assert hold.state is State.HELD

    play(scene)


def test_the_body_is_cancelled_when_its_hold_runs_out() -> None:
    """It has stopped when the verb returns, or with the next turn of the loop."""

    async def scene(service: AsyncService, client: Client) -> None:
        log: list[str] = []
        task = await begun(service, client, log, ttl=5)
        await service.advance(6)
        with pytest.raises(HoldLost):
            await task
        assert log == ["began 1", "stopped 1"]

    play(scene)


def test_the_body_is_cancelled_when_its_hold_is_expired() -> None:
    """The server's word is enough."""

    async def scene(service: AsyncService, client: Client) -> None:
        async def leave_at_once() -> None:
            async with client.lock("orders") as hold:
                await service.expire(hold)
                await asyncio.Event().wait()

        with pytest.raises(HoldLost):
            await leave_at_once()

    play(scene)


def test_the_body_is_cancelled_when_its_hold_is_broken() -> None:
    """An operator's word, too."""

    async def scene(service: AsyncService, client: Client) -> None:
        log: list[str] = []
        task = await begun(service, client, log)
        assert await service.break_hold("orders") == 2
        with pytest.raises(HoldLost):
            await task

    play(scene)


def test_a_paused_client_wakes_up_to_its_loss() -> None:
    """Its body runs on while it is paused, and is cancelled when it wakes up."""

    async def scene(service: AsyncService, client: Client) -> None:
        log: list[str] = []
        task = await begun(service, client, log)
        async with service.pause(client):
            await service.advance(40)
            assert log == ["began 1"]
            async with service.connect() as other, other.lock("orders", timeout=0):
                pass
        with pytest.raises(HoldLost):
            await task

    play(scene)


def test_a_client_is_paused_for_some_seconds() -> None:
    """Less than its ttl costs nothing; more costs the session."""

    async def scene(service: AsyncService, client: Client) -> None:
        hold = await client.lock("orders").acquire()
        assert hold is not None
        await service.pause(client, for_=15)
        assert hold.state is State.HELD
        await service.pause(client, for_=40)
        assert hold.lost.is_set()

    play(scene)


def test_a_holder_that_is_cut_off_stops_before_the_next_begins() -> None:
    """The client stops trusting first, by its own clock."""

    async def scene(service: AsyncService, client: Client) -> None:
        log: list[str] = []
        first = await begun(service, client, log)
        async with service.connect() as other:
            second = asyncio.create_task(body(other, log))
            async with service.partition(client):
                await service.advance(40)
            assert log == ["began 1", "stopped 1", "began 2"]
            second.cancel()
            outcomes = await asyncio.gather(first, second, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [HoldLost, asyncio.CancelledError]
        service.assert_no_overlap()

    play(scene)


@pytest.mark.parametrize("verb", ["drop_connections", "restart"])
def test_a_blip_or_a_restart_loses_nothing(verb: str) -> None:
    """The session is resumed, and the hold stays held."""

    async def scene(service: AsyncService, client: Client) -> None:
        async with client.lock("orders") as hold:
            await getattr(service, verb)()
            assert hold.state is State.HELD
            assert [holder.fence for holder in service.holders("orders")] == [hold.fence]

    play(scene)


def test_a_killed_client_is_gone() -> None:
    """Whoever waits on it is told, and what it held is free after its grace."""

    async def scene(service: AsyncService, client: Client) -> None:
        async with client.lock("orders") as hold:
            victim = await service.connect()
            waiting = asyncio.create_task(victim.lock("orders").acquire())
            other = await victim.lock("stock").acquire()
            await service.kill(victim)
            with pytest.raises(SessionExpired):
                await waiting
            assert other is not None
            assert len(service.holders("stock")) == 1
            await service.advance(1.1)
            assert service.holders("stock") == ()
            assert service.waiters("orders") == ()
            hold.check()

    play(scene)


def test_a_wait_times_out() -> None:
    """A minute's wait is over in no time."""

    async def scene(service: AsyncService, client: Client) -> None:
        async with client.lock("orders"), service.connect() as other:
            waiting = asyncio.create_task(other.lock("orders", timeout=60).acquire_or_raise())
            await service.until(lambda: service.waiters("orders"))
            await service.advance(60)
            with pytest.raises(LockTimeout):
                await waiting

    play(scene)


def test_the_application_connects_by_itself() -> None:
    """Its client is found by its name."""

    async def scene(service: AsyncService, client: Client) -> None:
        async with fencehold.aio.connect(service.url, name="worker") as worker:
            hold = await worker.lock("orders").acquire()
            assert hold is not None
            await service.pause("worker", for_=40)
            assert hold.state is State.LOST

    play(scene)


async def test_blocking_and_async_clients_share_a_service() -> None:
    """A client of either kind meets those of the other."""
    with Service() as service:
        blocking = service.connect()
        hold = await asyncio.to_thread(blocking.lock("orders").acquire)
        assert hold is not None
        async with service.aio_connect() as client:
            assert await client.lock("orders").acquire(timeout=0) is None
            await service.aio.pause(blocking, for_=40)
            async with client.lock("orders", timeout=0):
                pass
        assert hold.state is State.LOST
