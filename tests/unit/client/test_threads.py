"""Whose a hold is: a number that is given again makes no thread an owner, and a body may be left elsewhere."""

import _thread
import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from functools import partial
from typing import Any

import pytest

import fencehold
from fencehold import Client, aio
from fencehold.errors import NotOwner, UsageError
from fencehold.locks.identity import this_thread
from tests.unit.client.service import service, service_on_a_thread, until_true


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with service_on_a_thread() as url, fencehold.connect(url) as client:
        yield client


def in_a_thread(call: Callable[[], Any]) -> Any:
    """Run it in a thread that ends with it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(10)


def in_a_foreign_thread(call: Callable[[], Any]) -> Any:
    """Run it in a thread that Python did not start, as far as `threading` knows."""
    results: list[Any] = []
    over = threading.Event()

    def body() -> None:
        try:
            results.append(call())
        finally:
            over.set()

    _thread.start_new_thread(body, ())
    assert over.wait(10)
    (result,) = results
    return result


def in_a_thread_numbered(number: int, call: Callable[[], Any], start: Callable[[Callable[[], Any]], Any]) -> Any:
    """Run it in a thread that was given this number again, as the system does before long."""
    for _ in range(1_000):
        found, result = start(lambda: (True, call()) if threading.get_ident() == number else (False, None))
        if found:
            return result
    pytest.fail("the number was not given again")


@pytest.mark.parametrize("start", [in_a_thread, in_a_foreign_thread])
def test_a_thread_does_not_own_what_a_dead_one_held(
    client: Client, start: Callable[[Callable[[], Any]], Any]
) -> None:
    """Though it was given the same number, it owns nothing, and can release nothing."""
    lock = client.lock("numbered", timeout=0)
    number, hold = start(lambda: (threading.get_ident(), lock.acquire()))

    def ask() -> bool:
        with pytest.raises(NotOwner):
            lock.release()
        return lock.owned()

    assert in_a_thread_numbered(number, ask, start) is False
    hold.check()
    hold.release()


@pytest.mark.parametrize("start", [in_a_thread, in_a_foreign_thread])
def test_a_thread_is_no_part_of_a_dead_ones_circle(
    client: Client, start: Callable[[Callable[[], Any]], Any]
) -> None:
    """It waits for what a dead thread holds, as for anything else, and is not refused for a deadlock."""
    number, hold = start(lambda: (threading.get_ident(), client.lock("left").acquire()))
    assert in_a_thread_numbered(number, lambda: client.lock("left").acquire(timeout=0.01), start) is None
    hold.release()


@pytest.mark.parametrize("start", [in_a_thread, in_a_foreign_thread])
def test_a_re_entrant_lock_is_not_the_next_threads(
    client: Client, start: Callable[[Callable[[], Any]], Any]
) -> None:
    """Whoever gets the number of a dead thread does not get in where that one was."""
    lock = client.rlock("re-entrant", timeout=0)
    number, hold = start(lambda: (threading.get_ident(), lock.acquire()))
    assert in_a_thread_numbered(number, lock.acquire, start) is None
    hold.release()


def test_nothing_is_kept_of_a_thread_that_released(client: Client) -> None:
    """A lock that many short threads use does not remember them."""
    lock = client.lock("forgotten")
    seen: list[weakref.ref[Any]] = []

    def use() -> None:
        seen.append(weakref.ref(this_thread()))
        hold = lock.acquire()
        assert hold is not None
        hold.release()

    for _ in range(10):
        in_a_thread(use)
    until_true(lambda: gc.collect() >= 0 and not any(identity() for identity in seen))


@pytest.mark.parametrize("kind", ["lock", "rlock"])
def test_a_body_may_be_left_on_another_thread(client: Client, kind: str) -> None:
    """Whoever closes a generator or an exit stack releases what was entered elsewhere."""
    lock: Any = getattr(client, kind)("elsewhere", timeout=0)
    for _ in range(2):
        stack = ExitStack()
        hold = in_a_thread(partial(stack.enter_context, lock))
        hold.check()
        stack.close()
        assert hold.state is fencehold.State.RELEASED
    stack.enter_context(lock)
    in_a_thread(stack.close)
    with lock:
        assert lock.owned()


@pytest.mark.parametrize("kind", ["lock", "rlock"])
def test_leaving_what_was_not_entered_is_told(client: Client, kind: str) -> None:
    """Not by a `KeyError`."""
    lock: Any = getattr(client, kind)("nowhere")
    with pytest.raises(UsageError, match="was not entered"):
        lock.__exit__(None, None, None)


def test_nobody_elses_hold_is_released_by_guessing(client: Client) -> None:
    """Where several threads are inside by one object, one that is not says so, and releases nothing."""
    lock = client.semaphore("guessed", 2)
    with ThreadPoolExecutor(2) as pool:
        together = threading.Barrier(2)

        def enter() -> Any:
            together.wait(10)
            hold = lock.__enter__()
            together.wait(10)
            return hold

        holds = [entered.result(10) for entered in [pool.submit(enter), pool.submit(enter)]]
        with pytest.raises(UsageError, match="2 others are inside by the same object"):
            lock.__exit__(None, None, None)
        error = KeyError("the body's own")
        lock.__exit__(KeyError, error, None)
        assert "Make a lock object for each `with`" in error.__notes__[0]
        for hold in holds:
            hold.check()
            hold.release()


async def test_no_other_tasks_hold_is_released_by_guessing() -> None:
    """As with threads; and where there is one body only, another task may leave it."""
    async with service() as url, aio.connect(url) as client:
        lock = client.semaphore("guessed", 2)
        one, two = AsyncExitStack(), AsyncExitStack()
        holds = [await asyncio.create_task(stack.enter_async_context(lock)) for stack in (one, two)]
        with pytest.raises(UsageError, match="2 others are inside by the same object"):
            await one.aclose()
        for hold in holds:
            hold.check()
            await hold.release()
        re_entrant, stack = client.rlock("r"), AsyncExitStack()
        hold = await asyncio.create_task(stack.enter_async_context(re_entrant))
        await stack.aclose()
        assert hold.state is fencehold.State.RELEASED


async def test_waiting_for_a_loss_says_whether_it_happened_in_either_client(client: Client) -> None:
    """`wait` is as that of an event, with a timeout or without; the reason is beside it."""
    hold = client.lock("lost").acquire()
    assert hold is not None
    assert hold.lost.wait(0) is False
    client.break_hold("lost")
    assert hold.lost.wait() is True
    assert "force-released" in hold.lost.reason

    async def test() -> None:
        async with service() as url, aio.connect(url) as other:
            hold = await other.lock("lost").acquire()
            assert hold is not None
            assert await hold.lost.wait(0) is False
            assert await hold.lost.wait(timeout=0.001) is False
            await other.break_hold("lost")
            assert await hold.lost.wait() is True
            assert await hold.lost.wait(0) is True
            assert await hold.lost == hold.lost.reason != ""

    await test()
