"""What fails around `redlock://`: a minority may, and what happens when it is more."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest
import redis.asyncio

from fencehold import EFFICIENCY, HoldLost, OutcomeUnknown, PermissionDenied, Unavailable, aio
from rig.redis import Redis, Several
from tests.behaviour.asking import until
from tests.stopwatch import Stopwatch

NODE_S = 0.3
"""What a node may take to answer, where some do not."""
AMPLE_S = 5.0
"""The same, where all answer: a busy machine must not make a minority late."""
SLACK_S = 1.0
"""What a machine that is busy may take besides."""


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Several]:
    """Five Redises of the test's own, to be killed."""
    with Several(tmp_path, 5) as nodes:
        yield nodes


@asynccontextmanager
async def connected(nodes: Several, ttl: float = 30, node_s: float = AMPLE_S) -> AsyncIterator[aio.Client]:
    url = f"redlock://{nodes.endpoints}?node_timeout={node_s}"
    async with aio.connect(url, ttl=ttl, connect_timeout=3) as client:
        yield client


async def have(lock: "aio.Lock[aio.Claim]") -> aio.Claim:
    """Acquire what is to be had."""
    claim = await lock.acquire()
    assert claim is not None
    return claim


async def have_in_all(lock: "aio.Lock[aio.Claim]", nodes: Several) -> aio.Claim:
    """Acquire what is to be had, and in all of them: those are left out that are not connected to yet."""
    async with asyncio.timeout(20):
        while True:
            claim = await have(lock)
            if having(nodes.servers, lock.name) == len(nodes.servers):
                return claim
            await claim.release()


async def reached(client: aio.Client) -> None:
    """Wait until a majority answers a client again: the first to ask finds connections that are gone."""
    async with asyncio.timeout(20):
        while True:
            try:
                await client.explain("n", tier=EFFICIENCY)
                return
            except (Unavailable, OutcomeUnknown):
                await asyncio.sleep(0.01)


def having(servers: list[Redis], name: str) -> int:
    """How many have a key of that name."""
    return sum(name in server.all_keys() for server in servers)


def looks(server: Redis) -> int:
    """How often scripts have looked who has a name."""
    stats = cast(dict[str, dict[str, int]], server.ask("INFO", "commandstats"))
    return stats["cmdstat_get"]["calls"]


async def test_without_one_of_five_all_goes_on(nodes: Several) -> None:
    """A minority may be lost, also while something is held: it is renewed, excludes others, and is given back."""
    async with connected(nodes, ttl=2, node_s=NODE_S) as one, connected(nodes) as other:
        hold = await have_in_all(one.lock("n", tier=EFFICIENCY), nodes)
        nodes.servers[0].kill()
        until_at = time.monotonic() + 3
        while time.monotonic() < until_at:
            assert hold.safe_for() > 0
            assert await other.lock("n", tier=EFFICIENCY, timeout=0).acquire() is None
            await asyncio.sleep(0.1)
        await hold.release()
        async with other.lock("n", tier=EFFICIENCY, timeout=5):
            assert having(nodes.servers[1:], "n") >= 3
    async with connected(nodes) as client, client.lock("new", tier=EFFICIENCY, timeout=5):
        pass


async def test_without_three_of_five_nothing_is_granted_and_nothing_is_left(nodes: Several) -> None:
    """It is refused in bounded time. Certainly nothing is held, in the two that are left, either."""
    async with connected(nodes, node_s=NODE_S) as client:
        for server in nodes.servers[:3]:
            server.kill()
        watch = Stopwatch()
        with pytest.raises((Unavailable, OutcomeUnknown)):
            await client.lock("n", tier=EFFICIENCY, timeout=30).acquire()
        assert watch.passed_s < 3 + 2 * NODE_S + SLACK_S
        await until(lambda: having(nodes.servers[3:], "n") == 0, 20)
        with pytest.raises(Unavailable, match="3 are needed"):
            await client.lock("n", tier=EFFICIENCY, timeout=0).acquire()
        await until(lambda: having(nodes.servers[3:], "n") == 0, 20)
        with pytest.raises(Unavailable):
            await client.explain("n", tier=EFFICIENCY)
    for server in nodes.servers[:3]:
        server.start()
    async with connected(nodes) as client, client.lock("n", tier=EFFICIENCY, timeout=10):
        pass


async def test_a_hold_without_a_majority_is_lost_before_its_ttl_is_over(nodes: Several) -> None:
    """The client stops trusting first: nobody can tell it whether others have it."""
    async with connected(nodes, ttl=1, node_s=NODE_S) as client:
        hold = await have(client.lock("n", tier=EFFICIENCY))
        for server in nodes.servers[:3]:
            server.pause()
        try:
            assert hold.safe_for() < 1
            await asyncio.wait_for(hold.lost.wait(), 1 + SLACK_S)
        finally:
            for server in nodes.servers[:3]:
                server.resume()


@pytest.mark.parametrize("hanging", [1, 2])
async def test_those_that_hang_cost_no_more_than_their_time(nodes: Several, hanging: int) -> None:
    """A minority of them costs nothing, as nobody waits for it; a look waits for all, for as long as was said."""
    async with connected(nodes, node_s=NODE_S) as one, connected(nodes, node_s=NODE_S) as other:
        for server in nodes.servers[:hanging]:
            server.pause()
        took_s = []
        try:
            for _ in range(3):
                watch = Stopwatch()
                hold = await have(one.lock("n", tier=EFFICIENCY))
                took_s.append(watch.passed_s)
                assert await other.lock("n", tier=EFFICIENCY, timeout=0).acquire() is None
                seen = await other.explain("n", tier=EFFICIENCY)
                assert len(seen.holders) == 1
                await hold.release()
                assert watch.passed_s < 3 * NODE_S + SLACK_S
        finally:
            for server in nodes.servers[:hanging]:
                server.resume()
        assert min(took_s) < NODE_S
        # What they were sent while they hung is done in its order: nothing stays.
        await until(lambda: having(nodes.servers, "n") == 0, 20)


async def test_nodes_that_come_back_empty_may_let_two_hold_a_name(nodes: Several) -> None:
    """It does not survive this, as declared: a majority that forgot has it free. The first holder is told."""
    async with connected(nodes, ttl=3, node_s=NODE_S) as one, connected(nodes) as other:
        hold = await have(one.lock("n", tier=EFFICIENCY))
        for server in nodes.servers[:3]:
            server.restart()
        await reached(other)
        async with other.lock("n", tier=EFFICIENCY, timeout=20):
            await asyncio.wait_for(hold.lost.wait(), 20)
            with pytest.raises(HoldLost):
                hold.check()


async def test_a_crash_in_the_middle_leaves_a_name_free_after_the_ttl(nodes: Several) -> None:
    """Some nodes have a key of an attempt that nobody took back: two of five keep nobody from the name."""
    for server in nodes.servers[:2]:
        server.ask("SET", "n", "of one who is gone", "PX", 30_000)
    async with connected(nodes) as client, client.lock("n", tier=EFFICIENCY, timeout=0):
        pass
    nodes.servers[2].ask("SET", "n", "of one who is gone", "PX", 500)
    async with connected(nodes) as client:
        assert await client.lock("n", tier=EFFICIENCY, timeout=0).acquire() is None
        await until(lambda: having(nodes.servers[3:], "n") == 0, 20)
        async with client.lock("n", tier=EFFICIENCY, timeout=5):
            pass


async def test_a_user_with_the_rights_that_the_page_names_can_lock(nodes: Several) -> None:
    """And nothing else; what it may not do, it is told."""
    rights = ["~job:*", "+@connection", "+@read", "+@write", "+eval", "+evalsha", "+time"]
    for server in nodes.servers:
        server.ask("ACL", "SETUSER", "locker", "on", ">right", *rights)

    async with aio.connect(f"redlock://locker:right@{nodes.endpoints}") as client:
        async with client.lock("job:1", tier=EFFICIENCY, timeout=5):
            assert (await client.explain("job:1", tier=EFFICIENCY)).holders
        with pytest.raises(PermissionDenied):
            await client.lock("other", tier=EFFICIENCY, timeout=0).acquire()
    with pytest.raises(PermissionDenied, match="check user and password"):
        async with aio.connect(f"redlock://locker:wrong@{nodes.endpoints}"):
            pass


async def test_many_who_contend_from_two_clients_split_no_vote_for_long(nodes: Several) -> None:
    """Nobody has a name together with another; and all have it in the end."""
    inside = most = done = 0

    async def work(client: aio.Client) -> None:
        nonlocal inside, most, done
        for _ in range(3):
            async with client.lock("n", tier=EFFICIENCY, timeout=60):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1
                done += 1

    async with connected(nodes) as one, connected(nodes) as other, connected(nodes) as third:
        await asyncio.gather(*(work((one, other, third)[each % 3]) for each in range(12)))
    assert (most, done) == (1, 36)
    await until(lambda: having(nodes.servers, "n") == 0, 20)


async def test_two_hundred_who_are_cancelled_at_once_leave_no_keys(nodes: Several) -> None:
    """In none of the nodes."""
    async with connected(nodes) as one, connected(nodes) as other:
        hold = await have(one.lock("n", tier=EFFICIENCY))
        locks = [client.lock("n", tier=EFFICIENCY) for client in (one, other)]
        looked = looks(nodes.servers[0])
        tasks = [asyncio.create_task(locks[each % 2].acquire()) for each in range(200)]
        # Each attempt, and each that takes it back, looks once.
        await until(lambda: looks(nodes.servers[0]) >= looked + 4, 20)
        await hold.release()
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, aio.Claim):
                await outcome.release()
        await until(lambda: having(nodes.servers, "n") == 0, 20)


async def test_locks_of_redis_py_on_a_majority_exclude_ours(nodes: Several) -> None:
    """The key is the name: other libraries that do the same on the same nodes are excluded, and exclude us."""
    async with connected(nodes) as client:
        clients = [redis.asyncio.Redis(port=server.port) for server in nodes.servers[:3]]
        theirs = [each.lock("n", timeout=30, blocking=False) for each in clients]
        async with client.lock("n", tier=EFFICIENCY):
            # We have it in three at least, of whatever five: three others that are free there are not.
            got = [lock for lock in theirs if await lock.acquire()]
            assert len(got) < len(theirs)
            for lock in got:
                await lock.release()
        await until(lambda: having(nodes.servers, "n") == 0, 20)
        assert [await each.acquire() for each in theirs].count(True) == 3
        assert await client.lock("n", tier=EFFICIENCY, timeout=0).acquire() is None
        for lock in theirs:
            await lock.release()
        for each in clients:
            await each.aclose()
