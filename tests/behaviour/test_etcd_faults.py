"""`etcd://` while leases end, clients hang, replies are lost and members die: what is declared is kept."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, cast

import pytest

from fencehold import HoldLost, OutcomeUnknown, Unavailable, UsageError, aio
from fencehold.backends.etcd import EtcdBackend
from fencehold.backends.etcd.queues import LockKeys, is_tombstone
from fencehold.backends.port import Ask, Settings
from fencehold.drivers.etcd import messages
from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.drivers.etcd.client import EtcdBounds, EtcdClient
from fencehold.drivers.etcd.http2.status import CallFailed
from fencehold.drivers.http2.codes import Code
from fencehold.locks.terms import Terms
from rig.etcd import EtcdCluster
from tests.behaviour.asking import connect, until
from tests.behaviour.ground import Ground
from tests.stopwatch import Stopwatch
from tests.unit.drivers.etcd.between import Between, GoOn

GROUND = "etcd"
TTL_S = 2.0
SOON_S = 1.0
"""Far less than a third of 30 s, when a client that was told nothing would find out."""


@pytest.fixture
def etcd(ground: Ground) -> Iterator[EtcdCluster]:
    members = cast(Any, ground).members
    yield members
    members.restore()


class Raw:
    """What is in etcd, looked at and spoilt by hand."""

    def __init__(self, cluster: EtcdClient, prefix: str) -> None:
        self.cluster = cluster
        self._keys = LockKeys(prefix)

    async def queue(self, name: str) -> list[Any]:
        """All keys of a name, first come first."""
        start, end = self._keys.queue(name)
        found = (await self.cluster.read(messages.RangeRequest(key=start, range_end=end))).kvs
        return sorted(found, key=lambda pair: pair.create_revision)

    async def queued(self, name: str, count: int) -> list[Any]:
        """The keys of a name, when there are so many."""
        async with asyncio.timeout(20):
            while len(found := await self.queue(name)) != count:
                await asyncio.sleep(0.01)
        return found


@asynccontextmanager
async def raw(ground: Ground) -> AsyncIterator[Raw]:
    address = EtcdAddress.parse(ground.url)
    cluster = EtcdClient(address, EtcdBounds(call_s=60.0))
    try:
        yield Raw(cluster, address.prefix)
    finally:
        await cluster.close()


async def held(client: aio.Client, name: str, **options: Any) -> aio.Hold:
    hold = await client.lock(name, **options).acquire()
    assert isinstance(hold, aio.Hold)
    return hold


async def test_a_lease_that_is_revoked_is_told_at_once(ground: Ground, name: str) -> None:
    """Fenced, linearizable: the next one has a greater fence, and the release of what was lost says so."""
    async with connect(ground) as one, connect(ground) as other, raw(ground) as etcd:
        hold = await held(one, name)
        waiting = asyncio.create_task(held(other, name))
        (first, _) = await etcd.queued(name, 2)
        await etcd.cluster.revoke_lease(first.lease)
        next_one = await asyncio.wait_for(waiting, 10)
        assert next_one.fence > hold.fence
        watch = Stopwatch()
        await hold.lost.wait()
        assert watch.passed_s < SOON_S
        with pytest.raises(HoldLost, match="revoked"):
            await hold.release()
        # What is asked later has another lease, and waits like anybody else.
        assert await one.lock(name, timeout=0).acquire() is None
        await next_one.release()
        async with one.lock(name, timeout=10) as again:
            assert again.fence > next_one.fence


async def test_a_waiter_whose_lease_was_revoked_is_not_granted_on_it(ground: Ground, name: str) -> None:
    """Fair and linearizable: it asks again, at the end of the queue, under a lease that is there."""
    async with connect(ground) as one, connect(ground) as other, connect(ground) as third, raw(ground) as etcd:
        hold = await held(one, name)
        waiting = asyncio.create_task(held(other, name))
        (_, before) = await etcd.queued(name, 2)
        behind = asyncio.create_task(held(third, name))
        await etcd.queued(name, 3)
        await etcd.cluster.revoke_lease(before.lease)
        async with asyncio.timeout(10):
            while not (
                (found := await etcd.queue(name))[-1].lease not in (before.lease, found[1].lease)
                and len(found) == 3
            ):
                await asyncio.sleep(0.01)
        assert not waiting.done()
        await hold.release()
        second = await asyncio.wait_for(behind, 10)
        assert not waiting.done()
        await second.release()
        last = await asyncio.wait_for(waiting, 10)
        assert last.fence == found[-1].create_revision > second.fence
        await last.release()


@contextmanager
def worker(ground: Ground, name: str) -> "Iterator[subprocess.Popen[str]]":
    words = [sys.executable, "-m", "tests.behaviour.etcd_worker", ground.url, name, str(TTL_S)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def test_a_client_that_slept_finds_its_hold_lost(ground: Ground, name: str) -> None:
    """Linearizable: it does nothing under it, though nobody could tell it while it slept."""
    with worker(ground, name) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        fence = int((await asyncio.to_thread(process.stdout.readline)).split()[1])
        process.stdin.write("work\n")
        process.stdin.flush()
        assert process.stdout.readline() == "worked\n"
        process.send_signal(signal.SIGSTOP)
        process.stdin.write("work\n")
        process.stdin.flush()
        async with connect(ground) as client, client.lock(name, timeout=30) as hold:
            assert hold.fence > fence
            process.send_signal(signal.SIGCONT)
            assert await asyncio.to_thread(process.stdout.readline) == "lost\n"
            assert (await asyncio.to_thread(process.stdout.readline)).startswith("was lost: ")
            hold.check()
            async with raw(ground) as etcd:
                assert len(await etcd.queue(name)) == 1


async def test_a_hold_survives_the_leader_of_etcd(
    ground: Ground, etcd: EtcdCluster, new_name: Callable[[], str]
) -> None:
    """Survives failover: what is held stays held, who waits is granted, and others ask as before."""
    async with connect(ground, ttl=5) as one, connect(ground, ttl=5) as other:
        kept, awaited = new_name(), new_name()
        hold, holder = await held(one, kept), await held(one, awaited)
        waiting = asyncio.create_task(held(other, awaited))
        async with raw(ground) as seen:
            await seen.queued(awaited, 2)
        await asyncio.to_thread(etcd.kill_leader)
        begun = time.monotonic()
        async with other.lock(new_name(), timeout=10) as later:
            assert later.fence > hold.fence
        assert time.monotonic() - begun < 10
        await holder.release()
        next_one = await asyncio.wait_for(waiting, 10)
        assert next_one.fence > holder.fence
        await next_one.release()
        while time.monotonic() - begun < 7:
            assert hold.safe_for() > 0
            assert await other.lock(kept, timeout=0).acquire() is None
            await asyncio.sleep(0.1)
        await hold.release()


async def test_a_leader_that_hangs_is_left(ground: Ground, etcd: EtcdCluster, new_name: Callable[[], str]) -> None:
    """Survives failover: one that accepts connections and says nothing costs a moment, and its return nothing."""
    async with connect(ground, ttl=5) as one, connect(ground, ttl=5) as other:
        kept, awaited = new_name(), new_name()
        hold, holder = await held(one, kept), await held(one, awaited)
        waiting = asyncio.create_task(held(other, awaited))
        async with raw(ground) as seen:
            await seen.queued(awaited, 2)
        leader = await asyncio.to_thread(etcd.leader)
        etcd.pause(leader)
        await holder.release()
        next_one = await asyncio.wait_for(waiting, 20)
        assert next_one.fence > holder.fence
        await next_one.release()
        etcd.resume(leader)
        assert hold.safe_for() > 0
        assert await other.lock(kept, timeout=0).acquire() is None
        await hold.release()


async def test_without_a_majority_nothing_is_granted_and_trust_runs_out(
    ground: Ground, etcd: EtcdCluster, new_name: Callable[[], str]
) -> None:
    """Linearizable: every call ends in time as refused or unknown, the holder is told; then all goes on."""
    name = new_name()
    async with aio.connect(ground.url, ttl=TTL_S, connect_timeout=3) as client:
        hold = await held(client, name)
        for index in (0, 1):
            etcd.kill(index)
        watch = Stopwatch()
        with pytest.raises((Unavailable, OutcomeUnknown)):
            await client.lock(new_name(), timeout=0).acquire()
        assert watch.passed_s < 8
        watch = Stopwatch()
        await hold.lost.wait()
        assert watch.passed_s < TTL_S + SOON_S
        with pytest.raises(HoldLost, match="in time"):
            await hold.release()
        with pytest.raises((Unavailable, OutcomeUnknown)):
            await client.lock(name, timeout=0).acquire()
        # On this thread: a member ends with the thread that started it.
        etcd.restore()
        async with client.lock(name, timeout=20) as again:
            assert again.fence > hold.fence


class Middle(Between):
    """Makes transactions that ask for a name go wrong: a word for each to come; others pass.

    `lose` loses the reply, `hold` the request until it is sent `late`, and `pause` runs `paused` before the reply.
    """

    def __init__(self) -> None:
        self.plan: list[str] = []
        self.late: list[Callable[[], Any]] = []
        self.paused: Callable[[], Any] = lambda: None

    async def on_call(self, path: str, request: Any, go_on: GoOn) -> Any:
        if not _is_ask(path, request) or not self.plan:
            return await go_on()
        word = self.plan.pop(0)
        if word == "pause":
            reply = await go_on()
            await self.paused()
            return reply
        if word == "hold":
            self.late.append(lambda: go_on(timeout=5.0))
        else:
            await go_on()
        raise CallFailed(Code.UNAVAILABLE, "it hung up")


def _is_ask(path: str, request: Any) -> bool:
    is_txn = path == "/etcdserverpb.KV/Txn"
    return is_txn and any(b"/locks/" in each.request_put.key for each in request.success)


@asynccontextmanager
async def behind(
    middle: Middle, ground: Ground, ttl: float = TTL_S, patience_s: float = 2.0
) -> AsyncIterator[EtcdBackend]:
    backend = EtcdBackend(EtcdAddress.parse(ground.url), Settings(ttl, patience_s), connect=middle.connect)
    await backend.open()
    try:
        yield backend
    finally:
        await backend.close()


def ask_for(name: str, token: str = "token", **options: Any) -> Ask:
    return Ask(Terms((name,), **options), token, "tester")


@pytest.mark.parametrize("options", [{"timeout": 0}, {"timeout": 5}, {"timeout": 0, "limit": 2}])
async def test_a_lost_reply_is_settled(ground: Ground, name: str, options: dict[str, Any]) -> None:
    """What was granted is found again, once, and its release leaves nothing."""
    middle = Middle()
    async with behind(middle, ground) as backend, raw(ground) as etcd:
        middle.plan = ["lose", "lose"]
        lease = await backend.acquire(ask_for(name, **options))
        assert lease is not None
        (key,) = await etcd.queue(name)
        assert lease.fence == key.create_revision
        await backend.release(lease)
        assert await etcd.queue(name) == []


async def test_a_lost_reply_in_the_queue_keeps_the_place(ground: Ground, new_name: Callable[[], str]) -> None:
    """The same ask sent twice stands once, where it stood first."""
    name, middle = new_name(), Middle()
    async with behind(middle, ground) as backend, connect(ground) as other, raw(ground) as etcd:
        hold = await held(other, name)
        middle.plan = ["lose"]
        waiting = asyncio.create_task(backend.acquire(ask_for(name)))
        (_, key) = await etcd.queued(name, 2)
        later = asyncio.create_task(held(other, name))
        await etcd.queued(name, 3)
        await hold.release()
        lease = await asyncio.wait_for(waiting, 10)
        assert lease is not None
        assert lease.fence == key.create_revision
        await backend.release(lease)
        await (await later).release()


async def test_when_no_reply_gets_through_nothing_is_left(ground: Ground, name: str) -> None:
    """The outcome is unknown, and what there was is withdrawn."""
    middle = Middle()
    async with behind(middle, ground) as backend, raw(ground) as etcd:
        middle.plan = ["lose"] * 1_000
        with pytest.raises(OutcomeUnknown):
            await backend.acquire(ask_for(name))
        middle.plan = []
        await etcd.queued(name, 0)


async def test_a_request_that_comes_after_the_release_is_swept_away(ground: Ground, name: str) -> None:
    """Nothing is left for longer than the ttl, though the client that sent it lives on."""
    middle = Middle()
    async with behind(middle, ground) as backend, raw(ground) as etcd:
        middle.plan = ["hold"]
        lease = await backend.acquire(ask_for(name))
        assert lease is not None
        await backend.release(lease)
        await middle.late[0]()
        assert len(await etcd.queue(name)) == 1
        begun = time.monotonic()
        await etcd.queued(name, 0)
        assert time.monotonic() - begun < TTL_S
        lease = await backend.acquire(ask_for(name, "another", timeout=0))
        assert lease is not None
        assert not lease.ending


KEEPING: dict[str, Any] = {"ttl": 60, "at_least": 30}


@pytest.mark.parametrize("timeout", [0, 5])
async def test_a_lost_reply_is_settled_where_a_name_is_kept(ground: Ground, name: str, timeout: float) -> None:
    """It is had once, and after its release the tombstone stands alone, where nobody who comes gets past it."""
    middle = Middle()
    async with behind(middle, ground) as backend, raw(ground) as etcd:
        middle.plan = ["lose"]
        lease = await backend.acquire(ask_for(name, timeout=timeout, **KEEPING))
        assert lease is not None
        assert [each.create_revision for each in await etcd.queue(name)] == [lease.fence] * 2
        await backend.release(lease)
        (left,) = await etcd.queue(name)
        assert is_tombstone(left.key)
        assert await backend.acquire(ask_for(name, "another", timeout=0)) is None
        assert await backend.break_hold(name, 0) > lease.fence
        assert await etcd.queue(name) == []


async def test_a_request_that_comes_late_ends_no_least_time(ground: Ground, name: str) -> None:
    """The first asking arrives when the name is kept: it leaves the tombstone on the lease that it is on."""
    middle = Middle()
    async with behind(middle, ground) as backend, raw(ground) as etcd:
        middle.plan = ["hold"]
        lease = await backend.acquire(ask_for(name, timeout=5, **KEEPING))
        assert lease is not None
        before = {each.key: each.lease for each in await etcd.queue(name)}
        await middle.late[0]()
        assert {each.key: each.lease for each in await etcd.queue(name)} == before
        assert len(set(before.values())) == 2
        await backend.release(lease)
        await middle.late[0]()
        assert [is_tombstone(each.key) for each in await etcd.queue(name)] == [True]
        await backend.break_hold(name, 0)


async def test_an_ask_that_is_given_up_keeps_nothing(ground: Ground, name: str) -> None:
    """Neither while it waits nor when its outcome is unknown; nor does one that an operator takes away."""
    middle = Middle()
    # With patience: a call that is given up is made again, and would enter again what is deleted here.
    async with behind(Middle(), ground, patience_s=30.0) as backend, connect(ground) as other, raw(ground) as etcd:
        hold = await held(other, name)
        waiting = asyncio.create_task(backend.acquire(ask_for(name, **KEEPING)))
        await etcd.queued(name, 3)
        waiting.cancel()
        await etcd.queued(name, 1)
        deleted = asyncio.create_task(backend.acquire(ask_for(name, "deleted", **KEEPING)))
        (_, *mine) = await etcd.queued(name, 3)
        (key,) = (each.key for each in mine if not is_tombstone(each.key))
        await etcd.cluster.delete(key, b"")
        await hold.release()
        with pytest.raises(OutcomeUnknown, match="force-released"):
            await deleted
        await etcd.queued(name, 0)
    async with behind(middle, ground) as backend, raw(ground) as etcd:
        middle.plan = ["lose"] * 1_000
        with pytest.raises(OutcomeUnknown):
            await backend.acquire(ask_for(name, "unknown", timeout=0, **KEEPING))
        middle.plan = []
        await etcd.queued(name, 0)


async def test_an_ask_whose_key_is_deleted_before_its_reply_is_withdrawn(ground: Ground, name: str) -> None:
    """A forced release between the request and its reply ends the ask, too: it is not entered again and again."""
    middle = Middle()
    async with behind(middle, ground, patience_s=30.0) as backend, connect(ground) as other, raw(ground) as etcd:

        async def delete() -> None:
            (key,) = (each.key for each in (await etcd.queue(name))[1:] if not is_tombstone(each.key))
            await etcd.cluster.delete(key, b"")

        hold = await held(other, name)
        middle.plan, middle.paused = ["pause"], delete
        with pytest.raises(OutcomeUnknown, match="force-released"):
            async with asyncio.timeout(20):
                await backend.acquire(ask_for(name, **KEEPING))
        await etcd.queued(name, 1)
        await hold.release()


async def test_a_least_time_outlives_its_session(ground: Ground, name: str) -> None:
    """The hold is lost with the lease of its session, and its name is kept all the same."""
    async with behind(Middle(), ground) as backend, raw(ground) as etcd:
        lease = await backend.acquire(ask_for(name, **KEEPING))
        assert lease is not None
        (session,) = {each.lease for each in await etcd.queue(name) if not is_tombstone(each.key)}
        await etcd.cluster.revoke_lease(session)
        await until(lambda: lease.ending)
        (left,) = await etcd.queue(name)
        assert is_tombstone(left.key)
        seen = await backend.look(name)
        assert seen.holders == ()
        assert seen.kept is not None
        assert seen.kept.fence == lease.fence
        await backend.break_hold(name, lease.fence)
        await etcd.queued(name, 0)


async def test_a_cancelled_crowd_leaves_no_keys(ground: Ground, name: str) -> None:
    """Two hundred who wait, and two hundred who have just asked."""
    async with connect(ground) as one, connect(ground) as other, raw(ground) as etcd:
        hold = await held(one, name)
        waiting = [asyncio.create_task(held(other, name)) for _ in range(200)]
        await etcd.queued(name, 201)
        asking = [asyncio.create_task(held(other, name)) for _ in range(200)]
        await asyncio.sleep(0)
        for task in waiting + asking:
            task.cancel()
        await asyncio.gather(*waiting, *asking, return_exceptions=True)
        await etcd.queued(name, 1)
        await hold.release()
        assert await etcd.queue(name) == []


async def test_a_hold_that_an_operator_takes_away_is_told_at_once(ground: Ground, name: str) -> None:
    """Long before the next renewal; who waited has it, with a fence not below what the operator was told."""
    async with connect(ground) as one, connect(ground) as other, raw(ground) as etcd:
        hold = await held(one, name)
        waiting = asyncio.create_task(held(other, name))
        await etcd.queued(name, 2)
        fence = await other.break_hold(name)
        watch = Stopwatch()
        await hold.lost.wait()
        assert watch.passed_s < SOON_S
        next_one = await asyncio.wait_for(waiting, 10)
        assert hold.fence < fence <= next_one.fence
        with pytest.raises(HoldLost, match="force-released"):
            await hold.release()
        await next_one.release()


async def test_a_key_that_was_deleted_by_hand_is_noticed(ground: Ground, name: str) -> None:
    """With the next renewal; the other holds of the client are not touched."""
    async with connect(ground, ttl=TTL_S) as client, raw(ground) as etcd:
        hold, other = await held(client, name), await held(client, f"{name}/other")
        (key,) = await etcd.queue(name)
        await etcd.cluster.delete(key.key, b"")
        await until(hold.lost.is_set, TTL_S)
        assert other.safe_for() > 0
        await other.release()


async def test_a_compaction_disturbs_nobody(ground: Ground, name: str) -> None:
    """Who watches from a revision that is forgotten reads instead."""
    async with connect(ground) as one, connect(ground) as other, raw(ground) as etcd:
        hold = await held(one, name)
        waiting = asyncio.create_task(held(other, name))
        await etcd.queued(name, 2)
        last = (await etcd.cluster.read(messages.RangeRequest(key=b"x"))).header.revision
        await etcd.cluster.compact(last)
        await hold.release()
        await (await asyncio.wait_for(waiting, 10)).release()


async def test_nothing_is_left_of_a_client_that_was_closed(ground: Ground, new_name: Callable[[], str]) -> None:
    """Neither its holds nor its places in queues, nor anything about itself."""
    names = [new_name() for _ in range(3)]
    async with connect(ground) as other, raw(ground) as etcd:
        async with connect(ground) as one:
            hold = await held(other, names[0])
            waiting = asyncio.create_task(one.lock(names[0]).acquire())
            await etcd.queued(names[0], 2)
            holds = [await held(one, each) for each in names[1:]]
            (key,) = await etcd.queue(names[1])
        outcome = (await asyncio.gather(waiting, return_exceptions=True))[0]
        assert isinstance(outcome, UsageError)
        assert [each.safe_for() for each in holds] == [0, 0]
        assert [len(await etcd.queue(each)) for each in names] == [1, 0, 0]
        assert not await etcd.cluster.keys_of_lease(key.lease)
        await hold.release()
