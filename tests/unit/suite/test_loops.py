"""Tests that are coroutines: each has a loop of its own, which it must leave in order."""

import asyncio
import gc

import pytest
import uvloop

from tests import loops


@pytest.fixture
def seven() -> int:
    return 7


async def test_a_coroutine_is_run_with_its_fixtures(seven: int) -> None:
    """They come by name."""
    await asyncio.sleep(0)
    assert seven == 7


@pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
async def test_a_test_may_choose_its_loop(loop_factory: loops.LoopFactory) -> None:
    """By a fixture or parameter that makes it."""
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop) == (loop_factory is uvloop.new_event_loop)


def test_a_task_that_is_left_fails_the_test() -> None:
    """It would go on in the next one, if the loop did."""

    async def leaving() -> None:
        leaving.task = asyncio.create_task(asyncio.sleep(60))  # type: ignore[attr-defined]

    with pytest.raises(AssertionError, match="tasks left behind"):
        loops.run(leaving())


def test_what_the_loop_complains_of_fails_the_test() -> None:
    """An exception in a task that nobody looks at is found."""

    async def fail() -> None:
        raise ValueError("unseen")

    async def failing() -> None:
        task = asyncio.create_task(fail())
        await asyncio.wait({task})
        del task
        gc.collect()

    with pytest.raises(AssertionError, match="unseen"):
        loops.run(failing())


def test_what_a_coroutine_returns_is_returned() -> None:
    """For tests that run several loops."""

    async def work() -> int:
        return 7

    assert loops.run(work()) == 7
