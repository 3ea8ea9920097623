"""A line to a Redis: one connection that many use at once.

1. Commands are answered in the order in which they were sent. One goes out at once, if none is under way; else
   those of one turn of the loop go out in one write.
2. A line that is lost ends every command: `Unavailable`, if it was not written yet; else `OutcomeUnknown`.
3. A command that is not answered in time takes the line with it: what comes after it would not be answered either,
   and an answer that comes late must not be taken for that of another.
4. Whoever stops waiting for an answer changes nothing: the answer is awaited all the same, and dropped.
5. What Redis says unasked, a message on a channel, goes to whoever made the line.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias, cast

import hiredis

from fencehold.drivers.resp.failures import Refusal, never_sent, unanswered

OnMessage: TypeAlias = Callable[[bytes], None]
"""Called with the payload of a message."""

Word: TypeAlias = str | bytes | int

_MISSING = object()
_CLOSE_S = 1.0


class Line(asyncio.Protocol):
    """Belongs to the loop it was made on. Answers are values: an error is one that the caller raises."""

    _transport: asyncio.Transport
    """There from when it is connected."""

    def __init__(self, server: str, answer_s: float) -> None:
        self.server = server
        self.answer_s = answer_s
        self.is_lost = False
        self.on_message: OnMessage = _ignore
        self.on_lost: Callable[[Line], None] = _ignore
        self._loop = asyncio.get_running_loop()
        self._gone = asyncio.Event()
        self._parser = hiredis.Reader(replyError=Refusal, notEnoughData=_MISSING)
        self._unsent: list[bytes] = []
        self._pending: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._scripts: set[str] = set()

    def is_new_to(self, script: str) -> bool:
        """Whether a script of this hash was not asked for here yet: Redis may not know it. From now on it was."""
        is_new = script not in self._scripts
        self._scripts.add(script)
        return is_new

    def send(self, command: bytes) -> "asyncio.Future[Any]":
        """Have a command sent; the future's result is the answer, or the error that is one."""
        future = self._loop.create_future()
        if self.is_lost:
            future.set_result(never_sent(self.server))
            return future
        if not self._pending:
            self._transport.write(command)
        else:
            if not self._unsent:
                self._loop.call_soon(self._flush)
            self._unsent.append(command)
        self._pending.append((future, self._loop.time()))
        if self._watch is None:
            self._watch = self._loop.call_later(self.answer_s, self._look)
        return future

    def drop(self, why: str) -> None:
        """Give the line up."""
        if not self.is_lost:
            self._lose(why)
            self._transport.abort()

    async def close(self) -> None:
        """Give the line up, and wait until its socket is closed."""
        self.drop("the client was closed")
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._gone.wait()

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed(data)
        try:
            while (reply := self._parser.gets()) is not _MISSING:
                self._on_reply(reply)
        except hiredis.ProtocolError as error:
            self.drop(f"what it sends is no RESP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(str(exc) if exc else "it closed the connection")
        self._gone.set()

    # Inside.

    def _flush(self) -> None:
        if self._unsent and not self.is_lost:
            unsent, self._unsent = self._unsent, []
            self._transport.write(unsent[0] if len(unsent) == 1 else b"".join(unsent))

    def _on_reply(self, reply: Any) -> None:
        if isinstance(reply, list) and _is_push(reply):
            if reply[0] == b"message":
                # Behind whoever waits for an answer that came with it: what they do may make the message needless.
                self._loop.call_soon(self.on_message, reply[2])
            return
        if not self._pending:
            self.drop("it answers what was not asked")
            return
        future, _ = self._pending.popleft()
        if not future.done():
            future.set_result(reply)

    def _look(self) -> None:
        self._watch = None
        if not self._pending:
            return
        left_s = self._pending[0][1] + self.answer_s - self._loop.time()
        if left_s > 0:
            self._watch = self._loop.call_later(left_s, self._look)
        else:
            self.drop(f"nothing was heard for {self.answer_s:g} s")

    def _lose(self, why: str) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        if self._watch is not None:
            self._watch.cancel()
        written = len(self._pending) - len(self._unsent)
        for at, (future, _) in enumerate(self._pending):
            if not future.done():
                future.set_result(unanswered(self.server, why) if at < written else never_sent(self.server))
        self._pending.clear()
        self._unsent.clear()
        self.on_lost(self)


def pack(words: "tuple[Word, ...]") -> bytes:
    """A command as it travels."""
    return cast(bytes, hiredis.pack_command(cast(Any, words)))


def _is_push(reply: list[Any]) -> bool:
    # By its first word, and not by its class, which older versions of hiredis do not have: no answer begins so.
    return bool(reply) and reply[0] in (b"message", b"subscribe", b"unsubscribe")


def _ignore(_: object) -> None:
    pass
