"""Clients of this process, as the kit sees them: each is a driver on a loop of its own.

An action on a driver runs on its loop, and is awaited on the kit's. A driver whose loop does not run, or whose
client is closed, is skipped.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any, TypeAlias

from fencehold.client.aio.channel import Channel
from fencehold.client.aio.client import Client as AsyncClient
from fencehold.client.blocking.client import Client as BlockingClient
from fencehold.client.driver import Driver, drivers
from fencehold.client.protocol.connection import Phase
from fencehold.client.protocol.session import SessionProtocol
from fencehold.drivers.resp.wire import command
from fencehold.errors import UsageError
from fencehold.locks.clock import clock

AnyClient: TypeAlias = BlockingClient | AsyncClient

_PROBE = command("LOCK.SETTLE", 0)
"""It changes nothing, and is answered with the next entry, after all that the server sent before, pushes too."""


def driver_of(client: AnyClient) -> Driver:
    """What carries a client's session."""
    channel = client.portal().channel if isinstance(client, BlockingClient) else client._channel
    if not isinstance(channel, Channel):
        raise UsageError("only clients of a Fencehold service can be put to the test here")
    return channel.driver


def owner_of(line: tuple[int, int]) -> Driver | None:
    """Whose connection goes from the first to the second of these ports."""
    return next((driver for driver in drivers() if line in driver.lines()), None)


def living() -> list[Driver]:
    """The drivers whose clients are not closed."""
    return [driver for driver in drivers() if not driver.protocol.unusable and driver.loop.is_running()]


def is_reaching(driver: Driver) -> bool:
    """Whether a client wants a connection and has none."""
    return driver.protocol.connection.phase in (Phase.PAUSED, Phase.CONNECTING, Phase.GREETING)


async def pause_left(driver: Driver) -> float:
    """How many seconds a client waits until it tries again to connect; 0 if it is trying."""
    left: float | None = await _on_loop(driver, _pause_left, driver.protocol)
    return left or 0.0


async def wake(driver: Driver) -> float:
    """Let a client check the clock; returns the seconds until something is due for it."""
    due: float | None = await _on_loop(driver, _wake, driver)
    return inf if due is None else due


def quiet_for(driver: Driver) -> float:
    """Seconds in which a client does nothing but send keep-alives; 0 if it has something to do now.

    To be asked while no other thread runs, as `leap` is.
    """
    return max(0.0, driver.protocol.quiet_until() - clock())


def leap(driver: Driver, seconds: int) -> None:
    """Let a client assume that its last keep-alive was sent this many seconds later."""
    driver.protocol.leap(seconds)


async def put_to_sleep(driver: Driver) -> None:
    """Stop a client's time until `wake`."""
    await _on_loop(driver, driver.sleep)


async def kill(driver: Driver) -> None:
    """End a client without sending anything to the server."""
    await _on_loop(driver, _kill, driver)


def kill_soon(driver: Driver) -> None:
    """The same, not waited for: its loop may be the one that waits for this."""
    with suppress(RuntimeError):
        driver.loop.call_soon_threadsafe(_kill, driver)


async def hear(driver: Driver) -> None:
    """Wait until a client has received all that the server has sent to it so far."""
    answer = _Answer()
    await _on_loop(driver, _ask, driver, answer)
    await answer.of(driver)


class _Answer:
    """A future that is resolved on one loop and awaited on another. Its result does not matter."""

    def __init__(self) -> None:
        self._home = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self._home.create_future()

    async def of(self, driver: Driver) -> Any:
        """Wait for it; None if the client's loop ends first."""
        while not self.future.done() and driver.loop.is_running():
            await asyncio.wait({self.future}, timeout=0.01)
        return self.future.result() if self.future.done() else None

    def done(self) -> bool:
        return self.future.done()

    def set_result(self, result: Any, /) -> None:
        with suppress(RuntimeError):
            # The kit's loop may be closed by now, and no caller waits.
            self._home.call_soon_threadsafe(self._keep, result)

    def set_exception(self, error: BaseException, /) -> None:
        self.set_result(None)

    def _keep(self, result: Any) -> None:
        if not self.future.done():
            self.future.set_result(result)


async def _on_loop(driver: Driver, call: Callable[..., Any], *args: Any) -> Any:
    answer = _Answer()

    def do() -> None:
        try:
            answer.set_result(call(*args))
        except UsageError:
            # The client was closed meanwhile.
            answer.set_result(None)

    try:
        driver.loop.call_soon_threadsafe(do)
    except RuntimeError:
        return None
    return await answer.of(driver)


def _wake(driver: Driver) -> float:
    driver.wake()
    protocol = driver.protocol
    # The timer of a client that is connected is for keep-alives, and steps are small enough for those.
    due_at = protocol.session.next_end() if protocol.attached else protocol.wake_at
    # Less than the timeout: a reply that is in flight must not seem to be late.
    return min(due_at - clock(), protocol.settings.connect_timeout * 0.8)


def _pause_left(protocol: SessionProtocol) -> float:
    return max(0.0, protocol.wake_at - clock()) if protocol.connection.phase is Phase.PAUSED else 0.0


def _kill(driver: Driver) -> None:
    driver.protocol._on_closed()
    driver.act()


def _ask(driver: Driver, answer: _Answer) -> None:
    try:
        driver.protocol.read(_PROBE, answer, clock())
        driver.act()
    except UsageError:
        answer.set_result(None)
