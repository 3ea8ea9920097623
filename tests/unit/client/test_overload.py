"""Both clients at a service that has too much to do: they wait and ask again, within their callers' time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

import fencehold
from fencehold import Overloaded, aio
from fencehold.client.blocking.lock import Lock
from fencehold.compat import redis as compat
from fencehold.types import EFFICIENCY
from tests.unit.client.service import Cable, run, service, service_on_a_thread, until
from tests.unit.client.swamp import ANYTHING, Swamp

TIMES = 3


async def _lock(client: aio.Client) -> Any:
    return await client.lock("a").acquire()


async def _multi(client: aio.Client) -> Any:
    return await client.multi(["a", "b"]).acquire()


async def _semaphore(client: aio.Client) -> Any:
    return await client.semaphore("a", 2).acquire()


async def _shared(client: aio.Client) -> Any:
    return await client.lock("a", shared=True).acquire()


async def _rlock(client: aio.Client) -> Any:
    return await client.rlock("a").acquire()


async def _election(client: aio.Client) -> Any:
    return await client.election("a").campaign()


async def _once(client: aio.Client) -> Any:
    @client.once("a", at_most=60, busy="wait")
    async def job() -> int:
        return 1

    return await job()


@pytest.mark.parametrize("verb", [_lock, _multi, _semaphore, _shared, _rlock, _election, _once])
def test_every_verb_waits_and_asks_again(
    verb: Callable[[aio.Client], Awaitable[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waits without a limit is served when the service has time."""

    async def test() -> None:
        swamp = Swamp(monkeypatch)
        async with service() as url, aio.connect(url) as client:
            swamp.refuse(TIMES)
            had = await verb(client)
            assert had is not None
            assert swamp.told == TIMES
            if hasattr(had, "release"):
                await had.release()

    run(test())


def test_a_try_says_that_the_service_is_busy_and_not_that_another_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """None would mean that somebody holds it; a job that is skipped, that another runs it."""

    async def test() -> None:
        swamp = Swamp(monkeypatch)
        async with service() as url, aio.connect(url) as client:
            with pytest.raises(Overloaded, match="the service is busy: too much to do") as raised:
                await client.lock("a").acquire(blocking=False)
            assert raised.value.retry_after_s == swamp.retry_after_s
            with pytest.raises(Overloaded):
                await client.lock("a").acquire(timeout=0)
            with pytest.raises(Overloaded):
                await client.once("a", at_most=60)(_nothing)()
            assert swamp.told == 3

    run(test())


async def _nothing() -> None:
    raise AssertionError("it ran")


def test_a_timed_acquire_ends_as_overloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was asked more than once, and never got in: nothing is known of who holds the name."""

    async def test() -> None:
        swamp = Swamp(monkeypatch)
        async with service() as url, aio.connect(url) as client:
            with pytest.raises(Overloaded, match=r"too much to do; asked \d+ times in 0\.\d s"):
                await client.lock("a").acquire(timeout=0.2)
            with pytest.raises(Overloaded):
                async with client.lock("a", timeout=0.1):
                    raise AssertionError("it was had")
            assert swamp.told > 2
            swamp.drain()
            async with client.lock("a", timeout=0):
                pass

    run(test())


@pytest.mark.guarantee("G9")
def test_cancelled_while_it_backs_off_an_acquire_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server never took it, and is never asked again."""

    async def test() -> None:
        swamp = Swamp(monkeypatch)
        async with service() as url, aio.connect(url) as client:
            waiting = asyncio.create_task(client.lock("a").acquire())
            await until(lambda: swamp.told > 1)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            swamp.drain()
            async with client.lock("a", timeout=0):
                seen = await client.explain("a")
                assert seen.queue == ()
            assert (await client.explain("a")).holders == ()

    run(test())


@pytest.mark.guarantee("G9")
def test_whatever_is_told_busy_every_request_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of commands of any kind every third is told BUSY, while connections break and callers leave."""

    async def test() -> None:
        swamp = Swamp(monkeypatch, ANYTHING)
        swamp.refuse_by_lot(7, 1 / 3)
        options: dict[str, Any] = {"grace": 10, "ttl": 30, "connect_timeout": 30}
        async with service() as url, Cable(url) as cable, aio.connect(cable.url, **options) as client:
            fences: list[int] = []

            async def work(name: str) -> None:
                for number in range(10):
                    with_limit = client.lock(name, timeout=30) if number % 2 else client.lock(name, ttl=20)
                    async with with_limit as hold:
                        fences.append(hold.fence)
                        if number % 5 == 0:
                            await hold.extend(30)

            async def leave(name: str) -> None:
                for _ in range(20):
                    asked = asyncio.create_task(client.lock(name, timeout=30).acquire())
                    await asyncio.sleep(0)
                    asked.cancel()
                    await asyncio.gather(asked, return_exceptions=True)
                    await asyncio.sleep(0.005)

            workers = [asyncio.create_task(work(f"n{i % 3}")) for i in range(6)]
            workers += [asyncio.create_task(leave(f"n{i}")) for i in range(3)]
            for _ in range(6):
                done = len(fences)
                await until(lambda done=done: len(fences) > done or all(w.done() for w in workers))  # type: ignore[misc]
                cable.cut()
            await asyncio.gather(*workers)
            assert len(set(fences)) == 60
            swamp.drain()
            for name in ("n0", "n1", "n2"):
                await until(lambda name=name: _is_free(client, name))  # type: ignore[misc]
            session = client._channel.protocol.session
            await until(lambda: not session.cancels and not session.kept and not session.returning)

    run(test())


async def _is_free(client: aio.Client, name: str) -> bool:
    seen = await client.explain(name)
    return (seen.holders, seen.queue) == ((), ())


def test_a_client_connects_when_the_service_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening a session is asked for again on the same connection."""

    async def test() -> None:
        swamp = Swamp(monkeypatch, ANYTHING)
        swamp.refuse(TIMES)
        async with service() as url, Cable(url) as cable, aio.connect(cable.url) as client:
            assert swamp.told == TIMES
            assert cable.connections == 1
            assert (await client.explain("a")).holders == ()

    run(test())


def test_a_client_that_cannot_connect_in_time_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there, and has no time."""

    async def test() -> None:
        Swamp(monkeypatch, ANYTHING)
        async with service() as url:
            with pytest.raises(
                Overloaded, match=r"busy: too much to do; fencehold://.* opened no session within 0.2 s"
            ):
                await aio.connect(url, connect_timeout=0.2)

    run(test())


def test_who_may_go_on_without_a_lock_does_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """EFFICIENCY with `proceed` asks for as long as for a service that is away; CORRECTNESS waits, or raises."""

    async def test() -> None:
        swamp = Swamp(monkeypatch)
        async with service() as url, aio.connect(url, connect_timeout=0.5, on_unavailable="proceed") as client:
            for _ in range(4):
                claim = await client.lock("a", tier=EFFICIENCY).acquire()
                assert not claim.is_protected
                await claim.release()
            with pytest.raises(Overloaded):
                await client.lock("a").acquire(timeout=0.2)
            swamp.drain()
            # No breaker was opened by it: the next one asks, and is served.
            claim = await client.lock("a", tier=EFFICIENCY).acquire()
            assert claim.is_protected
            await claim.release()

    run(test())


def test_the_log_tells_of_overload_a_few_times(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With what the service said, and for how long it is asked again."""

    async def test() -> None:
        swamp = Swamp(monkeypatch)
        async with service() as url, aio.connect(url) as client:
            swamp.refuse(50)
            asking = [client.lock(f"n{each}").acquire(timeout=60) for each in range(10)]
            for hold in await asyncio.gather(*asking):
                assert hold is not None
                await hold.release()

    with caplog.at_level(logging.WARNING, "fencehold"):
        run(test())
    told = [record.getMessage() for record in caplog.records if record.name == "fencehold.overload"]
    assert told[0] == "the service is busy: too much to do; trying again for 60 s"
    assert len(told) == 11


# The blocking client.


def test_threads_wait_and_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same protocol decides."""
    swamp = Swamp(monkeypatch)
    with service_on_a_thread() as url, fencehold.connect(url) as client:
        swamp.refuse(TIMES)
        with client.lock("a") as hold:
            assert hold.fence > 0
        with client.multi(["a", "b"], timeout=30), client.semaphore("c", 2), client.lock("d", shared=True):
            pass
        assert swamp.told == TIMES


def test_threads_are_told_that_the_service_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A try at once, a timed acquire at its deadline."""
    Swamp(monkeypatch)
    with service_on_a_thread() as url, fencehold.connect(url) as client:
        lock: Lock[Any] = client.lock("a")
        with pytest.raises(Overloaded):
            lock.acquire(blocking=False)
        with pytest.raises(Overloaded, match="asked"):
            lock.acquire(timeout=0.1)
        with pytest.raises(Overloaded):
            client.election("a").campaign(timeout=0.1)
        with pytest.raises(Overloaded):
            client.once("a", at_most=60)(lambda: None)()


def test_a_release_goes_through_when_the_service_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever releases waits for it, within the connect timeout."""
    swamp = Swamp(monkeypatch, ANYTHING)
    swamp.drain()
    with service_on_a_thread() as url, fencehold.connect(url) as client:
        hold = client.lock("a").acquire()
        swamp.refuse(3)
        hold.extend(20)
        swamp.refuse(3)
        hold.release()
        assert client.explain("a").holders == ()


def test_a_lock_of_redis_py_is_told_in_the_words_of_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `False` would mean that another has it; the error says when to come back."""
    swamp = Swamp(monkeypatch)
    with service_on_a_thread() as url, fencehold.connect(url) as client:
        lock = compat.Lock(client, "a", timeout=10)
        with pytest.raises(RedisConnectionError, match="the service is busy") as raised:
            lock.acquire(blocking=False)
        assert isinstance(raised.value, Overloaded)
        assert raised.value.retry_after_s == swamp.retry_after_s
        swamp.refuse(TIMES)
        assert lock.acquire(blocking_timeout=30)
        lock.release()
