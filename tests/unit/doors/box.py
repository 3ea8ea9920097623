"""A server in a box and clients that speak to it in plain RESP, byte by byte if need be."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import hiredis

from fencehold.core.limits import Limits
from fencehold.doors.resp.bounds import Bounds as DoorBounds
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.journal.port import Journal
from fencehold.node.leader import Bounds
from fencehold.server import Config, Server
from tests import loops
from tests.unit.node.doubles import HandClock, until

Word = str | bytes | int
NEVER_PUSHED = 0.03
"""Seconds in which a push that is not to come would have come."""


def frame(*words: Word) -> bytes:
    """One command as bytes."""
    encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded)


class Failed(Exception):
    """The reply was an error; `code` is its first word."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.code, _, self.detail = message.partition(" ")


class Client:
    """One connection. Replies and pushes are kept apart, as a real client does."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._stream = reader
        self._reader = hiredis.Reader()
        self._replies: deque[Any] = deque()
        self._pushes: deque[list[Any]] = deque()
        self.version = 2
        self.received_bytes = 0

    async def call(self, *words: Word) -> Any:
        """Send a command and return its reply; an error is raised."""
        self.send(*words)
        return await self.reply()

    async def refusal(self, *words: Word) -> str:
        """Send a command that is to be refused; returns the code."""
        return (await self.failure(*words)).code

    async def failure(self, *words: Word) -> Failed:
        self.send(*words)
        try:
            reply = await self.reply()
        except Failed as failed:
            return failed
        raise AssertionError(f"{words} was answered: {reply}")

    def send(self, *words: Word) -> None:
        self.writer.write(frame(*words))

    async def reply(self) -> Any:
        """The next reply; maps come out as dictionaries in either protocol, where that can be told."""
        while not self._replies:
            await self._receive()
        reply = self._replies.popleft()
        if isinstance(reply, hiredis.ReplyError):
            raise Failed(str(reply))
        return _text(reply)

    async def data(self, *words: Word) -> bytes | None:
        """Send a command whose reply is bytes that are no text, or null."""
        self.send(*words)
        while not self._replies:
            await self._receive()
        reply = self._replies.popleft()
        if isinstance(reply, hiredis.ReplyError):
            raise Failed(str(reply))
        assert reply is None or isinstance(reply, bytes), reply
        return reply

    async def map(self, *words: Word) -> dict[str, Any]:
        """Send a command whose reply is a map: in RESP2 it comes flat."""
        return as_map(await self.call(*words))

    async def push(self) -> list[Any]:
        """The next push."""
        while not self._pushes:
            await self._receive()
        return list(_text(self._pushes.popleft()))

    async def no_push(self) -> None:
        """See that none comes."""
        try:
            async with asyncio.timeout(NEVER_PUSHED):
                pushed = await self.push()
        except TimeoutError:
            return
        raise AssertionError(f"pushed: {pushed}")

    async def ended(self) -> str:
        """Wait until the server closes the connection; returns its last word, if it is an error."""
        last = ""
        while True:
            try:
                await self._receive()
            except (EOFError, ConnectionError):
                for reply in self._replies:
                    last = str(reply) if isinstance(reply, hiredis.ReplyError) else last
                return last

    async def _receive(self) -> None:
        async with asyncio.timeout(10):
            data = await self._stream.read(1 << 16)
        if not data:
            raise EOFError("the server closed the connection")
        self.received_bytes += len(data)
        self._reader.feed(data)
        while (message := self._reader.gets()) is not False:
            (self._pushes if isinstance(message, hiredis.PushNotification) else self._replies).append(message)

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def as_map(reply: Any) -> dict[str, Any]:
    """A map, whichever protocol it came in."""
    if isinstance(reply, dict):
        return reply
    return dict(zip(reply[::2], reply[1::2], strict=True))


def _text(value: Any) -> Any:
    match value:
        case bytes():
            return value.decode()
        case dict():
            return {_text(key): _text(part) for key, part in value.items()}
        case list():
            return [_text(part) for part in value]
        case _:
            return value


class Box:
    """A server on a port of its own, a clock moved by hand, and the clients that came."""

    def __init__(self, server: Server, clock: HandClock) -> None:
        self.server = server
        self.clock = clock
        self._clients: list[Client] = []

    @property
    def state(self) -> Any:
        return self.server.node.replica.machine.state

    async def client(self, version: int = 2, *, session: int | None = None, grace_ms: int = 0) -> Client:
        """A new connection; with `session` it opens one of that ttl."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        client = Client(reader, writer)
        self._clients.append(client)
        if version == 3:
            await client.call("HELLO", 3)
            client.version = 3
        if session is not None:
            await client.call("SESSION.OPEN", "TTL", session, "GRACE", grace_ms)
        return client

    async def pass_time(self, ms: int) -> None:
        """Let logical time go on by so much, in steps that the machine does not cap."""
        until_at = self.state.now_at + ms
        while ms > 0:
            step, ms = min(ms, 1_000), ms - 1_000
            before = self.state.now_at
            self.clock.advance(step)
            await until(lambda wanted=before + step: self.state.now_at >= wanted)  # type: ignore[misc]
        assert self.state.now_at == until_at

    async def waiting(self, count: int) -> None:
        """Wait until so many requests wait."""
        await until(lambda: len(self.state.waiters) == count)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


Scenario = Callable[[Box], Coroutine[Any, Any, None]]


@contextlib.asynccontextmanager
async def serving(
    *,
    door: DoorBounds | None = None,
    limits: Limits | None = None,
    journal: Callable[[], Journal] | None = None,
) -> AsyncIterator[Box]:
    """A server with nothing in it yet, until the end; by then, nobody may be connected any more."""
    clock = HandClock()
    config = Config(port=0, listener=door or DoorBounds(), limits=limits or Limits(), leader=Bounds(tick_s=0.002))
    made = journal() if journal is not None else MemoryJournal(MemoryStore())
    async with Server(config, journal=made, clock=clock, calendar=clock.unix_ms) as server:
        box = Box(server, clock)
        try:
            yield box
        finally:
            await box.close()
        await until(lambda: not server.door.connections)


def serve(
    scenario: Scenario, *, limits: Limits | None = None, journal: Callable[[], Journal] | None = None
) -> None:
    """Run a scenario against a server of its own, for a test that cannot be a coroutine."""

    async def served() -> None:
        async with serving(limits=limits, journal=journal) as box:
            await scenario(box)

    loops.run(served())
