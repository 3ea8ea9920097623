"""The channel: the short way from the verbs to the session protocol, and back by a future."""

import asyncio
from typing import Any

from fencehold.client.driver import Driver
from fencehold.client.identity import Owners
from fencehold.client.protocol import SessionProtocol
from fencehold.client.terms import Terms
from fencehold.client.trust import Grant
from fencehold.errors import UsageError


class Channel:
    """One protocol, its driver, and the loop both live on."""

    __slots__ = ("clock", "driver", "loop", "owners", "protocol")

    def __init__(self, protocol: SessionProtocol, driver: Driver) -> None:
        self.protocol = protocol
        self.driver = driver
        self.loop = driver.loop
        self.clock = driver.clock
        self.owners = Owners()

    async def acquire(self, terms: Terms, task: "asyncio.Task[Any]", owner: bytes | None = None) -> Grant | None:
        """Acquire for a task, or for an owner made `anew`. Whatever ends the waiting, nothing stays behind."""
        future: asyncio.Future[Any] = self.loop.create_future()
        request = self.protocol.acquire(terms, owner or self.owners.of(task), future, self.clock())
        self.driver.soon()
        try:
            return await future  # type: ignore[no-any-return]
        except BaseException:
            self.protocol.abandon(request, self.clock())
            self.driver.soon()
            raise

    def release(self, grant: Grant) -> "asyncio.Future[None]":
        """Give a grant back. It is done whether or not the future is awaited."""
        future: asyncio.Future[None] = self.loop.create_future()
        self.protocol.release(grant, future, self.clock())
        self.driver.soon()
        return future

    async def read(self, words: bytes) -> Any:
        """Send a command that may be sent twice, and return the reply as it came."""
        future: asyncio.Future[Any] = self.loop.create_future()
        self.protocol.read(words, future, self.clock())
        self.driver.soon()
        return await future

    async def ready(self) -> None:
        """Wait until a session is open."""
        future: asyncio.Future[None] = self.loop.create_future()
        self.protocol.ready(future, self.clock())
        self.driver.soon()
        await future

    async def close(self) -> None:
        """End the session, then everything."""
        future: asyncio.Future[None] = self.loop.create_future()
        self.protocol.close(future, self.clock())
        self.driver.soon()
        try:
            await asyncio.shield(future)
        finally:
            await self.driver.wait_closed()


def current_task() -> "asyncio.Task[Any]":
    """The task that asks."""
    task = asyncio.current_task()
    if task is None:
        raise UsageError("this is called inside a task")
    return task
