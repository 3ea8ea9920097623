"""Asking on a ground: clients, and locks of the best tier to be had there."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import fencehold
from fencehold import aio
from fencehold.client.aio.client import Connecting
from tests.behaviour.ground import Ground

PATIENCE_S = 90.0


def connect(ground: Ground, **options: Any) -> Connecting:
    """An async client."""
    return aio.connect(ground.url, lazy=False, connect_timeout=10, **options)


def blocking(ground: Ground, **options: Any) -> fencehold.Client:
    """A blocking client."""
    return fencehold.connect(ground.url, connect_timeout=10, **options)


def proceeding(url: str) -> Connecting:
    """A client that goes on without a lock for EFFICIENCY when there is nobody to ask."""
    return aio.connect(
        correctness="memory://proceeding", efficiency=url, on_unavailable="proceed", connect_timeout=30, ttl=5
    )


async def until(is_true: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(seconds):
        while not is_true():
            await asyncio.sleep(0.005)


def crashing_holder(ground: Ground, name: str, ttl: float) -> AbstractContextManager["subprocess.Popen[str]"]:
    """Another process that holds a name until it is killed."""
    return _process("holder", "held", ground.url, name, ground.tier.value, ttl)


def runner(
    ground: Ground, name: str, at_most: float, at_least: float, *, quick: bool
) -> AbstractContextManager["subprocess.Popen[str]"]:
    """Another process that runs a job once: done and gone by now, or at it until it is killed."""
    how = "quick" if quick else "slow"
    said = "ran" if quick else "running"
    words = (ground.url, name, ground.tier.value, max(ground.ttl_min, 1.0), at_most, at_least, how)
    return _process("runner", said, *words)


@contextmanager
def _process(module: str, said: str, *words: object) -> Iterator["subprocess.Popen[str]"]:
    """One of the programs beside this, which has said what it says."""
    command = [sys.executable, "-m", f"tests.behaviour.{module}", *map(str, words)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == f"{said}\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
