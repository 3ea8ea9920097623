"""Rounds in a process of their own."""

import os
from typing import Any

import pytest

from bench.contest import Call, Contest, ContestFailed, run
from bench.isolated import RoundFailed, call, target
from tests.unit.bench.fakes import Quiet


def process_id(noise: str) -> dict[str, float]:
    """A figure that tells which process gave it."""
    os.write(1, noise.encode())
    return {"pid": os.getpid()}


async def doubled(number: int) -> dict[str, float]:
    """A round that is a coroutine."""
    return {"number": number * 2}


def broken() -> dict[str, float]:
    """A round that raises."""
    raise ArithmeticError("two and two are five")


def endless() -> dict[str, float]:
    """A round that does not end by itself."""
    while True:
        pass


async def test_each_isolated_round_has_a_fresh_process() -> None:
    """No round sees another's memory; what a round prints is not taken for its figures."""
    contest = Contest(
        [Call("a", process_id, {"noise": '{"pid": 1}'}, isolated=True)],
        rounds=2,
        warmups=0,
        step_timeout_s=60,
    )
    pids = (await run(contest, Quiet())).series("a", "pid")
    assert len({*pids.values(), os.getpid(), 1}) == 4


async def test_an_isolated_round_may_be_a_coroutine() -> None:
    """The process runs it on a loop of its own."""
    assert (await call(doubled, {"number": 21})) == {"number": 42}


async def test_an_isolated_round_that_fails_brings_its_traceback_back() -> None:
    """What the process wrote to standard error is in the message."""
    with pytest.raises(RoundFailed, match=r"(?s)test_isolated:broken ended with 1.*two and two are five"):
        await call(broken, {})


async def test_an_isolated_round_that_does_not_end_is_killed() -> None:
    """The bound on a step holds for a process that never awaits."""
    contest = Contest([Call("a", endless, isolated=True)], rounds=1, warmups=0, step_timeout_s=0.2)
    with pytest.raises(ContestFailed, match="'a' failed in round 1 of 1"):
        await run(contest, Quiet())


def test_a_function_no_other_process_can_import_is_refused() -> None:
    """A local function has no name elsewhere."""

    def local() -> dict[str, Any]:
        return {}

    with pytest.raises(ValueError, match="a module's own function"):
        target(local)
