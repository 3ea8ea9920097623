"""What the shared tests of the clients are written with: the async side."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, TypeVar

from fencehold.aio import Client, Watch, connect
from tests.unit.client.service import PATIENCE_S, run, service, until

__all__ = [
    "Begun",
    "Client",
    "Event",
    "Watch",
    "begin",
    "connect",
    "ended",
    "outcome",
    "pause",
    "run",
    "service",
    "until",
]

Result = TypeVar("Result")
Begun: TypeAlias = asyncio.Task[Result]
Event = asyncio.Event


def begin(call: Callable[..., Coroutine[Any, Any, Result]], *args: Any) -> "Begun[Result]":
    """Have something done in a task of its own."""
    return asyncio.create_task(call(*args))


async def ended(begun: "Begun[Result]") -> Result:
    """What came of it."""
    return await asyncio.wait_for(begun, PATIENCE_S)


async def outcome(begun: "Begun[Any]") -> Any:
    """What came of it, or what it raised."""
    await asyncio.wait([begun], timeout=PATIENCE_S)
    return begun.exception() or begun.result()


async def pause(seconds: float) -> None:
    """Let others go on."""
    await asyncio.sleep(seconds)
