"""What holds of a blocking client where threads are greenlets: `python -m tests.unit.client.greenlets gevent URL`.

A process of its own, as whoever patches the standard library patches it for good, and first of all.
"""

import sys
import warnings

if sys.argv[1] == "gevent":
    import gevent
    from gevent import monkey

    monkey.patch_all()
    real_ident = monkey.get_original("_thread", "get_ident")
else:
    # It says on import that it is deprecated.
    warnings.simplefilter("ignore")
    import eventlet

    eventlet.monkey_patch()
    real_ident = eventlet.patcher.original("_thread").get_ident

import os
import time
from collections.abc import Callable
from typing import Any

import fencehold
from fencehold import Client, Deadlock, LockTimeout, NotOwner

PATIENCE_S = 60.0


def until(true: Callable[[], bool]) -> None:
    """Wait, and let the other greenlets run, until something is true."""
    limit = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < limit, "it never became true"
        time.sleep(0.005)


def spawned(call: Callable[[], Any]) -> Any:
    """A greenlet, by the library's own means."""
    if sys.argv[1] == "gevent":
        return gevent.spawn(call)
    return eventlet.spawn(call)


def result_of(greenlet: Any) -> Any:
    return greenlet.get() if sys.argv[1] == "gevent" else greenlet.wait()


def every_verb_works(client: Client) -> None:
    """Also when the hub has nothing else to do, as in a process with one greenlet."""
    with client.lock("a") as hold:
        assert hold.fence
        assert client.lock("a", timeout=0).acquire() is None
    lock = client.lock("a")
    assert lock.acquire() is not None
    lock.release()
    with client.rlock("r") as outer, client.rlock("r") as inner:
        assert inner is outer
    with client.multi(["a", "b"]), client.semaphore("s", 2), client.rwlock("rw").read():
        assert client.explain("a").holders
    assert client.election("e").campaign().epoch
    with client.watch("w") as watch:
        with client.lock("w"):
            assert next(watch).kind == "acquired"


def a_greenlet_that_waits_lets_the_others_run(client: Client) -> None:
    lock = client.lock("busy")
    turns: list[int] = []

    def wait() -> int:
        with lock as hold:
            return hold.fence

    def take_turns() -> None:
        for turn in range(5):
            turns.append(turn)
            time.sleep(0.001)

    with lock as hold:
        waiting = [spawned(wait) for _ in range(20)]
        until(lambda: len(client.explain("busy").queue) == 20)
        result_of(spawned(take_turns))
        assert len(turns) == 5
        assert len(client.explain("busy").queue) == 20
    fences = [result_of(each) for each in waiting]
    assert hold.fence < min(fences)
    assert len(set(fences)) == 20


def the_session_is_kept_alive_while_a_greenlet_computes(client: Client) -> None:
    """By a real thread: nothing that the hub of the greenlet would have to run."""
    with client.lock("computing") as hold:
        end = hold._grant.trust.end
        limit = time.monotonic() + PATIENCE_S
        while hold._grant.trust.end == end:
            assert time.monotonic() < limit, "no keep-alive was answered"
        hold.check()


def each_greenlet_is_an_owner(client: Client) -> None:
    lock = client.lock("mine")

    def elsewhere() -> bool:
        try:
            lock.release()
        except NotOwner:
            return lock.owned()
        raise AssertionError("released what is another's")

    with lock:
        assert lock.owned()
        assert result_of(spawned(elsewhere)) is False


def a_circle_of_greenlets_is_refused(client: Client) -> None:
    refused: list[str] = []

    def take(first: str, second: str) -> None:
        with client.lock(first):
            until(lambda: bool(client.explain(second).holders) or bool(refused))
            try:
                with client.lock(second):
                    pass
            except Deadlock:
                refused.append(first)

    greenlets = [spawned(lambda: take("x", "y")), spawned(lambda: take("y", "x"))]
    for each in greenlets:
        result_of(each)
    assert len(refused) == 1


def a_greenlet_that_is_killed_leaves_nothing(client: Client) -> None:
    with client.lock("a") as hold:
        waiting = spawned(client.lock("a").acquire)
        until(lambda: len(client.explain("a").queue) == 1)
        waiting.kill()
        until(lambda: not client.explain("a").queue)
        hold.check()
    until(lambda: not client.explain("a").holders)


def a_timeout_ends_a_wait(client: Client) -> None:
    def wait() -> object:
        try:
            with client.lock("a", timeout=0.01):
                return None
        except LockTimeout as error:
            return error

    with client.lock("a"):
        assert isinstance(result_of(spawned(wait)), LockTimeout)


def a_host_is_found_by_its_name(client: Client) -> None:
    """What a loop does in threads of its own ends with it, and keeps no process from ending."""
    (line,) = client.portal().channel.driver.lines()  # type: ignore[attr-defined]
    with fencehold.connect(f"fencehold://localhost:{line[1]}") as other, other.lock("named") as hold:
        hold.check()


def a_loss_is_told_among_the_greenlets(client: Client) -> None:
    """To those who wait, and by a callback, which may block as any greenlet may."""
    told: list[int] = []
    hold = client.lock("lost").acquire()

    def call_back(_: object) -> None:
        time.sleep(0.001)
        told.append(real_ident())

    hold.lost.add_callback(call_back)
    assert hold.lost.wait(0.01) is False
    waiting = spawned(hold.lost.wait)
    client.break_hold("lost")
    assert result_of(waiting) is True
    assert hold.lost.wait() is True
    until(lambda: told == [real_ident()])


CHECKS = (
    every_verb_works,
    a_greenlet_that_waits_lets_the_others_run,
    the_session_is_kept_alive_while_a_greenlet_computes,
    each_greenlet_is_an_owner,
    a_circle_of_greenlets_is_refused,
    a_greenlet_that_is_killed_leaves_nothing,
    a_timeout_ends_a_wait,
    a_host_is_found_by_its_name,
    a_loss_is_told_among_the_greenlets,
)


def main(url: str) -> None:
    real_threads = len(os.listdir("/proc/self/task"))
    with fencehold.connect(url, ttl=1.5) as client:
        assert len(os.listdir("/proc/self/task")) == real_threads + 1
        for check in CHECKS:
            check(client)
            sys.stdout.write(f"{check.__name__}\n")
    until(lambda: len(os.listdir("/proc/self/task")) == real_threads)
    sys.stdout.write("closed\n")


if __name__ == "__main__":
    main(sys.argv[2])
