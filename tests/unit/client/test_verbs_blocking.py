# Made of tests/unit/client/test_verbs_aio.py by scripts/blocking: change that one.
"""Every verb of a client against a real server, as an application calls it: the same for both clients."""

import os
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fencehold import State
from fencehold.errors import Deadlock, LockTimeout, NotOwner, SessionExpired, Unavailable, UsageError
from tests.unit.client.side_blocking import (
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


def test_a_hold_has_a_fence_that_grows() -> None:
    """Each `with` yields a hold with a greater fence, and ends with the name free."""
    with service() as url, connect(url) as client:
        fences = []
        for _ in range(3):
            with client.lock("orders") as hold:
                assert hold.state is State.HELD
                assert 0 < hold.safe_for() <= 30
                assert hold.deadline() > time.monotonic()
                hold.check()
                fences.append(hold.fence)
            assert hold.safe_for() == 0
        assert fences == sorted(set(fences))
        assert not client.lock("orders").locked()
        assert not client.lock("orders").owned()


def test_a_service_that_is_not_there_is_unavailable() -> None:
    """Connecting gives up after the connect timeout, saying that nothing happened."""
    with pytest.raises(Unavailable):
        connect("fencehold://127.0.0.1:1", connect_timeout=0.05)


def test_acquire_returns_none_when_the_time_is_over() -> None:
    """A try, a non-blocking try and a wait that ran out give None; a contradiction is a usage error."""
    with service() as url, connect(url) as client, connect(url) as other, other.lock("a"):
        lock = client.lock("a")
        assert lock.acquire(blocking=False) is None
        assert lock.acquire(timeout=0) is None
        assert client.lock("a", timeout=0).acquire() is None
        assert lock.acquire(timeout=0.01) is None
        assert lock.locked()
        assert not lock.owned()
        with pytest.raises(UsageError):
            lock.acquire(blocking=False, timeout=1)
        with pytest.raises(ValueError, match="timeout"):
            client.lock("a", timeout=-2)


def test_a_timeout_says_who_has_it() -> None:
    """`with` raises `LockTimeout`, a `TimeoutError`, which names the holder."""
    with service() as url, connect(url, name="billing") as one, connect(url) as two:
        with one.lock("a", meta={"trace": "t-1"}):
            with pytest.raises(TimeoutError, match="billing") as caught:
                with two.lock("a", timeout=0):
                    pytest.fail("granted")
        assert isinstance(caught.value, LockTimeout)
        assert caught.value.names == ("a",)


def test_a_lock_is_used_by_many_threads_at_once() -> None:
    """One lock object serves any number of threads, each with its own hold, one after the other."""
    with service() as url, connect(url) as client:
        lock = client.lock("a")
        inside, fences = 0, []

        def work() -> None:
            nonlocal inside
            with lock as hold:
                inside += 1
                assert inside == 1
                assert lock.owned()
                pause(0)
                fences.append(hold.fence)
                inside -= 1
            assert not lock.owned()

        for begun in [begin(work) for _ in range(20)]:
            ended(begun)
        assert fences == sorted(set(fences))
        assert len(fences) == 20


def test_release_by_the_lock_is_of_this_threads_hold() -> None:
    """`lock.release()` gives back what this thread acquired; another thread's hold is not its to release."""
    with service() as url, connect(url) as client:
        lock = client.semaphore("s", 2)
        first = lock.acquire()
        second = lock.acquire()
        assert first is not None
        assert second is not None

        def stranger() -> None:
            with pytest.raises(NotOwner):
                lock.release()

        ended(begin(stranger))
        lock.release()
        assert (first.state, second.state) == (State.HELD, State.RELEASED)
        lock.release()
        with pytest.raises(NotOwner):
            lock.release()
        with pytest.raises(NotOwner, match="released before"):
            first.release()


def test_a_hold_released_inside_its_body_is_not_released_again() -> None:
    """Leaving a `with` whose hold was given back early is no error."""
    with service() as url, connect(url) as client:
        with client.lock("a") as hold:
            hold.release()
        lock = client.lock("a")
        with lock:
            lock.release()
            assert not lock.owned()


def test_several_names_are_had_together() -> None:
    """A multi-lock has all its names with one fence, in canonical order, or none."""
    with service() as url, connect(url) as client, connect(url) as other:
        with client.multi(["b", "a", "b"]) as hold:
            assert hold.names == ("a", "b")
            assert other.multi(["b", "c"]).acquire(timeout=0) is None
            assert not other.lock("c").locked()
            hold.extend(20)
        with other.multi(["b", "c"]):
            pass
        with pytest.raises(UsageError):
            client.multi("ab")
        with pytest.raises(UsageError):
            client.multi([])


def test_readers_share_and_a_writer_does_not() -> None:
    """Readers hold a name together; a writer has it alone."""
    with service() as url, connect(url) as client:
        lock = client.rwlock("a")
        with lock.read(), lock.read():
            assert lock.write().acquire(timeout=0) is None
        with lock.write():
            assert lock.read().acquire(timeout=0) is None


def test_a_semaphore_has_as_many_permits_as_it_says() -> None:
    """The permit after the last is refused, and another limit is a usage error."""
    with service() as url, connect(url) as client:
        semaphore = client.semaphore("s", 2)
        with semaphore, semaphore:
            assert semaphore.acquire(timeout=0) is None
            with pytest.raises(UsageError):
                client.semaphore("s", 3).acquire(timeout=0)


def test_a_reentrant_lock_is_taken_again_by_the_same_thread() -> None:
    """Inside, the fence is the same; the name is free after the last level only; other threads are strangers."""
    with service() as url, connect(url) as client:
        lock = client.rlock("a")

        def stranger() -> None:
            assert lock.acquire(timeout=0) is None
            with pytest.raises(NotOwner):
                lock.release()

        with lock as outer:
            with lock as inner:
                assert inner.fence == outer.fence
            assert lock.owned()
            assert lock.acquire() is outer
            lock.release()
            ended(begin(stranger))
            assert lock.locked()
        assert not lock.locked()


def test_an_election_has_one_leader_whose_fence_is_the_epoch() -> None:
    """A candidate leads when the leader resigns, with a greater epoch, and observers see it."""
    with service() as url, connect(url, name="a") as one, connect(url, name="b") as two:
        first, second = one.election("chief"), two.election("chief")
        term = first.campaign()
        assert term is not None
        assert second.campaign(timeout=0) is None
        seen = second.observe()
        leader = next(seen)
        assert leader is not None
        assert (leader.party.client, leader.fence) == ("a", term.epoch)
        candidate = begin(second.campaign)
        until(lambda: _queued(one, "chief"))
        first.resign()
        next_term = ended(candidate)
        assert next_term is not None
        assert next_term.epoch > term.epoch
        for leader in seen:
            if leader is not None and leader.fence == next_term.epoch:
                break
        seen.close()
        second.resign()
        assert first.leader() is None
        with pytest.raises(NotOwner):
            first.resign()


def test_a_term_that_was_resigned_is_not_entered() -> None:
    """It is over: its body would run without leading."""
    with service() as url, connect(url) as client:
        election = client.election("chief")
        terms = election.terms()
        term = next(terms)
        election.resign()
        with pytest.raises(NotOwner, match="released before"):
            with term:
                pytest.fail("entered")
        terms.close()


def test_a_release_that_failed_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be released is still this thread's, by the lock that made it."""
    with service() as url, connect(url) as client:
        lock = client.lock("a")
        hold = lock.acquire()

        def refused(_: object) -> None:
            raise Unavailable("not now")

        with monkeypatch.context() as patch:
            patch.setattr(type(hold), "release", refused)
            with pytest.raises(Unavailable):
                lock.release()
        assert lock.owned()
        lock.release()
        assert not lock.locked()


def test_a_watch_sees_what_happens() -> None:
    """Events of names with the prefix come in order, and no others."""
    with service() as url, connect(url) as client, client.watch("order:") as watch:
        with client.lock("other"), client.lock("order:1") as hold:
            event = next(watch)
            assert (event.kind, event.names, event.fence) == ("acquired", ("order:1",), hold.fence)
        assert (next(watch)).kind == "released"
        waiting = begin(next_kind, watch)
        pause(0.01)
        client.close()
        assert ended(waiting) == ""


def test_events_name_the_client_and_the_time_of_day() -> None:
    """Each says who did it, also if that client is gone by then, when, and of a break who broke it."""
    with service() as url, connect(url, name="looker") as looker, looker.watch() as watch:
        with connect(url, name="billing") as client:
            hold = client.lock("a").acquire()
            looker.break_hold("a")
        assert hold is not None
        told = [next(watch) for _ in range(5)]
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


def test_a_watch_goes_on_after_a_place() -> None:
    """After one event comes the next, of the same entry or not; beside another watch, and each of them once."""
    with service() as url, connect(url) as client, client.watch("a") as first:
        client.break_hold("a1")
        with client.lock("a2"):
            pass
        told = [next(first) for _ in range(3)]
        assert [event.kind for event in told] == ["fence_raised", "acquired", "released"]
        with client.watch("a", after=told[0].place) as second:
            assert [next(second) for _ in range(2)] == told[1:]
            with client.watch("a", after=told[1].position) as third:
                assert next(third) == told[2]
                client.break_hold("a3")
                for watch in (first, second, third):
                    assert (next(watch)).names == ("a3",)
        with pytest.raises(UsageError):
            client.watch("a", after=(-1, 0))


def test_a_job_runs_once() -> None:
    """While one run is under way another is skipped, raises or waits, as it was told to."""
    with service() as url, connect(url) as client:
        go_on, runs = Event(), []

        def job(who: str) -> str:
            runs.append(who)
            go_on.wait()
            return who

        nightly = client.once("nightly", at_most=60)(job)
        first = begin(nightly, "first")
        until(lambda: runs == ["first"])
        assert nightly("skipped") is None
        with pytest.raises(LockTimeout):
            client.once("nightly", at_most=60, busy="raise")(job)("raised")
        patient = begin(client.once("nightly", at_most=60, busy="wait")(job), "waited")
        until(lambda: _waiting(client, "nightly", 1))
        go_on.set()
        assert ended(first) == "first"
        assert ended(patient) == "waited"
        assert runs == ["first", "waited"]
        assert nightly("again") == "again"
        with pytest.raises(UsageError):
            client.once("nightly", at_most=1, at_least=2)
        with pytest.raises(UsageError):
            client.once("nightly", at_most=1, busy="never")  # type: ignore[arg-type]

        @client.once("failing", at_most=60)
        def failing() -> None:
            raise KeyError

        with pytest.raises(KeyError):
            failing()
        assert not client.lock("failing").locked()


def test_a_quick_job_keeps_its_name_as_long_as_it_was_told() -> None:
    """With `at_least`, the name stays taken after a quick run, and is free after that time."""
    with service() as url, connect(url) as client:
        nightly = client.once("nightly", at_most=60, at_least=0.3)(_nothing)
        assert nightly() == "done"
        assert client.lock("nightly").locked()
        assert nightly() is None
        until(lambda: _free(client, "nightly"))
        assert nightly() == "done"


def test_two_threads_in_a_circle_are_told_apart() -> None:
    """The request that closes a circle of threads is refused, with the circle in the error."""
    with service() as url, connect(url) as client:
        inside: list[str] = []

        def work(first: str, second: str) -> str:
            with client.lock(first):
                inside.append(first)
                until(lambda: len(inside) == 2)
                with client.lock(second):
                    return "had both"

        begun = [begin(work, "a", "b"), begin(work, "b", "a")]
        ends = [outcome(each) for each in begun]
        assert "had both" in ends
        (refused,) = [end for end in ends if isinstance(end, Deadlock)]
        assert {link.name for link in refused.circle} == {"a", "b"}


def test_closing_refuses_what_waits() -> None:
    """An acquire that waits when its client is closed is refused."""
    with service() as url, connect(url) as other, other.lock("a"):
        with connect(url) as client:
            waiting = begin(client.lock("a").acquire)
            until(lambda: _waiting(other, "a", 1))
        with pytest.raises(SessionExpired):
            ended(waiting)


def test_an_operator_breaks_a_hold() -> None:
    """A break gives a fence above the holder's; naming an older fence breaks nothing newer."""
    with service() as url, connect(url) as client:
        first = client.lock("a").acquire()
        assert first is not None
        assert client.break_hold("a", fence=first.fence) > first.fence
        assert first.lost.wait()
        second = client.lock("a").acquire()
        assert second is not None
        client.break_hold("a", fence=first.fence)
        assert second.state is State.HELD
        second.release()


def test_a_job_whose_name_is_kept_can_be_waited_for() -> None:
    """A thread that ran a job waits for the name that the job keeps, like anybody else."""
    with service() as url, connect(url) as client:

        @client.once("again", at_most=60, at_least=0.2, busy="wait")
        def job() -> float:
            return time.monotonic()

        first, second = job(), job()
        assert first is not None
        assert second is not None
        assert second - first >= 0.15


def test_a_watch_that_is_closed_ends_for_those_who_wait() -> None:
    """Another thread's close is the end of the iteration."""
    with service() as url, connect(url) as client, client.watch("nothing:") as watch:
        rest = begin(_all, watch)
        pause(0.01)
        watch.close()
        assert ended(rest) == []


def test_two_re_entrant_locks_of_a_name_are_one() -> None:
    """Levels are counted by client and name, not by the object used; other threads are strangers."""
    with service() as url, connect(url) as client:
        one, two = client.rlock("r"), client.rlock("r", timeout=0)
        with one as outer, two as inner:
            assert inner is outer
            assert one.acquire() is outer
            two.release()
            assert ended(begin(two.acquire)) is None
        assert not two.locked()
        one.acquire()
        two.acquire()
        one.release()
        assert two.owned()
        two.release()
        assert not one.locked()
        with two:
            one.release()
        assert not one.locked()
        with pytest.raises(NotOwner):
            two.release()


def _queued(client: Client, name: str) -> bool:
    return len((client.explain(name)).queue) > 0


def next_kind(watch: Watch) -> str:
    """The kind of the next event, or nothing when there will be none."""
    for event in watch:
        return event.kind
    return ""


def _waiting(client: Client, name: str, count: int) -> bool:
    return (client.explain(name)).waiter_count == count


def _nothing() -> str:
    return "done"


def _free(client: Client, name: str) -> bool:
    return not client.lock(name).locked()


def _all(things: Iterator[Any]) -> list[Any]:
    return [thing for thing in things]
