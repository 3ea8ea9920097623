"""What fails around `redis://`: what is kept then, and what, as declared, is not."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis.asyncio

from fencehold import EFFICIENCY, HoldLost, OutcomeUnknown, Unavailable, aio
from rig.redis import Clock, Redis, Watched
from tests.behaviour.asking import connect, until
from tests.behaviour.ground import Ground
from tests.behaviour.grounds.redis import GROUND as RedisGround
from tests.behaviour.resp_proxy import proxied
from tests.stopwatch import Stopwatch

GROUND = "redis"
HANGING_S = 5.0
"""One who waits first and hangs keeps the next from a free name for no longer, as the store says."""
SLACK_S = 1.0
"""What a machine that is busy may take besides."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Redis]:
    """A Redis of the test's own, to be killed."""
    with Redis(tmp_path) as server:
        yield server


def redis_of(ground: Ground) -> Redis:
    assert isinstance(ground, RedisGround)
    return ground.server


async def have(lock: "aio.Lock[aio.Claim]") -> aio.Claim:
    """Acquire what is to be had."""
    claim = await lock.acquire()
    assert claim is not None
    return claim


async def queued(client: aio.Client, name: str, count: int) -> None:
    async with asyncio.timeout(20):
        while (await client.explain(name, tier=EFFICIENCY)).waiter_count != count:
            await asyncio.sleep(0.005)


@contextmanager
def waiting_process(url: str, name: str) -> Iterator["subprocess.Popen[bytes]"]:
    """Another process that waits for a name."""
    words = [sys.executable, "-m", "tests.behaviour.holder", url, name, EFFICIENCY.value, "30"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _is_stopped(pid: int) -> bool:
    """Whether no thread of a process runs any more."""
    states = [each.read_text().rpartition(")")[2].split()[0] for each in Path(f"/proc/{pid}/task").glob("*/stat")]
    return set(states) == {"T"}


async def test_a_redis_that_comes_back_empty_has_lost_a_hold_and_its_holder_is_told(server: Redis) -> None:
    """Not linearizable, as declared: another has the name at once. The holder is told at its next renewal."""
    async with aio.connect(server.url, ttl=3) as one, aio.connect(server.url, ttl=3) as other:
        hold = await have(one.lock("n", tier=EFFICIENCY))
        server.restart()
        next_one = await have(other.lock("n", tier=EFFICIENCY, timeout=10))
        await asyncio.wait_for(hold.lost.wait(), 20)
        with pytest.raises(HoldLost, match="expired, or was force-released"):
            hold.check()
        assert next_one.safe_for() > 0
        await next_one.release()


async def test_those_who_wait_outlast_a_restart(server: Redis) -> None:
    """Nobody asks again: each of them is granted in the end, and none twice."""
    async with aio.connect(server.url) as one, aio.connect(server.url) as other:
        hold = await have(one.lock("n", tier=EFFICIENCY, ttl=60))
        inside = most = 0

        async def wait() -> None:
            nonlocal inside, most
            async with other.lock("n", tier=EFFICIENCY):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0.01)
                inside -= 1

        tasks = [asyncio.create_task(wait()) for _ in range(5)]
        await queued(one, "n", 5)
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(server.start)
        await asyncio.wait_for(asyncio.gather(*tasks), 10)
        assert most == 1
        with pytest.raises(HoldLost):
            await hold.release()


async def test_a_redis_that_hangs_ends_the_trust_in_a_hold_in_time(server: Redis) -> None:
    """The client stops trusting first: before the ttl is over, though nobody tells it anything."""
    async with aio.connect(server.url, ttl=1, connect_timeout=2) as client:
        hold = await have(client.lock("n", tier=EFFICIENCY))
        server.pause()
        try:
            assert hold.safe_for() < 1
            watch = Stopwatch()
            await hold.lost.wait()
            assert watch.passed_s < 1 + SLACK_S
            with pytest.raises((OutcomeUnknown, Unavailable)):
                await client.lock("m", tier=EFFICIENCY, timeout=0).acquire()
        finally:
            server.resume()
        for name in ("n", "m"):
            async with client.lock(name, tier=EFFICIENCY, timeout=10):
                pass


async def test_a_sentinel_failover_is_followed_and_what_was_lost_is_told(tmp_path: Path) -> None:
    """The client finds the new master by itself. What its master had not replicated is lost, as declared."""
    with Watched(tmp_path) as watched:
        async with aio.connect(watched.url, ttl=4, connect_timeout=20) as client:
            kept = await have(client.lock("kept", tier=EFFICIENCY))
            old = watched.master
            await asyncio.to_thread(_cut_off, watched, old)
            hold = await have(client.lock("not replicated", tier=EFFICIENCY))
            await asyncio.to_thread(old.kill)
            new = await asyncio.to_thread(watched.await_other_master, old)
            async with client.lock("new", tier=EFFICIENCY, timeout=20):
                assert "new" in new.all_keys()
            await asyncio.wait_for(hold.lost.wait(), 10)
            with pytest.raises(HoldLost):
                await hold.release()
            # What was replicated may have outlived its master, if it was renewed in time; if not, that is told.
            assert kept.safe_for() > 0 or kept.lost.is_set()


async def test_a_planned_failover_is_followed(tmp_path: Path) -> None:
    """The old master lives on as a replica, and takes no writes as soon as it is told: the client goes on."""
    with Watched(tmp_path) as watched:
        async with aio.connect(watched.url, ttl=4, connect_timeout=20) as client:
            hold = await have(client.lock("kept", tier=EFFICIENCY))
            old = watched.master
            await asyncio.to_thread(watched.fail_over)
            new = await asyncio.to_thread(watched.await_other_master, old)
            await asyncio.to_thread(watched.await_replica, old)
            async with client.lock("new", tier=EFFICIENCY, timeout=20):
                assert "new" in new.all_keys()
            # It was replicated in time, or not, which is told: nothing is promised.
            assert hold.safe_for() > 0 or hold.lost.is_set()


def _cut_off(watched: Watched, master: Redis) -> None:
    """Have the replica not hear of what is set from now on."""
    replica = next(server for server in watched.servers if server is not master)
    replica.ask("CLIENT", "KILL", "TYPE", "master")
    replica.ask("CONFIG", "SET", "masterauth", "cut off")
    replica.ask("CLIENT", "KILL", "TYPE", "master")
    master.ask("CONFIG", "SET", "requirepass", "")


async def test_a_sentinel_that_hangs_does_not_keep_a_client_from_the_master(tmp_path: Path) -> None:
    """The others are asked in time."""
    with Watched(tmp_path) as watched:
        watched.pause_sentinel()
        try:
            async with aio.connect(watched.url, connect_timeout=6) as client, client.lock("n", tier=EFFICIENCY):
                pass
        finally:
            watched.resume_sentinel()


async def test_a_clock_set_forward_frees_what_is_held_and_its_holder_is_told(tmp_path: Path) -> None:
    """The clock of the server is trusted, as declared: set forward, it lets two hold a name for a while."""
    clock = Clock(tmp_path / "clock")

    with Redis(tmp_path, env=clock.env) as server:
        async with aio.connect(server.url, ttl=6) as one, aio.connect(server.url) as other:
            hold = await have(one.lock("n", tier=EFFICIENCY))
            assert await other.lock("n", tier=EFFICIENCY, timeout=0).acquire() is None
            clock.set_forward(3600)
            async with other.lock("n", tier=EFFICIENCY, timeout=5):
                assert hold.safe_for() > 0
                await asyncio.wait_for(hold.lost.wait(), 20)
            with pytest.raises(HoldLost):
                await hold.release()


async def test_an_answer_that_is_lost_is_found_out_by_asking_again(ground: Ground, name: str) -> None:
    """The same token asks: the grant is the one that was made, nobody has it twice, and nothing stays behind."""
    server = redis_of(ground)
    async with (
        proxied(server.port) as proxy,
        aio.connect(proxy.url) as client,
        connect(ground) as other,
    ):
        proxy.to_lose = 1
        hold = await have(client.lock(name, tier=EFFICIENCY, timeout=10))
        assert proxy.lost == 1
        assert await other.lock(name, tier=EFFICIENCY, timeout=0).acquire() is None
        await hold.release()
        async with other.lock(name, tier=EFFICIENCY, timeout=0):
            pass


async def test_a_release_whose_answer_is_lost_says_that_it_does_not_know(ground: Ground, name: str) -> None:
    """It has happened all the same, and the next one has the name."""
    server = redis_of(ground)
    async with proxied(server.port) as proxy, aio.connect(proxy.url) as client, connect(ground) as other:
        hold = await have(client.lock(name, tier=EFFICIENCY))
        proxy.to_lose = 1
        with pytest.raises(OutcomeUnknown):
            await hold.release()
        async with other.lock(name, tier=EFFICIENCY, timeout=2):
            pass


async def test_a_try_whose_answer_is_lost_leaves_nothing_behind(ground: Ground, name: str) -> None:
    """It does not wait, and does not know: what it may have had is given back."""
    server = redis_of(ground)
    async with proxied(server.port) as proxy, aio.connect(proxy.url) as client, connect(ground) as other:
        proxy.to_lose = 1
        with pytest.raises(OutcomeUnknown):
            await client.lock(name, tier=EFFICIENCY, timeout=0).acquire()
        async with other.lock(name, tier=EFFICIENCY, timeout=2):
            pass


async def test_two_hundred_who_are_cancelled_at_once_leave_no_keys(server: Redis) -> None:
    """Neither of the queue nor of the name: what is free costs nothing."""
    async with aio.connect(server.url) as one, aio.connect(server.url) as other:
        hold = await have(one.lock("n", tier=EFFICIENCY))
        tasks = [
            asyncio.create_task((one, other)[each % 2].lock("n", tier=EFFICIENCY).acquire()) for each in range(200)
        ]
        await queued(one, "n", 200)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await hold.release()
        await until(lambda: server.all_keys() == [], 20)


async def test_what_is_held_or_waited_for_expires_by_itself(server: Redis) -> None:
    """Of every key: whoever dies leaves nothing for ever."""
    async with aio.connect(server.url) as one:
        semaphore = one.semaphore("s", 2, tier=EFFICIENCY)
        holds = [await have(each) for each in (one.lock("n", tier=EFFICIENCY), semaphore, semaphore)]
        tasks = [
            asyncio.create_task(one.lock("n", tier=EFFICIENCY).acquire()),
            asyncio.create_task(one.semaphore("s", 2, tier=EFFICIENCY).acquire()),
        ]
        await queued(one, "n", 1)
        await queued(one, "s", 1)
        left_ms = {key: server.ask("PTTL", key) for key in server.all_keys()}
        assert len(left_ms) == 7
        assert all(isinstance(left, int) and 0 < left <= 30_000 for left in left_ms.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert all(hold.safe_for() == 0 for hold in holds)
    await until(lambda: server.all_keys() == [], 20)


@pytest.mark.parametrize(("is_killed", "at_most_s"), [(True, 0.0), (False, HANGING_S)])
async def test_the_first_who_waits_holds_up_the_next_for_a_few_seconds_only(
    ground: Ground, name: str, is_killed: bool, at_most_s: float
) -> None:
    """Not at all if its process was killed; if it hangs, for the time that the store says."""
    async with connect(ground) as one, connect(ground) as other:
        hold = await have(one.lock(name, tier=EFFICIENCY))
        with waiting_process(ground.url, name) as process:
            await queued(one, name, 1)
            next_one = asyncio.create_task(have(other.lock(name, tier=EFFICIENCY)))
            await queued(one, name, 2)
            process.send_signal(9 if is_killed else 19)
            if is_killed:
                process.wait()
            else:
                await until(lambda: _is_stopped(process.pid), 20)
            # What it had sent before has been answered after this: it could be granted the name else.
            await one.explain(name, tier=EFFICIENCY)
            watch = Stopwatch()
            await hold.release()
            claim = await asyncio.wait_for(next_one, 20)
            assert watch.passed_s < at_most_s + SLACK_S
            await claim.release()


async def test_locks_of_redis_py_and_ours_exclude_one_another(ground: Ground, name: str) -> None:
    """The key is the name, for both; and who waits here has it soon after it was freed there."""
    async with connect(ground) as ours, redis.asyncio.Redis(port=redis_of(ground).port) as client:
        theirs = client.lock(name, timeout=30, blocking=False)
        lock = ours.lock(name, tier=EFFICIENCY, timeout=0)
        async with lock:
            assert not await theirs.acquire()
        assert await theirs.acquire()
        assert await lock.acquire() is None
        seen = await ours.explain(name, tier=EFFICIENCY)
        assert [(holder.party.pid, holder.fence) for holder in seen.holders] == [(0, 0)]
        waiting = asyncio.create_task(have(ours.lock(name, tier=EFFICIENCY)))
        await queued(ours, name, 1)
        await theirs.release()
        watch = Stopwatch()
        claim = await waiting
        assert watch.passed_s < 0.1 + SLACK_S
        await claim.release()


async def test_who_lost_its_connection_keeps_its_place(ground: Ground, name: str) -> None:
    """Fair, as declared, also when a network fails for a moment."""
    order: list[str] = []

    async def wait(client: aio.Client, who: str) -> None:
        async with client.lock(name, tier=EFFICIENCY):
            order.append(who)

    async with (
        connect(ground) as one,
        proxied(redis_of(ground).port) as proxy,
        aio.connect(proxy.url) as other,
    ):
        hold = await have(one.lock(name, tier=EFFICIENCY))
        tasks = [asyncio.create_task(wait(other, "first"))]
        await queued(one, name, 1)
        tasks.append(asyncio.create_task(wait(one, "second")))
        await queued(one, name, 2)
        await proxy.end()
        await other.explain(name, tier=EFFICIENCY)
        await hold.release()
        await asyncio.wait_for(asyncio.gather(*tasks), 10)
    assert order == ["first", "second"]
