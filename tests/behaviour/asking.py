"""Asking on a ground: clients, and locks of the best tier to be had there."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import fencehold
from fencehold import aio
from fencehold.client.aio.client import Connecting
from tests.behaviour.ground import Ground

PATIENCE_S = 30.0


def connect(ground: Ground, **options: Any) -> Connecting:
    """An async client."""
    return aio.connect(ground.url, connect_timeout=10, **options)


def blocking(ground: Ground, **options: Any) -> fencehold.Client:
    """A blocking client."""
    return fencehold.connect(ground.url, connect_timeout=10, **options)


async def until(is_true: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(seconds):
        while not is_true():
            await asyncio.sleep(0.005)


@contextmanager
def crashing_holder(ground: Ground, name: str, ttl: float) -> Iterator["subprocess.Popen[str]"]:
    """Another process that holds a name until it is killed."""
    words = [sys.executable, "-m", "tests.behaviour.holder", ground.url, name, ground.tier.value, str(ttl)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
