"""A job that is kept from running again for a least time, whatever became of the process that ran it."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from fencehold import LockTimeout, State, Unsupported
from fencehold.locks.terms import Terms
from tests.behaviour.asking import blocking, connect, runner
from tests.behaviour.ground import Ground

AT_MOST, AT_LEAST = 3.0, 2.0
SHORT = 0.4
CLOCKS = 0.02
"""What a server's clock of the day may be off from ours in that time."""


def test_a_least_time_outlives_the_process(ground: Ground, new_name: Callable[[], str]) -> None:
    """One process ends right after a quick run, another is killed amid its run: nobody runs it before its time."""
    if not ground.expected.at_least or ground.expected.backend == "memory":
        # The service of one process is not asked by another.
        return
    quick, slow = new_name(), new_name()
    with blocking(ground) as client:
        begun = time.monotonic()
        with runner(ground, quick, AT_MOST, AT_LEAST, quick=True) as ran:
            assert ran.wait(30) == 0
        with runner(ground, slow, AT_MOST, AT_LEAST, quick=False) as killed:
            killed.kill()
            killed.wait()
        for name in (quick, slow):
            skipping = client.once(name, at_most=AT_MOST, tier=ground.tier)(time.monotonic)
            waiting = client.once(name, at_most=AT_MOST, tier=ground.tier, busy="wait")(time.monotonic)
            for ran_at in (skipping(), waiting()):
                assert ran_at is None or ran_at - begun >= AT_LEAST - CLOCKS


async def test_a_quick_run_keeps_its_name_from_everybody(ground: Ground, name: str) -> None:
    """Its own client, too; the run is over at once, and `explain` says for whom the name is kept, and how long."""
    async with connect(ground, name="billing") as one, connect(ground) as other:
        if not ground.expected.at_least:
            with pytest.raises(Unsupported, match="at_least"):
                one.once(name, at_most=AT_MOST, at_least=SHORT, tier=ground.tier)
            return
        begun = time.monotonic()
        assert await one.once(name, at_most=60, at_least=SHORT, tier=ground.tier)(_work)() == 42
        took_s = time.monotonic() - begun
        seen = await other.explain(name, tier=ground.tier)
        if seen.kept is not None:
            assert seen.kept.party.client == "billing"
            assert 0 < seen.kept.left <= max(SHORT, ground.ttl_min) + CLOCKS
        if time.monotonic() - begun < SHORT - CLOCKS:
            assert seen.kept is not None
            assert took_s < SHORT
        for client in (one, other):
            again = await client.once(name, at_most=60, tier=ground.tier, busy="wait")(_when)()
            assert again is not None
            assert again - begun >= SHORT - CLOCKS


async def test_a_client_that_is_closed_amid_a_run_leaves_the_name_kept(ground: Ground, name: str) -> None:
    """Closing gives everything back but what is kept for a least time; that is free long before `at_most`."""
    if not ground.expected.at_least:
        return

    async with connect(ground) as other:
        begun = time.monotonic()
        async with connect(ground) as one:
            running, done = asyncio.Event(), asyncio.Event()
            job = one.once(name, at_most=60, at_least=SHORT, tier=ground.tier)(_until(running, done))
            task = asyncio.create_task(job())
            await running.wait()
        await asyncio.gather(task, return_exceptions=True)
        async with asyncio.timeout(30), other.lock(name, tier=ground.tier) as hold:
            assert hold.state is State.HELD
            assert time.monotonic() - begun >= SHORT - CLOCKS


async def test_extending_a_run_does_not_shorten_its_least_time(ground: Ground, name: str) -> None:
    """A hold that is made to end early is lost early, and its name is kept all the same."""
    if not ground.expected.at_least:
        return

    async with connect(ground) as one, connect(ground) as other:
        begun = time.monotonic()
        terms = Terms((name,), ttl=60, timeout=0, at_least=SHORT)
        hold = await one._lock(terms, ground.tier).acquire()
        assert hold is not None
        await hold.extend(0.1)
        await hold.lost
        async with other.lock(name, tier=ground.tier, timeout=30):
            assert time.monotonic() - begun >= SHORT - CLOCKS


async def test_a_break_ends_a_least_time(ground: Ground, name: str) -> None:
    """An operator gets the name back at once."""
    if not ground.expected.at_least:
        return

    async with connect(ground) as one, connect(ground) as other:
        await one.once(name, at_most=600, at_least=500, tier=ground.tier)(_work)()
        with pytest.raises(LockTimeout):
            async with other.lock(name, tier=ground.tier, timeout=0):
                pass
        await other.break_hold(name, tier=ground.tier)
        async with other.lock(name, tier=ground.tier, timeout=30):
            pass
        assert (await other.explain(name, tier=ground.tier)).kept is None


async def test_a_run_that_lasts_longer_frees_its_name_at_its_end(ground: Ground, name: str) -> None:
    """The least time is from the start of the run: after it nothing is left to be kept."""
    if not ground.expected.at_least:
        return

    async def long() -> int:
        await asyncio.sleep(0.05)
        return 42

    async with connect(ground) as one, connect(ground) as other:
        assert await one.once(name, at_most=600, at_least=0.02, tier=ground.tier)(long)() == 42
        async with other.lock(name, tier=ground.tier, timeout=30):
            assert (await one.explain(name, tier=ground.tier)).kept is None


async def _work() -> int:
    return 42


async def _when() -> float:
    return time.monotonic()


def _until(running: asyncio.Event, done: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        running.set()
        await done.wait()

    return run
