"""The async client against a real server: every verb, as an application calls it."""

import asyncio
import gc
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fencehold import State, aio
from fencehold.client.aio import watch as watch_module
from fencehold.client.aio.channel import Channel
from fencehold.errors import (
    HoldLost,
    LockTimeout,
    PermissionDenied,
    UsageError,
)
from tests.unit.client.service import service, until


async def test_connect_can_be_awaited() -> None:
    """A client that was awaited is closed by hand, and then refuses to work."""
    async with service() as url:
        client = await aio.connect(url)
        hold = await client.lock("a").acquire()
        assert hold is not None
        await client.close()
        assert hold.state is State.LOST
        with pytest.raises(UsageError, match="closed"):
            await client.lock("a").acquire()
        await client.close()


async def test_thousands_of_acquires_at_once() -> None:
    """More requests than fit on the wire are sent in turn, and all of them end."""
    async with service() as url, aio.connect(url) as client:

        async def work(number: int) -> int:
            async with client.lock(f"n{number}") as hold:
                return hold.fence

        fences = await asyncio.gather(*(work(number) for number in range(3_000)))
        assert len(set(fences)) == 3_000


async def test_watches_that_were_given_up_while_they_began_leave_nothing_behind() -> None:
    """A connection watches so many prefixes at the most: those that nobody watches do not count."""
    async with service() as url, aio.connect(url) as client:
        for number in range(128):
            beginning = asyncio.create_task(client.watch(f"{number}:").__aenter__())
            await asyncio.sleep(0)
            beginning.cancel()
            await asyncio.wait([beginning])
            assert beginning.cancelled()
        async with client.watch("a") as watch, client.lock("a"):
            assert (await anext(watch)).kind == "acquired"


async def test_what_comes_before_a_watch_has_begun_is_kept_or_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reply may wait behind others for the journal, while events that happened after its place are told."""
    monkeypatch.setattr(watch_module, "EVENTS_MAX", 5)
    async with service() as url, aio.connect(url) as client, aio.connect(url) as other:
        for number in range(4):
            async with client.lock(f"a{number}"):
                pass
        watches, read = other._channel.watches, Channel.read

        async def read_late(channel: Channel, words: bytes) -> Any:
            reply = await read(channel, words)
            await until(lambda: bool(watches._early) and watches._early[-1].names == ("a3",))
            return reply

        monkeypatch.setattr(Channel, "read", read_late)
        async with other.watch("a", after=0) as watch:
            missing, *rest = [await anext(watch) for _ in range(4)]
        assert (missing.kind, missing.missing is not None) == ("gap", True)
        assert [event.names for event in rest] == [("a2",), ("a3",), ("a3",)]


async def test_a_lock_decorates_coroutines() -> None:
    """Each call of a decorated coroutine runs under the lock."""
    async with service() as url, aio.connect(url) as client:

        @client.lock("a")
        async def locked(name: str) -> bool:
            """Say whether a name is held."""
            return await client.lock(name).locked()

        assert await locked("a")
        assert not await client.lock("a").locked()
        assert locked.__doc__ == "Say whether a name is held."


async def test_explain_says_who_has_it_and_who_waits() -> None:
    """The explanation names client, host, pid, task, trace, fence and the queue in order."""
    async with service() as url, aio.connect(url, name="billing", meta={"zone": "z"}) as client:
        async with client.lock("a", meta={"trace": "t-1"}) as hold:
            waiters = [asyncio.create_task(client.lock("a").acquire(), name=f"w{i}") for i in range(2)]
            await until(lambda: _waiting(client, "a", 2))
            seen = await client.explain("a")
            (holder,) = seen.holders
            assert (holder.party.client, holder.fence, holder.trace) == ("billing", hold.fence, "t-1")
            assert holder.party.host
            assert holder.party.pid
            assert holder.party.details["zone"] == "z"
            assert [(place.position, place.party.owner[:2]) for place in seen.queue] == [(0, "w0"), (1, "w1")]
            assert "billing" in str(seen)
            assert holder.since is not None
            assert datetime.now(UTC) - holder.since < timedelta(minutes=1)
            assert [place.since is not None for place in seen.queue] == [True, True]
            assert f"since {holder.since.astimezone():%H:%M:%S}" in str(seen)
            for waiter in waiters:
                waiter.cancel()
            await asyncio.gather(*waiters, return_exceptions=True)
        assert "free" in str(await client.explain("a"))


async def _waiting(client: aio.Client, name: str, count: int) -> bool:
    return (await client.explain(name)).waiter_count == count


async def test_a_job_that_takes_too_long_is_cancelled() -> None:
    """After `at_most` the run is cancelled and the loss raised."""
    async with service() as url, aio.connect(url) as client:
        forever = asyncio.Event()

        @client.once("nightly", at_most=0.2)
        async def job() -> None:
            await forever.wait()

        with pytest.raises(HoldLost, match="ttl"):
            await job()


def _collect(things: list[Any]) -> None:
    """Forget all of them, and let the collector find out."""
    things.clear()
    gc.collect()


async def test_an_abandoned_hold_warns_and_stays_held() -> None:
    """Nothing is released by the garbage collector; a warning says what was forgotten."""
    async with service() as url, aio.connect(url) as client:
        hold = [await client.lock("a").acquire()]
        with pytest.warns(ResourceWarning, match="never released"):
            _collect(hold)
        assert await client.lock("a").locked()


async def test_a_client_that_was_not_closed_warns() -> None:
    """A forgotten client is told of."""
    async with service() as url:
        clients = [await aio.connect(url)]
        channel = clients[0]._channel
        with pytest.warns(ResourceWarning, match="not closed"):
            _collect(clients)
        await channel.close()


def test_errors_can_be_caught_as_builtin_ones() -> None:
    """A timeout is a `TimeoutError`, a usage error a `ValueError`, and a refusal is neither."""
    assert issubclass(LockTimeout, TimeoutError)
    assert issubclass(UsageError, ValueError)
    assert not issubclass(PermissionDenied, TimeoutError)


async def test_a_semaphore_has_a_permit_or_more() -> None:
    """None at all is no semaphore, and certainly no exclusive lock."""
    async with service() as url, aio.connect(url) as client:
        for limit in (0, -1):
            with pytest.raises(UsageError, match="limit is a whole number, 1 or more"):
                client.semaphore("s", limit)


async def test_observing_ends_with_the_client() -> None:
    """Closing the client ends the iteration, also for whoever waits for the next leader."""
    async with service() as url:
        client = await aio.connect(url)
        seen = client.election("chair").observe()
        assert await anext(seen) is None
        rest = asyncio.create_task(_all(seen))
        await asyncio.sleep(0.01)
        await client.close()
        assert await asyncio.wait_for(rest, 10) == []


async def _all(things: AsyncIterator[Any]) -> list[Any]:
    return [thing async for thing in things]


async def test_without_a_url_the_environment_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that is told nothing asks `FENCEHOLD_URL`."""
    async with service() as url:
        monkeypatch.setenv("FENCEHOLD_URL", url)
        async with aio.connect(connect_timeout=10) as client:
            await client.ready()
