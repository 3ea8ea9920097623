"""Waiting for a name: in order where that is promised, without leaving anything behind."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from fencehold import aio
from tests.behaviour.asking import connect, until
from tests.behaviour.ground import Ground
from tests.cancelling import steps_of

STEPS_MAX = 60


async def _queued(client: aio.Client, ground: Ground, name: str, count: int) -> None:
    """Wait until so many wait, where that can be seen; else give them a moment."""
    if ground.expected.fair:
        async with asyncio.timeout(20):
            while (await client.explain(name, tier=ground.tier)).waiter_count < count:
                await asyncio.sleep(0.005)
    else:
        await asyncio.sleep(0.05)


async def test_who_waits_is_granted_when_it_is_free(ground: Ground, name: str) -> None:
    """All of them, one after the other; in the order in which they came, where that is promised."""
    order: list[int] = []

    async def wait(client: aio.Client, number: int) -> None:
        async with client.lock(name, tier=ground.tier, timeout=60):
            order.append(number)

    async with connect(ground) as one, connect(ground) as other:
        tasks = []
        async with one.lock(name, tier=ground.tier):
            for number in range(8):
                client = one if number % 2 else other
                tasks.append(asyncio.create_task(wait(client, number)))
                await _queued(one, ground, name, number + 1)
        await asyncio.gather(*tasks)
    assert sorted(order) == list(range(8))
    if ground.expected.fair:
        assert order == sorted(order)


async def test_sixty_four_contenders_all_come_to_their_turns(ground: Ground, name: str) -> None:
    """Nobody starves where fairness is promised: nobody has a turn more than the one before while others wait."""
    turns: Counter[int] = Counter()
    gaps: list[int] = []

    async def contend(client: aio.Client, number: int) -> None:
        for _ in range(2):
            async with client.lock(name, tier=ground.tier, timeout=120):
                turns[number] += 1
                gaps.append(max(turns.values()) - min(turns[each] for each in range(64)))

    async with connect(ground) as one, connect(ground) as other:
        async with one.lock(name, tier=ground.tier):
            tasks = [asyncio.create_task(contend((one, other)[each % 2], each)) for each in range(64)]
            await _queued(one, ground, name, 64)
        await asyncio.gather(*tasks)
    assert set(turns.values()) == {2}
    if ground.expected.fair:
        assert max(gaps) == 1


@pytest.mark.parametrize("late", [False, True])
async def test_cancelled_at_every_await_point_it_leaves_nothing_behind(
    ground: Ground, new_name: Callable[[], str], late: bool
) -> None:
    """Of an acquire of a free name; early, or when what it waited for has just happened."""
    async with connect(ground) as one, connect(ground) as other:
        for step in range(STEPS_MAX):
            name = new_name()
            steps = await steps_of(_body(one, ground, name), step, late)
            async with other.lock(name, tier=ground.tier, timeout=10):
                pass
            if steps <= step:
                return
        raise AssertionError(f"an acquire and a release have more than {STEPS_MAX} await points")


@pytest.mark.parametrize("late", [False, True])
async def test_cancelled_at_every_await_point_of_a_wait_it_leaves_nothing_behind(
    ground: Ground, new_name: Callable[[], str], late: bool
) -> None:
    """Of an acquire of a name that another holds, and releases meanwhile."""
    async with connect(ground) as one, connect(ground) as other:
        for step in range(12):
            name = new_name()
            holder = await other.lock(name, tier=ground.tier).acquire()
            assert holder is not None
            waiting = asyncio.create_task(steps_of(_body(one, ground, name), step, late))
            await asyncio.wait({waiting}, timeout=0.02)
            await holder.release()
            await asyncio.wait_for(waiting, 20)
            async with other.lock(name, tier=ground.tier, timeout=10):
                pass


async def _body(client: aio.Client, ground: Ground, name: str) -> None:
    async with client.lock(name, tier=ground.tier):
        await asyncio.sleep(0)


async def test_a_waiter_that_gave_up_holds_nobody_up(ground: Ground, name: str) -> None:
    """The next in the queue does not wait for one who is gone."""
    async with connect(ground) as one, connect(ground) as other:
        holder = await one.lock(name, tier=ground.tier).acquire()
        assert holder is not None
        first = asyncio.create_task(other.lock(name, tier=ground.tier).acquire())
        await _queued(one, ground, name, 1)
        second = asyncio.create_task(other.lock(name, tier=ground.tier).acquire())
        await _queued(one, ground, name, 2)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        await holder.release()
        hold = await asyncio.wait_for(second, 10)
        assert hold is not None
        await hold.release()


async def test_a_waiter_gets_what_a_ttl_sets_free(ground: Ground, name: str) -> None:
    """Nobody releases it, so nobody says that it is free."""
    async with connect(ground) as one, connect(ground) as other:
        hold = await one.lock(name, tier=ground.tier, ttl=1).acquire()
        assert hold is not None
        async with other.lock(name, tier=ground.tier, timeout=30):
            assert hold.safe_for() == 0
        await until(hold.lost.is_set)
