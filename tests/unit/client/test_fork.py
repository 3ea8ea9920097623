"""Forks: a child inherits no hold, no connection and no heart; the parent notices nothing."""

import asyncio
import multiprocessing
import warnings

import pytest

import fencehold
from fencehold import State, aio
from fencehold.errors import HoldLost, UsageError
from tests.forks import in_a_child
from tests.unit.client.service import run, service, service_on_a_thread, until_true

fork = multiprocessing.get_context("fork")


def test_a_forked_child_gets_a_session_of_its_own() -> None:
    """In the child the parent's hold is lost, and the client works with a new session; the parent keeps all."""
    with service_on_a_thread() as url, fencehold.connect(url) as client:
        with client.lock("a") as hold:

            def check() -> None:
                assert hold.state is State.LOST
                with pytest.raises(HoldLost, match="parent"):
                    hold.check()
                assert client.lock("a").acquire(timeout=0) is None
                with client.lock("b") as mine:
                    assert mine.fence > hold.fence
                client.close()

            assert in_a_child(check) == 0
            assert hold.state is State.HELD
            hold.check()
        with client.lock("a") as again:
            assert again.fence > hold.fence


def test_a_child_that_dies_takes_nothing_with_it() -> None:
    """A child that ends without a word does not end the parent's session."""
    with service_on_a_thread() as url, fencehold.connect(url, grace=0) as client, client.lock("a") as hold:
        for _ in range(3):
            assert in_a_child(lambda: None) == 0
        assert client.lock("a").locked()
        hold.check()
        assert client.explain("a").holders[0].fence == hold.fence


def test_processes_of_multiprocessing_exclude_one_another() -> None:
    """Workers forked from a process with a client take turns on a name, each with its own session."""
    with service_on_a_thread() as url, fencehold.connect(url) as client:
        queue = fork.SimpleQueue()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            workers = [fork.Process(target=_work, args=(client, queue)) for _ in range(3)]
            for worker in workers:
                worker.start()
        fences = [queue.get() for _ in range(15)]
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
        assert fences == sorted(set(fences))
        until_true(lambda: not client.lock("shared").locked())


def _work(client: fencehold.Client, queue: "multiprocessing.SimpleQueue[int]") -> None:
    for _ in range(5):
        with client.lock("shared") as hold:
            queue.put(hold.fence)
    client.close()


async def _acquire(client: aio.Client) -> None:
    await client.lock("b").acquire()


def test_an_async_client_is_not_used_in_a_child() -> None:
    """In the child the async client says clearly that it belongs to the parent, and the parent's goes on."""

    async def test() -> None:
        async with service() as url, aio.connect(url, grace=0) as client, client.lock("a") as hold:

            def check() -> None:
                assert hold.state is State.LOST
                with pytest.raises(UsageError, match="fork"):
                    asyncio.run(_acquire(client))

            assert in_a_child(check) == 0
            hold.check()
            assert await client.lock("a").locked()
            await asyncio.sleep(0)
            assert hold.state is State.HELD

    run(test())
