"""What the shared tests of the clients are written with: the blocking side, by the names of `side_aio`."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeAlias, TypeVar

from fencehold import Client, Watch, connect
from tests.unit.client.service import PATIENCE_S, service_on_a_thread, until_true

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
Begun: TypeAlias = Future[Result]
Event = threading.Event
service = service_on_a_thread
until = until_true


def run(test: Callable[[], None]) -> None:
    """Run a test, and see that it leaves no thread behind."""
    test()
    until_true(lambda: "fencehold" not in [thread.name for thread in threading.enumerate()])


def begin(call: Callable[..., Result], *args: Any) -> "Begun[Result]":
    """Have something done in a thread of its own."""
    future: Future[Result] = Future()

    def work() -> None:
        try:
            future.set_result(call(*args))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def ended(begun: "Begun[Result]") -> Result:
    """What came of it."""
    return begun.result(PATIENCE_S)


def outcome(begun: "Begun[Any]") -> Any:
    """What came of it, or what it raised."""
    return begun.exception(PATIENCE_S) or begun.result()


def pause(seconds: float) -> None:
    """Let others go on."""
    time.sleep(seconds)
