"""The current hold: what a body runs under, in both clients."""

import asyncio
import threading
import weakref
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack

import pytest

import fencehold
from fencehold import Client, aio, current_hold
from fencehold.errors import HoldLost
from tests.unit.client.service import run, service, service_on_a_thread


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with service_on_a_thread() as url, fencehold.connect(url) as client:
        yield client


def test_a_body_finds_its_hold(client: Client) -> None:
    """Inside there is the innermost hold, and none outside; an acquire has no body."""
    assert current_hold() is None
    with client.lock("a") as outer:
        with client.lock("b") as inner:
            assert current_hold() is inner
        assert current_hold() is outer
        hold = client.lock("c").acquire()
        assert hold is not None
        assert current_hold() is outer
        hold.release()
    assert current_hold() is None

    @client.lock("decorated")
    def name() -> str:
        hold = current_hold()
        assert hold is not None
        return hold.name

    assert name() == "decorated"
    assert current_hold() is None


def test_a_level_of_a_re_entrant_lock_is_a_body(client: Client) -> None:
    """Going in again makes the same hold the current one again."""
    lock = client.rlock("r")
    with lock as hold:
        with client.lock("a") as other:
            with lock:
                assert current_hold() is hold
            assert current_hold() is other
        assert current_hold() is hold
    assert current_hold() is None


def test_a_job_finds_its_hold(client: Client) -> None:
    """A job can pass its fence on, and check; also when it fails, nothing is left behind."""

    @client.once("job", at_most=60, at_least=0.01, busy="wait")
    def job(fails: bool) -> int:
        hold = current_hold()
        assert hold is not None
        hold.check()
        if fails:
            raise KeyError
        return hold.fence

    assert (job(False) or 0) > 0
    assert current_hold() is None
    with pytest.raises(KeyError):
        job(True)
    assert current_hold() is None


def test_a_lost_hold_is_still_the_current_one(client: Client) -> None:
    """Whoever asks must hear that it is lost, not that there is none."""
    with pytest.raises(HoldLost):
        with client.lock("a", ttl=0.05) as hold:
            assert hold.lost.wait(10)
            current = current_hold()
            assert current is hold
            with pytest.raises(HoldLost):
                current.check()


def test_bodies_may_be_left_in_any_order(client: Client) -> None:
    """What is over is never current, whoever was entered first."""
    one, two = ExitStack(), ExitStack()
    one.enter_context(client.lock("a"))
    inner = two.enter_context(client.lock("b"))
    one.close()
    assert current_hold() is inner
    two.close()
    assert current_hold() is None


def test_threads_are_outside(client: Client) -> None:
    """A thread that was begun in a body has a context of its own."""
    seen: list[object] = []
    with client.lock("a"):
        thread = threading.Thread(target=lambda: seen.append(current_hold()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_tasks_are_where_they_were_begun() -> None:
    """Tasks and threads of `to_thread` begun in a body are inside until it is over; others are not."""

    async def test() -> None:
        async with service() as url, aio.connect(url) as client:
            over = asyncio.Event()

            async def later() -> object:
                await over.wait()
                return current_hold()

            async with client.lock("a") as hold:
                assert current_hold() is hold
                assert await asyncio.to_thread(current_hold) is hold
                task = asyncio.create_task(later())
                async with client.rlock("b") as inner:
                    assert current_hold() is inner
            assert current_hold() is None
            over.set()
            assert await task is None

            @client.once("job", at_most=60)
            async def job() -> object:
                return current_hold()

            assert isinstance(await job(), aio.Hold)
            assert current_hold() is None

    run(test())


def test_a_body_may_be_left_by_another_task() -> None:
    """An exit stack that is closed elsewhere leaves nothing current."""

    async def test() -> None:
        async with service() as url, aio.connect(url) as client:
            for _ in range(2):
                stack = AsyncExitStack()
                hold = await stack.enter_async_context(client.lock("a"))
                await asyncio.create_task(stack.aclose())
                assert current_hold() is None
            gone = weakref.ref(hold)
            async with client.lock("a"):
                del hold, stack
            assert gone() is None, "bodies that are over are not strung together"

    run(test())


def test_every_flavour_of_hold_can_be_named() -> None:
    """Applications write the types of what they pass on; the async ones are in `aio`."""
    for name in ("Client", "Election", "Hold", "Leadership", "Lock", "Loss", "RLock", "RWLock", "Watch"):
        assert getattr(fencehold, name).__module__.startswith("fencehold.client.blocking.")
        assert getattr(aio, name).__module__.startswith("fencehold.client.aio.")
    assert issubclass(fencehold.Hold, fencehold.Holding)
    assert issubclass(aio.Hold, fencehold.Holding)
