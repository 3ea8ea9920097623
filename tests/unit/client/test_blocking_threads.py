"""The blocking client as threads use it: what the tests shared with the async client do not say of it."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import fencehold
from fencehold import Client, State
from fencehold.errors import LockTimeout, NotOwner, Unavailable, UsageError


def test_a_hold_has_a_fence_that_grows(client: Client) -> None:
    """Each `with` yields a hold with a greater fence, and ends with the name free."""
    fences = []
    lock = client.lock("orders")
    for _ in range(3):
        with lock as hold:
            hold.check()
            assert hold.state is State.HELD
            assert 0 < hold.safe_for() <= 30
            assert lock.owned()
            fences.append(hold.fence)
    assert fences == sorted(set(fences))
    assert not lock.locked()
    assert not lock.owned()


def test_acquire_returns_none_when_the_time_is_over(client: Client, url: str) -> None:
    """A try and a wait that ran out give None; `with` raises, and says who has it."""
    with fencehold.connect(url, name="billing") as other, other.lock("a"):
        lock = client.lock("a", timeout=0)
        assert lock.acquire() is None
        assert lock.acquire(blocking=False) is None
        assert lock.acquire(timeout=0.01) is None
        with pytest.raises(LockTimeout, match="billing"), lock:
            pytest.fail("granted")
        with pytest.raises(UsageError):
            lock.acquire(blocking=False, timeout=3)


def test_threads_take_turns(client: Client) -> None:
    """One lock object serves many threads, each with its own hold, one at a time."""
    lock = client.lock("a")
    inside, fences = [], []

    def work() -> None:
        for _ in range(10):
            with lock as hold:
                inside.append(1)
                assert len(inside) == 1
                fences.append(hold.fence)
                inside.clear()

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work) for _ in range(8)]:
            done.result()
    assert fences == sorted(set(fences))
    assert len(fences) == 80


def test_an_election_has_one_leader(client: Client, url: str) -> None:
    """A candidate leads when the leader resigns, and observers see it."""
    with fencehold.connect(url, name="other") as other:
        first, second = client.election("chief"), other.election("chief")
        term = first.campaign()
        assert term is not None
        assert second.campaign(timeout=0) is None
        seen = second.observe()
        leader = next(seen)
        assert leader is not None
        assert leader.fence == term.epoch
        first.resign()
        next_term = second.campaign()
        assert next_term is not None
        for leader in seen:
            if leader is not None and leader.fence == next_term.epoch:
                break
        seen.close()
        second.resign()
        assert first.leader() is None
        with pytest.raises(NotOwner):
            second.resign()


def test_a_watch_sees_what_happens(client: Client) -> None:
    """Events of names with the prefix come in order."""
    with client.watch("order:") as watch:
        with client.lock("order:1") as hold:
            event = next(watch)
            assert (event.kind, event.fence) == ("acquired", hold.fence)
        assert next(iter(watch)).kind == "released"


def test_a_job_runs_once(client: Client) -> None:
    """While one run is under way another is skipped or raises; a quick one keeps its name."""

    def job() -> str:
        assert nightly() is None
        with pytest.raises(LockTimeout):
            client.once("nightly", at_most=60, busy="raise")(job)()
        return "done"

    nightly = client.once("nightly", at_most=60)(job)
    assert nightly() == "done"
    assert nightly() == "done"
    assert client.once("kept", at_most=60, at_least=30)(lambda: 1)() == 1
    assert client.once("kept", at_most=60)(lambda: 2)() is None

    @client.once("failing", at_most=60)
    def failing() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        failing()
    assert not client.lock("failing").locked()


def test_a_service_that_is_not_there_is_unavailable() -> None:
    """Connecting gives up after the connect timeout, and leaves no thread."""
    with pytest.raises(Unavailable):
        fencehold.connect("fencehold://127.0.0.1:1", connect_timeout=0.05)
    assert "fencehold" not in [thread.name for thread in threading.enumerate()]


def test_a_job_whose_name_is_kept_can_be_waited_for(client: Client) -> None:
    """A thread that ran a job waits for the name that the job keeps, like anybody else."""
    job = client.once("again", at_most=60, at_least=0.2, busy="wait")(time.monotonic)
    first, second = job(), job()
    assert first is not None
    assert second is not None
    assert second - first >= 0.15


def test_a_watch_that_is_closed_ends_for_those_who_wait(client: Client) -> None:
    """Another thread's close is the end of the iteration."""
    watch = client.watch("nothing:")
    watch.__enter__()
    with ThreadPoolExecutor(1) as pool:
        rest = pool.submit(list, watch)
        watch.close()
        assert rest.result(10) == []


def test_two_re_entrant_locks_of_a_name_are_one(client: Client) -> None:
    """Levels are counted by client and name, whichever object goes in or out; other threads are strangers."""
    one, two = client.rlock("r2"), client.rlock("r2", timeout=0)
    with one as outer, two as inner:
        assert inner is outer
        assert one.acquire() is outer
        two.release()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(two.acquire).result() is None
    assert not two.locked()
    assert one.acquire() is not None
    assert two.acquire() is not None
    one.release()
    assert two.owned()
    two.release()
    assert not one.locked()
    with two:
        one.release()
    assert not one.locked()
