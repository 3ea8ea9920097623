"""One connection: a conversation with a socket and a clock.

Calls are written at once, and answered from within the reading; a call makes one future and one timer. A
connection on which nothing is heard while somebody waits is asked for a sign of life, and given up without one.
"""

import asyncio
from typing import Any

from fencehold.etcd.http2 import frames
from fencehold.etcd.http2.conversation import Conversation, Receiver, Stream
from fencehold.etcd.http2.status import CallFailed, Code, Status, failed

_SILENCE_S = 10.0
"""etcd hangs up on clients that ask more often than every 5 s whether it is there."""
_SIGN_S = 3.0


class Line(asyncio.Protocol):
    """A connection to one member, used by the loop that made it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._conversation = Conversation()
        self._transport: Any = None
        self._greeted: asyncio.Future[None] = self._loop.create_future()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._heard_at = self._asked_at = self._loop.time()
        """When something was last heard, and when a sign of life was last asked for."""
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether calls may begin here."""
        return not self._conversation.is_ending

    @property
    def is_over(self) -> bool:
        """Whether the connection is gone."""
        return self._over.done()

    async def greeted(self) -> None:
        """Until the other side has said that it speaks HTTP/2; nothing is asked before.

        Raises:
            CallFailed: it hung up instead.
        """
        await self._greeted

    async def ask(self, block: bytes, data: bytes, timeout_s: float | None) -> bytes:
        """One call with one answer.

        Raises:
            CallFailed: see its `code` and `is_sent`.
        """
        asked = _Asked(self._loop.create_future())
        stream = self.begin(block, asked)
        self.send(stream, data, is_last=True)
        timer = None
        if timeout_s is not None:
            now = self._loop.time()
            timer = self._loop.call_at(now + timeout_s, self._on_late, stream, asked, now)
        try:
            return await asked.answer
        except asyncio.CancelledError:
            self.cancel(stream)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def begin(self, block: bytes, receiver: Receiver) -> Stream:
        return self._conversation.begin(block, receiver)

    def send(self, stream: Stream, data: bytes, *, is_last: bool = False) -> None:
        self._conversation.send(stream, frames.message(data), is_last=is_last)
        self._flush()

    def on_read(self, stream: Stream, size: int) -> None:
        self._conversation.on_read(stream, size)
        self._flush()

    def cancel(self, stream: Stream) -> None:
        self._conversation.cancel(stream)
        self._flush()

    async def close(self, within_s: float = 1.0) -> None:
        """Hang up, and wait until that is done."""
        self._end(Code.CANCELLED, "closed here")
        if self._transport is None:
            return
        self._transport.close()
        try:
            await asyncio.wait({self._over}, timeout=within_s)
        finally:
            if not self.is_over:
                self._transport.abort()

    def on_late(self, stream: Stream, begun_at: float) -> None:
        """A call was not answered in time. If nothing at all was heard since it began, others use another line."""
        is_dead = self._heard_at <= begun_at
        if is_dead:
            self._conversation.retire()
        self.cancel(stream)
        if is_dead and self._conversation.is_idle:
            # Nobody would take what is still to be written.
            self._transport.abort()

    def _flush(self) -> None:
        if self._transport.is_closing():
            return
        if out := self._conversation.take():
            self._transport.write(out)
        if self._conversation.is_ending and self._conversation.is_idle:
            self._transport.close()

    def _on_late(self, stream: Stream, asked: "_Asked", begun_at: float) -> None:
        self.on_late(stream, begun_at)
        asked.on_end(Status(Code.DEADLINE_EXCEEDED, "no answer in time", is_sent=stream.number > 0))

    def _end(self, code: Code, why: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._greeted.done():
            self._greeted.set_exception(CallFailed(Code.UNAVAILABLE, why, is_sent=False))
            self._greeted.exception()
        self._conversation.end(code, why)

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._flush()
        self._timer = self._loop.call_later(_SILENCE_S, self._on_silence)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        try:
            self._conversation.feed(data)
        except frames.Broken as error:
            self._end(Code.UNAVAILABLE, f"it does not speak HTTP/2: {error}")
            self._transport.abort()
            return
        if not self._greeted.done() and self._conversation.is_greeted:
            self._greeted.set_result(None)
        self._flush()

    def connection_lost(self, error: Exception | None) -> None:
        why = "it hung up" if error is None else str(error) or repr(error)
        self._end(Code.UNAVAILABLE, why)
        if not self._over.done():
            self._over.set_result(None)

    def _on_silence(self) -> None:
        if self._asked_at > self._heard_at:
            self._end(Code.UNAVAILABLE, "it gives no sign of life")
            self._transport.abort()
            return
        now, wait_s = self._loop.time(), _SILENCE_S
        if not self._conversation.is_idle and now - self._heard_at >= _SILENCE_S:
            self._conversation.ping()
            self._flush()
            self._asked_at, wait_s = now, _SIGN_S
        self._timer = self._loop.call_later(wait_s, self._on_silence)


class _Asked:
    """Waits for one answer."""

    __slots__ = ("_data", "answer")

    def __init__(self, answer: "asyncio.Future[bytes]") -> None:
        self.answer = answer
        self._data: bytes | None = None

    def on_message(self, data: bytes) -> None:
        self._data = data

    def on_end(self, status: Status) -> None:
        if self.answer.done():
            return
        if status.code is Code.OK and self._data is not None:
            self.answer.set_result(self._data)
        elif status.code is Code.OK:
            self.answer.set_exception(CallFailed(Code.INTERNAL, "it answered nothing"))
        else:
            self.answer.set_exception(failed(status))
