"""Having a name: alone, for a time, until it is lost."""

import asyncio
import gc
import os
import time
import warnings
from collections.abc import Callable

import pytest

import fencehold
from fencehold import EFFICIENCY, HoldLost, LockTimeout, State, Unavailable, Unsupported, UsageError, aio
from tests.behaviour.asking import blocking, connect, crashing_holder
from tests.behaviour.ground import Ground


def test_the_guarantees_are_those_declared(ground: Ground, name: str) -> None:
    """Whoever reads them knows what to rely on."""
    with blocking(ground) as client:
        assert client.lock(name, tier=ground.tier).guarantees == ground.expected


def test_a_name_has_one_holder(ground: Ground, name: str) -> None:
    """A step that two must not do at once is not done by two at once."""

    async def main() -> None:
        inside = 0
        most = 0
        done = 0

        async def work(client: aio.Client) -> None:
            nonlocal inside, most, done
            for _ in range(3):
                async with client.lock(name, tier=ground.tier, timeout=30):
                    inside += 1
                    most = max(most, inside)
                    await asyncio.sleep(0.001)
                    inside -= 1
                    done += 1

        async with connect(ground) as one, connect(ground) as other:
            await asyncio.gather(*(work(client) for client in (one, other) for _ in range(4)))
        assert (most, done) == (1, 24)

    asyncio.run(main())


def test_threads_exclude_one_another(ground: Ground, name: str) -> None:
    """The blocking client keeps the same promise."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415

    inside: list[int] = []
    seen: list[int] = []

    def work(client: fencehold.Client) -> None:
        with client.lock(name, tier=ground.tier, timeout=30):
            inside.append(1)
            seen.append(len(inside))
            time.sleep(0.001)
            inside.pop()

    with blocking(ground) as one, blocking(ground) as other, ThreadPoolExecutor(4) as pool:
        list(pool.map(work, [one, other] * 4))
    assert seen == [1] * 8


def test_trying_says_no_at_once(ground: Ground, name: str) -> None:
    """`acquire` returns None; `with` raises, and says what was asked for."""

    async def main() -> None:
        async with connect(ground) as one, connect(ground) as other:
            async with one.lock(name, tier=ground.tier) as hold:
                assert hold.state is State.HELD
                lock = other.lock(name, tier=ground.tier, timeout=0)
                assert await lock.acquire() is None
                assert await lock.locked()
                assert not lock.owned()
                with pytest.raises(LockTimeout, match=name):
                    await lock.__aenter__()
            async with lock as hold:
                assert hold.name == name
            assert not await lock.locked()

    asyncio.run(main())


def test_a_wait_lasts_as_long_as_was_said(ground: Ground, name: str) -> None:
    """No shorter, and what waited is not granted later."""

    async def main() -> None:
        async with connect(ground) as one, connect(ground) as other:
            async with one.lock(name, tier=ground.tier):
                begun = time.monotonic()
                assert await other.lock(name, tier=ground.tier, timeout=0.3).acquire() is None
                # A service counts whole milliseconds.
                assert time.monotonic() - begun >= 0.299
            async with one.lock(name, tier=ground.tier, timeout=10):
                pass

    asyncio.run(main())


def test_a_hold_is_shown_to_others(ground: Ground, name: str) -> None:
    """Who has it: the host and the process."""

    async def main() -> None:
        async with connect(ground, name="billing") as one, connect(ground) as other:
            async with one.lock(name, tier=ground.tier, meta={"trace": "abc"}):
                seen = await other.explain(name, tier=ground.tier)
                assert [(holder.party.client, holder.party.pid) for holder in seen.holders] == [
                    ("billing", os.getpid())
                ]
                assert seen.holders[0].trace == "abc"
            assert not (await other.explain(name, tier=ground.tier)).holders

    asyncio.run(main())


def test_fences_grow_where_they_are_promised(ground: Ground, name: str) -> None:
    """From grant to grant, whoever asks; a claim has none."""

    async def main() -> None:
        fences = []
        for _ in range(3):
            async with connect(ground) as one, connect(ground) as other:
                for client in (one, other, one):
                    async with client.lock(name, tier=ground.tier, timeout=10) as claim:
                        if ground.expected.fenced:
                            assert isinstance(claim, aio.Hold)
                            fences.append(claim.fence)
                        else:
                            assert not hasattr(claim, "fence")
        assert fences == sorted(set(fences))
        assert len(fences) == (9 if ground.expected.fenced else 0)

    asyncio.run(main())


def test_a_tier_that_cannot_be_given_is_refused_first(ground: Ground, name: str) -> None:
    """What protects state never comes from less; the message says what to do."""
    with blocking(ground) as client:
        if ground.expected.gives(fencehold.CORRECTNESS) or ground.expected.backend == "fencehold":
            with client.lock(name, timeout=10) as hold:
                assert isinstance(hold, fencehold.Hold)
        else:
            with pytest.raises(Unsupported, match=r"tier=fencehold\.EFFICIENCY"):
                client.lock(name)
            claim = client.lock(name, tier=EFFICIENCY).acquire(timeout=0)
            assert claim is not None
            claim.release()


def test_a_hold_is_kept_alive(ground: Ground, name: str) -> None:
    """For far longer than the ttl of its client."""

    async def main() -> None:
        ttl = ground.ttl_min
        async with (
            connect(ground, ttl=ttl, grace=0.5) as one,
            connect(ground) as other,
            one.lock(name, tier=ground.tier) as hold,
        ):
            until_at = time.monotonic() + 2.5 * ttl
            while time.monotonic() < until_at:
                assert hold.safe_for() > 0
                assert await other.lock(name, tier=ground.tier, timeout=0).acquire() is None
                await asyncio.sleep(ttl / 10)

    asyncio.run(main())


def test_a_ttl_of_its_own_ends_a_hold(ground: Ground, name: str) -> None:
    """Its holder is told before anybody else can have it; its release changes nothing for the next one."""

    async def main() -> None:
        async with connect(ground) as one, connect(ground) as other:
            hold = await one.lock(name, tier=ground.tier, ttl=0.6).acquire()
            assert hold is not None
            next_one = await other.lock(name, tier=ground.tier, timeout=20).acquire()
            assert next_one is not None
            assert hold.safe_for() == 0
            await asyncio.wait_for(hold.lost.wait(), 20)
            with pytest.raises(HoldLost):
                await hold.release()
            with pytest.raises(HoldLost):
                hold.check()
            assert await one.lock(name, tier=ground.tier, timeout=0).acquire() is None
            await next_one.release()

    asyncio.run(main())


def test_extending_moves_the_end(ground: Ground, name: str) -> None:
    """A hold with a ttl lives on when it is extended, and ends when it is not."""

    async def main() -> None:
        async with connect(ground) as one, connect(ground) as other:
            hold = await one.lock(name, tier=ground.tier, ttl=1).acquire()
            assert hold is not None
            await hold.extend(3)
            assert 1 < hold.safe_for() <= 3
            assert await other.lock(name, tier=ground.tier, timeout=1.3).acquire() is None
            await hold.extend(0.4)
            next_one = await other.lock(name, tier=ground.tier, timeout=20).acquire()
            assert next_one is not None
            with pytest.raises(HoldLost):
                await hold.extend(3)
            await next_one.release()

    asyncio.run(main())


def test_a_hold_that_is_taken_away_is_lost(ground: Ground, name: str) -> None:
    """An operator frees the name; the body that runs under it is stopped."""

    async def main() -> None:
        ttl = ground.ttl_min
        async with connect(ground, ttl=ttl, grace=0.5) as one, connect(ground) as other:
            stopped = asyncio.Event()

            async def work() -> None:
                async with one.lock(name, tier=ground.tier):
                    working.set()
                    try:
                        await asyncio.Event().wait()
                    finally:
                        stopped.set()

            working = asyncio.Event()
            task = asyncio.create_task(work())
            await working.wait()
            await other.break_hold(name, tier=ground.tier)
            async with other.lock(name, tier=ground.tier, timeout=20):
                pass
            await asyncio.wait_for(stopped.wait(), 20)
            with pytest.raises(HoldLost):
                await task

    asyncio.run(main())


def test_what_a_crashed_process_held_is_free_in_the_time_declared(ground: Ground, name: str) -> None:
    """`kill -9`: nobody cleans up, and the name is to be had all the same."""
    if ground.expected.backend == "memory":
        # One process: what can die alone in it is a client. Its connection breaks, and it does not come back.
        asyncio.run(_dead_client(ground, name))
        return
    ttl = ground.ttl_min
    with blocking(ground, ttl=ttl, grace=min(1.0, ttl)) as client:
        lock = client.lock(name, tier=ground.tier, timeout=60)
        with crashing_holder(ground, name, ttl) as holder:
            assert lock.acquire(timeout=0) is None
            holder.kill()
            begun = time.monotonic()
            with lock:
                took_s = time.monotonic() - begun
    assert took_s <= lock.guarantees.frees_on_crash + ground.settle_s


async def _dead_client(ground: Ground, name: str) -> None:
    async with connect(ground) as one, connect(ground) as other:
        hold = await one.lock(name).acquire()
        assert hold is not None
        one._channel.protocol.unusable = "dead"
        one._channel.protocol._on_closed()
        one._channel.driver.act()
        begun = time.monotonic()
        async with other.lock(name, timeout=20):
            took_s = time.monotonic() - begun
    assert took_s <= other.guarantees.frees_on_crash + ground.settle_s


def test_closing_a_client_gives_everything_back(ground: Ground, new_name: Callable[[], str]) -> None:
    """At once, and not after a ttl; its holds are not trusted any more."""

    async def main() -> None:
        names = [new_name() for _ in range(5)]
        async with connect(ground) as other:
            async with connect(ground) as one:
                holds = [await one.lock(each, tier=ground.tier).acquire() for each in names]
            assert all(hold is not None and hold.safe_for() == 0 for hold in holds)
            for each in names:
                async with other.lock(each, tier=ground.tier, timeout=2):
                    pass

    asyncio.run(main())


def test_a_closed_client_says_so(ground: Ground, name: str) -> None:
    """Whatever is asked of it."""

    async def main() -> None:
        async with connect(ground) as client:
            lock = client.lock(name, tier=ground.tier)
        with pytest.raises(UsageError, match="closed"):
            await lock.acquire()

    asyncio.run(main())
    with blocking(ground) as client:
        lock = client.lock(name, tier=ground.tier)
    with pytest.raises(UsageError, match="closed"):
        lock.acquire()


def test_a_hold_that_was_forgotten_warns(ground: Ground, name: str) -> None:
    """It is not given back by being forgotten: whoever lost track of it may still work under it."""
    with blocking(ground) as client:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            client.lock(name, tier=ground.tier).acquire()
            gc.collect()
            assert any(issubclass(each.category, ResourceWarning) for each in caught)
        assert client.lock(name, tier=ground.tier).locked()


def test_nobody_there_is_said_in_time(ground: Ground) -> None:
    """Certainly nothing happened."""
    if ground.dead_url:
        begun = time.monotonic()
        with pytest.raises(Unavailable):
            fencehold.connect(ground.dead_url, connect_timeout=1.0)
        assert time.monotonic() - begun < 8
    else:
        # There is no server that could be missing.
        assert ground.expected.backend in ("memory", "sqlite")
