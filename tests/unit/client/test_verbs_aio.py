"""Every verb of a client against a real server, as an application calls it: the same for both clients."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fencehold import State
from fencehold.errors import Deadlock, LockTimeout, NotOwner, SessionExpired, Unavailable, UsageError
from tests.unit.client.side_aio import (
    Client,
    Event,
    Watch,
    begin,
    connect,
    ended,
    outcome,
    pause,
    service,
    until,
)


async def test_a_hold_has_a_fence_that_grows() -> None:
    """Each `async with` yields a hold with a greater fence, and ends with the name free."""
    async with service() as url, connect(url) as client:
        fences = []
        for _ in range(3):
            async with client.lock("orders") as hold:
                assert hold.state is State.HELD
                assert 0 < hold.safe_for() <= 30
                assert hold.deadline() > asyncio.get_running_loop().time()  # ASYNC
                # BLOCKING: assert hold.deadline() > time.monotonic()
                hold.check()
                fences.append(hold.fence)
            assert hold.safe_for() == 0
        assert fences == sorted(set(fences))
        assert not await client.lock("orders").locked()
        assert not client.lock("orders").owned()


async def test_a_service_that_is_not_there_is_unavailable() -> None:
    """Connecting gives up after the connect timeout, saying that nothing happened."""
    with pytest.raises(Unavailable):
        await connect("fencehold://127.0.0.1:1", connect_timeout=0.05)


async def test_acquire_returns_none_when_the_time_is_over() -> None:
    """A try, a non-blocking try and a wait that ran out give None; a contradiction is a usage error."""
    async with service() as url, connect(url) as client, connect(url) as other, other.lock("a"):
        lock = client.lock("a")
        assert await lock.acquire(blocking=False) is None
        assert await lock.acquire(timeout=0) is None
        assert await client.lock("a", timeout=0).acquire() is None
        assert await lock.acquire(timeout=0.01) is None
        assert await lock.locked()
        assert not lock.owned()
        with pytest.raises(UsageError):
            await lock.acquire(blocking=False, timeout=1)
        with pytest.raises(ValueError, match="timeout"):
            client.lock("a", timeout=-2)


async def test_a_timeout_says_who_has_it() -> None:
    """`async with` raises `LockTimeout`, a `TimeoutError`, which names the holder."""
    async with service() as url, connect(url, name="billing") as one, connect(url) as two:
        async with one.lock("a", meta={"trace": "t-1"}):
            with pytest.raises(TimeoutError, match="billing") as caught:
                async with two.lock("a", timeout=0):
                    pytest.fail("granted")
        assert isinstance(caught.value, LockTimeout)
        assert caught.value.names == ("a",)


async def test_a_lock_is_used_by_many_tasks_at_once() -> None:
    """One lock object serves any number of tasks, each with its own hold, one after the other."""
    async with service() as url, connect(url) as client:
        lock = client.lock("a")
        inside, fences = 0, []

        async def work() -> None:
            nonlocal inside
            async with lock as hold:
                inside += 1
                assert inside == 1
                assert lock.owned()
                await pause(0)
                fences.append(hold.fence)
                inside -= 1
            assert not lock.owned()

        for begun in [begin(work) for _ in range(20)]:
            await ended(begun)
        assert fences == sorted(set(fences))
        assert len(fences) == 20


async def test_release_by_the_lock_is_of_this_tasks_hold() -> None:
    """`lock.release()` gives back what this task acquired; another task's hold is not its to release."""
    async with service() as url, connect(url) as client:
        lock = client.semaphore("s", 2)
        first = await lock.acquire()
        second = await lock.acquire()
        assert first is not None
        assert second is not None

        async def stranger() -> None:
            with pytest.raises(NotOwner):
                await lock.release()

        await ended(begin(stranger))
        await lock.release()
        assert (first.state, second.state) == (State.HELD, State.RELEASED)
        await lock.release()
        with pytest.raises(NotOwner):
            await lock.release()
        with pytest.raises(NotOwner, match="released before"):
            await first.release()


async def test_a_hold_released_inside_its_body_is_not_released_again() -> None:
    """Leaving an `async with` whose hold was given back early is no error."""
    async with service() as url, connect(url) as client:
        async with client.lock("a") as hold:
            await hold.release()
        lock = client.lock("a")
        async with lock:
            await lock.release()
            assert not lock.owned()


async def test_several_names_are_had_together() -> None:
    """A multi-lock has all its names with one fence, in canonical order, or none."""
    async with service() as url, connect(url) as client, connect(url) as other:
        async with client.multi(["b", "a", "b"]) as hold:
            assert hold.names == ("a", "b")
            assert await other.multi(["b", "c"]).acquire(timeout=0) is None
            assert not await other.lock("c").locked()
            await hold.extend(20)
        async with other.multi(["b", "c"]):
            pass
        with pytest.raises(UsageError):
            client.multi("ab")
        with pytest.raises(UsageError):
            client.multi([])


async def test_readers_share_and_a_writer_does_not() -> None:
    """Readers hold a name together; a writer has it alone."""
    async with service() as url, connect(url) as client:
        lock = client.rwlock("a")
        async with lock.read(), lock.read():
            assert await lock.write().acquire(timeout=0) is None
        async with lock.write():
            assert await lock.read().acquire(timeout=0) is None


async def test_a_semaphore_has_as_many_permits_as_it_says() -> None:
    """The permit after the last is refused, and another limit is a usage error."""
    async with service() as url, connect(url) as client:
        semaphore = client.semaphore("s", 2)
        async with semaphore, semaphore:
            assert await semaphore.acquire(timeout=0) is None
            with pytest.raises(UsageError):
                await client.semaphore("s", 3).acquire(timeout=0)


async def test_a_reentrant_lock_is_taken_again_by_the_same_task() -> None:
    """Inside, the fence is the same; the name is free after the last level only; other tasks are strangers."""
    async with service() as url, connect(url) as client:
        lock = client.rlock("a")

        async def stranger() -> None:
            assert await lock.acquire(timeout=0) is None
            with pytest.raises(NotOwner):
                await lock.release()

        async with lock as outer:
            async with lock as inner:
                assert inner.fence == outer.fence
            assert lock.owned()
            assert await lock.acquire() is outer
            await lock.release()
            await ended(begin(stranger))
            assert await lock.locked()
        assert not await lock.locked()


async def test_an_election_has_one_leader_whose_fence_is_the_epoch() -> None:
    """A candidate leads when the leader resigns, with a greater epoch, and observers see it."""
    async with service() as url, connect(url, name="a") as one, connect(url, name="b") as two:
        first, second = one.election("chief"), two.election("chief")
        term = await first.campaign()
        assert term is not None
        assert await second.campaign(timeout=0) is None
        seen = second.observe()
        leader = await anext(seen)
        assert leader is not None
        assert (leader.party.client, leader.fence) == ("a", term.epoch)
        candidate = begin(second.campaign)
        await until(lambda: _queued(one, "chief"))
        await first.resign()
        next_term = await ended(candidate)
        assert next_term is not None
        assert next_term.epoch > term.epoch
        async for leader in seen:
            if leader is not None and leader.fence == next_term.epoch:
                break
        await seen.aclose()
        await second.resign()
        assert await first.leader() is None
        with pytest.raises(NotOwner):
            await first.resign()


async def test_a_term_that_was_resigned_is_not_entered() -> None:
    """It is over: its body would run without leading."""
    async with service() as url, connect(url) as client:
        election = client.election("chief")
        terms = election.terms()
        term = await anext(terms)
        await election.resign()
        with pytest.raises(NotOwner, match="released before"):
            async with term:
                pytest.fail("entered")
        await terms.aclose()


async def test_a_release_that_failed_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be released is still this task's, by the lock that made it."""
    async with service() as url, connect(url) as client:
        lock = client.lock("a")
        hold = await lock.acquire()

        async def refused(_: object) -> None:
            raise Unavailable("not now")

        with monkeypatch.context() as patch:
            patch.setattr(type(hold), "release", refused)
            with pytest.raises(Unavailable):
                await lock.release()
        assert lock.owned()
        await lock.release()
        assert not await lock.locked()


async def test_a_watch_sees_what_happens() -> None:
    """Events of names with the prefix come in order, and no others."""
    async with service() as url, connect(url) as client, client.watch("order:") as watch:
        async with client.lock("other"), client.lock("order:1") as hold:
            event = await anext(watch)
            assert (event.kind, event.names, event.fence) == ("acquired", ("order:1",), hold.fence)
        assert (await anext(watch)).kind == "released"
        waiting = begin(anext_kind, watch)
        await pause(0.01)
        await client.close()
        assert await ended(waiting) == ""


async def test_events_name_the_client_and_the_time_of_day() -> None:
    """Each says who did it, also if that client is gone by then, when, and of a break who broke it."""
    async with service() as url, connect(url, name="looker") as looker, looker.watch() as watch:
        async with connect(url, name="billing") as client:
            hold = await client.lock("a").acquire()
            await looker.break_hold("a")
        assert hold is not None
        told = [await anext(watch) for _ in range(5)]
        assert [event.kind for event in told] == ["opened", "acquired", "fence_raised", "broken", "session_ended"]
        assert [event.client for event in told] == ["billing", "billing", "", "billing", "billing"]
        raised, seen = told[2], [event for event in told if event.kind != "fence_raised"]
        assert raised.by is not None
        assert (raised.by.client, raised.fence) == ("looker", 2)
        for event in seen:
            assert event.party is not None
            assert event.party.client == "billing"
            assert str(event.party).startswith(f"billing on {socket.gethostname()} (pid {os.getpid()})")
            assert event.time is not None
            assert datetime.now(UTC) - event.time < timedelta(minutes=1)
        assert [str(event.by and event.by.client) for event in seen] == ["None", "None", "looker", "None"]


async def test_a_watch_goes_on_after_a_place() -> None:
    """After one event comes the next, of the same entry or not; beside another watch, and each of them once."""
    async with service() as url, connect(url) as client, client.watch("a") as first:
        await client.break_hold("a1")
        async with client.lock("a2"):
            pass
        told = [await anext(first) for _ in range(3)]
        assert [event.kind for event in told] == ["fence_raised", "acquired", "released"]
        async with client.watch("a", after=told[0].place) as second:
            assert [await anext(second) for _ in range(2)] == told[1:]
            async with client.watch("a", after=told[1].position) as third:
                assert await anext(third) == told[2]
                await client.break_hold("a3")
                for watch in (first, second, third):
                    assert (await anext(watch)).names == ("a3",)
        with pytest.raises(UsageError):
            client.watch("a", after=(-1, 0))


async def test_a_job_runs_once() -> None:
    """While one run is under way another is skipped, raises or waits, as it was told to."""
    async with service() as url, connect(url) as client:
        go_on, runs = Event(), []

        async def job(who: str) -> str:
            runs.append(who)
            await go_on.wait()
            return who

        nightly = client.once("nightly", at_most=60)(job)
        first = begin(nightly, "first")
        await until(lambda: runs == ["first"])
        assert await nightly("skipped") is None
        with pytest.raises(LockTimeout):
            await client.once("nightly", at_most=60, busy="raise")(job)("raised")
        patient = begin(client.once("nightly", at_most=60, busy="wait")(job), "waited")
        await until(lambda: _waiting(client, "nightly", 1))
        go_on.set()
        assert await ended(first) == "first"
        assert await ended(patient) == "waited"
        assert runs == ["first", "waited"]
        assert await nightly("again") == "again"
        with pytest.raises(UsageError):
            client.once("nightly", at_most=1, at_least=2)
        with pytest.raises(UsageError):
            client.once("nightly", at_most=1, busy="never")  # type: ignore[arg-type]

        @client.once("failing", at_most=60)
        async def failing() -> None:
            raise KeyError

        with pytest.raises(KeyError):
            await failing()
        assert not await client.lock("failing").locked()


async def test_a_quick_job_keeps_its_name_as_long_as_it_was_told() -> None:
    """With `at_least`, the name stays taken after a quick run, and is free after that time."""
    async with service() as url, connect(url) as client:
        nightly = client.once("nightly", at_most=60, at_least=0.3)(_nothing)
        assert await nightly() == "done"
        assert await client.lock("nightly").locked()
        assert await nightly() is None
        await until(lambda: _free(client, "nightly"))
        assert await nightly() == "done"


async def test_two_tasks_in_a_circle_are_told_apart() -> None:
    """The request that closes a circle of tasks is refused, with the circle in the error."""
    async with service() as url, connect(url) as client:
        inside: list[str] = []

        async def work(first: str, second: str) -> str:
            async with client.lock(first):
                inside.append(first)
                await until(lambda: len(inside) == 2)
                async with client.lock(second):
                    return "had both"

        begun = [begin(work, "a", "b"), begin(work, "b", "a")]
        ends = [await outcome(each) for each in begun]
        assert "had both" in ends
        (refused,) = [end for end in ends if isinstance(end, Deadlock)]
        assert {link.name for link in refused.circle} == {"a", "b"}


async def test_closing_refuses_what_waits() -> None:
    """An acquire that waits when its client is closed is refused."""
    async with service() as url, connect(url) as other, other.lock("a"):
        async with connect(url) as client:
            waiting = begin(client.lock("a").acquire)
            await until(lambda: _waiting(other, "a", 1))
        with pytest.raises(SessionExpired):
            await ended(waiting)


async def test_an_operator_breaks_a_hold() -> None:
    """A break gives a fence above the holder's; naming an older fence breaks nothing newer."""
    async with service() as url, connect(url) as client:
        first = await client.lock("a").acquire()
        assert first is not None
        assert await client.break_hold("a", fence=first.fence) > first.fence
        assert await first.lost.wait()
        second = await client.lock("a").acquire()
        assert second is not None
        await client.break_hold("a", fence=first.fence)
        assert second.state is State.HELD
        await second.release()


async def test_a_job_whose_name_is_kept_can_be_waited_for() -> None:
    """A task that ran a job waits for the name that the job keeps, like anybody else."""
    async with service() as url, connect(url) as client:

        @client.once("again", at_most=60, at_least=0.2, busy="wait")
        async def job() -> float:
            return time.monotonic()

        first, second = await job(), await job()
        assert first is not None
        assert second is not None
        assert second - first >= 0.15


async def test_a_watch_that_is_closed_ends_for_those_who_wait() -> None:
    """Another task's close is the end of the iteration."""
    async with service() as url, connect(url) as client, client.watch("nothing:") as watch:
        rest = begin(_all, watch)
        await pause(0.01)
        await watch.close()
        assert await ended(rest) == []


async def test_two_re_entrant_locks_of_a_name_are_one() -> None:
    """Levels are counted by client and name, not by the object used; other tasks are strangers."""
    async with service() as url, connect(url) as client:
        one, two = client.rlock("r"), client.rlock("r", timeout=0)
        async with one as outer, two as inner:
            assert inner is outer
            assert await one.acquire() is outer
            await two.release()
            assert await ended(begin(two.acquire)) is None
        assert not await two.locked()
        await one.acquire()
        await two.acquire()
        await one.release()
        assert two.owned()
        await two.release()
        assert not await one.locked()
        async with two:
            await one.release()
        assert not await one.locked()
        with pytest.raises(NotOwner):
            await two.release()


async def _queued(client: Client, name: str) -> bool:
    return len((await client.explain(name)).queue) > 0


async def anext_kind(watch: Watch) -> str:
    """The kind of the next event, or nothing when there will be none."""
    async for event in watch:
        return event.kind
    return ""


async def _waiting(client: Client, name: str, count: int) -> bool:
    return (await client.explain(name)).waiter_count == count


async def _nothing() -> str:
    return "done"


async def _free(client: Client, name: str) -> bool:
    return not await client.lock(name).locked()


async def _all(things: AsyncIterator[Any]) -> list[Any]:
    return [thing async for thing in things]
