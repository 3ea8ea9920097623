"""An acquire cancelled at any await point leaves nothing held and nothing queued (G9)."""

import asyncio
from typing import Any

import pytest

from fencehold import aio
from tests.cancelling import steps_of
from tests.unit.client.service import service, until

pytestmark = pytest.mark.guarantee("G9")

STEPS_MAX = 12


async def _body(client: aio.Client, timeout: float | None) -> None:
    async with client.lock("a", timeout=timeout):
        await asyncio.sleep(0)


async def _acquire(client: aio.Client, timeout: float | None) -> None:
    lock = client.lock("a", timeout=timeout)
    if await lock.acquire() is not None:
        await lock.release()


async def _is_clean(client: aio.Client) -> bool:
    seen = await client.explain("a")
    return not seen.holders and not seen.queue


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("form", [_body, _acquire])
@pytest.mark.parametrize("timeout", [None, 5, 0])
async def test_cancelled_at_every_await_point(form: Any, timeout: float | None, late: bool) -> None:
    """Whatever suspension an acquire is cancelled at, early or late, the name is free of it afterwards."""
    async with service() as url, aio.connect(url) as client, aio.connect(url) as other:
        cancelled = 0
        for step in range(STEPS_MAX):
            steps = await steps_of(form(client, timeout), step, late)
            await until(lambda: _is_clean(other))
            assert not client._channel.protocol.session.holds
            cancelled += steps > step
        assert 0 < cancelled < STEPS_MAX


@pytest.mark.parametrize("late", [False, True])
async def test_cancelled_at_every_await_point_while_another_holds_it(late: bool) -> None:
    """Queued behind another, granted by a push as that one lets go: no moment leaves anything behind."""
    async with service() as url, aio.connect(url) as client, aio.connect(url) as other:
        for step in range(STEPS_MAX):
            held = await other.lock("a").acquire()
            assert held is not None
            waiting = asyncio.create_task(steps_of(_body(client, None), step, late))
            await until(lambda waiting=waiting: _queued_or_done(other, waiting))  # type: ignore[misc]
            await held.release()
            await waiting
            await until(lambda: _is_clean(other))


async def _queued_or_done(client: aio.Client, task: "asyncio.Task[Any]") -> bool:
    return task.done() or bool((await client.explain("a")).queue)


async def test_cancelled_after_any_number_of_turns() -> None:
    """Cancelled from outside after n turns of the loop, for many n: before, between and after the answers."""
    async with service() as url, aio.connect(url) as client, aio.connect(url) as other:
        for turns in range(40):
            held = await other.lock("a").acquire()
            assert held is not None
            tasks = [asyncio.create_task(_body(client, None)) for _ in range(3)]
            letting_go = asyncio.create_task(held.release())
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await letting_go
            await until(lambda: _is_clean(other))


async def test_cancelled_before_a_connection_stands() -> None:
    """A client whose connecting was cancelled leaves no task and no socket."""
    async with service() as url:
        for turns in range(12):
            connecting = asyncio.create_task(_connect(url))
            for _ in range(turns):
                await asyncio.sleep(0)
            connecting.cancel()
            results = await asyncio.gather(connecting, return_exceptions=True)
            if isinstance(results[0], aio.Client):
                await results[0].close()


async def _connect(url: str) -> aio.Client:
    return await aio.connect(url)


async def test_a_cancelled_release_is_still_done() -> None:
    """Whoever stops waiting for the answer to a release has released all the same."""
    async with service() as url, aio.connect(url) as client, aio.connect(url) as other:
        hold = await client.lock("a").acquire()
        assert hold is not None
        releasing = asyncio.create_task(hold.release())
        await asyncio.sleep(0)
        releasing.cancel()
        await asyncio.gather(releasing, return_exceptions=True)
        assert releasing.cancelled()
        await until(lambda: _is_clean(other))


async def test_wait_for_leaves_nothing() -> None:
    """`asyncio.wait_for` around an acquire gives up cleanly."""
    async with service() as url, aio.connect(url) as client, aio.connect(url) as other:
        async with other.lock("a"):
            for _ in range(5):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(client.lock("a").acquire(), 0.01)
        await until(lambda: _is_clean(other))
