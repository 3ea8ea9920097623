"""A connection: a conversation with a socket and a clock, and how the socket is connected (RFC 8305).

A name may have several addresses, and one of them may be a black hole: a protocol that is not routed, a machine
that is gone. So the next address is tried when the one before has failed, or has not answered for a moment, and
the first that answers is taken. How long all of it may take is the caller's to say.

Calls are written at once, and answered from within the reading; a call makes one timer and one write, as answers
to pings wait a moment for one another, and a future only if it is awaited. A connection on which nothing comes
while a call waits gets a keep-alive ping, and is closed if that is not answered. A server that gets pings too
often says so and hangs up; the next connection pings half as often.
"""

import asyncio
import os
import socket
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from fencehold.drivers.etcd.http2.conversation import Conversation, Receiver, Stream
from fencehold.drivers.etcd.http2.status import CallFailed, Status, failed
from fencehold.drivers.http2 import frames
from fencehold.drivers.http2.codes import Code

_HEAD_START_S = 0.25
"""What an address has before the next one is tried as well; RFC 8305, 8."""
_SILENCE_S = 10.0
"""etcd hangs up on clients that ping more often than every 5 s, unless it is configured otherwise
(`--grpc-keepalive-min-time`)."""
_SILENCE_S_MAX = 320.0
"""Servers of gRPC, by default, want pings no more often than every 5 minutes."""
_SIGN_S = 3.0
_UNTAKEN_BYTES_MAX = 64 << 20
"""More than a server of gRPC ever has room for: replies pile up for a peer that sends and does not read."""
_SIGN_DELAY_S = 0.1
"""How long an answer to a ping may wait: it would be a write of its own for every request."""
_FAREWELL_S = 1.0
"""How long a peer that broke the protocol has to read why it is disconnected."""


class HostAddress(NamedTuple):
    """One address of a host, as sockets take it."""

    family: int
    where: Any

    def __str__(self) -> str:
        host, port = self.where[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


async def connect(host: str, port: int) -> socket.socket:
    """A socket that is connected.

    Raises:
        OSError: none of the addresses answers, or there are none; it says which, and why.
    """
    race = _Race()
    try:
        return await race.winner(interleaved(await resolve(host, port)))
    finally:
        race.close()


async def resolve(host: str, port: int) -> list[HostAddress]:
    """The addresses of a host, in the order in which the system prefers them."""
    try:
        # What is an address already needs no thread to wait in.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [HostAddress(family, where) for family, _, _, _, where in found]


def interleaved(addresses: Sequence[HostAddress]) -> list[HostAddress]:
    """The same, families in turns: when one of them leads nowhere, the second attempt is on another."""
    families: dict[int, list[HostAddress]] = defaultdict(list)
    for address in addresses:
        families[address.family].append(address)
    return [each for each in chain.from_iterable(zip_longest(*families.values())) if each is not None]


class _Race:
    """Attempts to connect, begun one after another until one succeeds."""

    def __init__(self) -> None:
        self._attempts: dict[asyncio.Task[socket.socket], HostAddress] = {}
        self._failures: dict[HostAddress, str] = {}

    async def winner(self, addresses: list[HostAddress]) -> socket.socket:
        """The first socket that is connected.

        Raises:
            OSError: none is.
        """
        for address in addresses:
            self._attempts[asyncio.create_task(_attempt(address))] = address
            if (sock := await self._first(_HEAD_START_S)) is not None:
                return sock
        if (sock := await self._first(None)) is not None:
            return sock
        raise OSError(self._reasons())

    async def _first(self, within_s: float | None) -> socket.socket | None:
        """The socket of an attempt that succeeds; None if all that were begun have failed, or time is up."""
        now = asyncio.get_running_loop().time
        until = None if within_s is None else now() + within_s
        while self._attempts:
            left_s = None if until is None else max(0.0, until - now())
            done, _ = await asyncio.wait(self._attempts, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                return None
            attempt = done.pop()
            address = self._attempts.pop(attempt)
            if (error := attempt.exception()) is None:
                return attempt.result()
            self._failures[address] = _why(error)
        return None

    def _reasons(self) -> str:
        """Why there is no connection; where, if there is more than one place."""
        if len(self._failures) == 1:
            return next(iter(self._failures.values()))
        return "; ".join(f"{address}: {why}" for address, why in self._failures.items())

    def close(self) -> None:
        """Have the attempts end that are still under way, and close what they may have made."""
        for attempt in self._attempts:
            attempt.add_done_callback(_discard)
            attempt.cancel()


async def _attempt(address: HostAddress) -> socket.socket:
    sock = socket.socket(address.family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, address.where)
    except BaseException:
        sock.close()
        raise
    return sock


def _discard(attempt: "asyncio.Task[socket.socket]") -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


def _why(error: BaseException) -> str:
    """In the system's words: those of event loops differ."""
    if isinstance(error, OSError) and error.errno is not None and not isinstance(error, socket.gaierror):
        return os.strerror(error.errno)
    return str(error) or repr(error)


class KeepAlivePace:
    """How long a connection may be silent before a keep-alive ping; shared by all connections to a member."""

    def __init__(self) -> None:
        self.silence_s = _SILENCE_S

    def slow_down(self) -> None:
        """It was pinged too often: ping half as often."""
        self.silence_s = min(2 * self.silence_s, _SILENCE_S_MAX)


class Http2Connection(asyncio.Protocol):
    """A connection to one member, used by the loop that made it."""

    def __init__(self, pace: KeepAlivePace) -> None:
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._conversation = Conversation()
        self._transport: Any = None
        self._greeted: asyncio.Future[None] = self._loop.create_future()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self.heard = 0
        """How often data was received. A clock would not tell what came first: uvloop's ticks in milliseconds."""
        self._heard_at = self._loop.time()
        self._is_asked = False
        """Whether a ping was sent, and nothing was received since."""
        self._timer: asyncio.TimerHandle | None = None
        self._signing: asyncio.TimerHandle | None = None
        """Until then answers to pings may wait."""
        self._is_broken = self._is_slowed = False

    @property
    def is_open(self) -> bool:
        """Whether calls may begin here."""
        return not (self._conversation.is_ending or self._transport.is_closing())

    @property
    def is_over(self) -> bool:
        """Whether the connection is gone."""
        return self._over.done()

    async def greeted(self) -> None:
        """Until the peer has said that it speaks HTTP/2; nothing is sent before.

        Raises:
            CallFailed: it hung up instead.
        """
        await self._greeted

    async def ask(self, block: bytes, data: bytes, timeout_s: float | None) -> bytes:
        """One call with one answer.

        Raises:
            CallFailed: see its `code` and `is_sent`.
        """
        answer: asyncio.Future[bytes] = self._loop.create_future()

        def told(found: bytes | CallFailed) -> None:
            if answer.done():
                return
            if isinstance(found, CallFailed):
                answer.set_exception(found)
            else:
                answer.set_result(found)

        asked, stream = self.ask_then(block, data, timeout_s, told)
        try:
            return await answer
        except asyncio.CancelledError:
            self.cancel(stream)
            raise
        finally:
            asked.stop_clock()

    def ask_then(
        self, block: bytes, data: bytes, timeout_s: float | None, told: Callable[[bytes | CallFailed], None]
    ) -> "tuple[_Asked, Stream]":
        """The same; `told` is called with the answer, or the error, from within the reading."""
        asked = _Asked(told)
        stream = self.begin(block, asked)
        self.send(stream, data, is_last=True)
        if timeout_s is not None and not asked.is_over:
            asked.timer = self._loop.call_later(timeout_s, self._on_late, stream, asked, self.heard)
        return asked, stream

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

    def on_late(self, stream: Stream, heard: int) -> None:
        """A call timed out. If nothing was received since it began, other calls use another connection."""
        is_dead = self.heard == heard
        if is_dead:
            self._conversation.retire()
        self.cancel(stream)
        if is_dead and self._conversation.is_idle:
            # The peer would not take what is still to be written.
            self._transport.abort()

    def _flush(self) -> None:
        if self._transport.is_closing():
            return
        if out := self._conversation.take(signs_can_wait=True):
            self._transport.write(out)
        if self._signing is None and self._conversation.owes_signs:
            self._signing = self._loop.call_later(_SIGN_DELAY_S, self._sign)
        if self._conversation.is_ending and self._conversation.is_idle:
            self._transport.close()

    def _sign(self) -> None:
        self._signing = None
        if not self._transport.is_closing() and (out := self._conversation.take()):
            self._transport.write(out)

    def _on_late(self, stream: Stream, asked: "_Asked", heard: int) -> None:
        self.on_late(stream, heard)
        asked.on_end(
            Status(Code.DEADLINE_EXCEEDED, "no answer in time", is_sent=self._conversation.is_sent(stream))
        )

    def _break(self, why: str) -> None:
        """The peer broke the protocol: tell it, and all calls."""
        self._is_broken = True
        self._end(Code.UNAVAILABLE, why)
        if not self._transport.is_closing():
            self._transport.write(self._conversation.take())
            self._transport.close()
        self._timer = self._loop.call_later(_FAREWELL_S, self._transport.abort)

    def _end(self, code: Code, why: str) -> None:
        for timer in (self._timer, self._signing):
            if timer is not None:
                timer.cancel()
        if not self._greeted.done():
            self._greeted.set_exception(CallFailed(Code.UNAVAILABLE, why, is_sent=False))
            self._greeted.exception()
        self._conversation.end(code, why)

    # Called by the loop.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._flush()
        self._timer = self._loop.call_later(self._pace.silence_s, self._on_silence)

    def data_received(self, data: bytes) -> None:
        if self._is_broken:
            return
        self.heard += 1
        self._heard_at = self._loop.time()
        try:
            self._conversation.feed(data)
        except frames.Broken as error:
            self._break(f"it does not speak HTTP/2: {error}")
            return
        if self._is_asked:
            self._on_sign()
        if not self._greeted.done() and self._conversation.is_greeted:
            self._greeted.set_result(None)
        if self._conversation.is_too_many_pings and not self._is_slowed:
            self._is_slowed = True
            self._pace.slow_down()
        self._flush()
        if self._transport.get_write_buffer_size() > _UNTAKEN_BYTES_MAX:
            self._break("it sends requests and does not read the replies")

    def eof_received(self) -> None:
        # The transport closes now, and takes nothing more: what would begin until that is done was never sent.
        self._conversation.retire()

    def connection_lost(self, error: Exception | None) -> None:
        why = "it hung up" if error is None else str(error) or repr(error)
        if self._conversation.farewell:
            why = f"{why}: {self._conversation.farewell}"
        self._end(Code.UNAVAILABLE, why)
        if not self._over.done():
            self._over.set_result(None)

    def _on_silence(self) -> None:
        if self._is_asked:
            self._end(Code.UNAVAILABLE, "no keep-alive was answered")
            self._transport.abort()
            return
        left_s = self._pace.silence_s
        if not self._conversation.is_idle:
            left_s -= self._loop.time() - self._heard_at
        if left_s <= 0:
            self._conversation.ping()
            self._flush()
            self._is_asked, left_s = True, _SIGN_S
        self._timer = self._loop.call_later(left_s, self._on_silence)

    def _on_sign(self) -> None:
        """It is alive: restart the silence timer."""
        self._is_asked = False
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(self._pace.silence_s, self._on_silence)


class _Asked:
    """Waits for one answer, and passes it on once."""

    __slots__ = ("_data", "_told", "is_over", "timer")

    def __init__(self, told: Callable[[bytes | CallFailed], None]) -> None:
        self._told = told
        self._data: bytes | None = None
        self.is_over = False
        self.timer: asyncio.TimerHandle | None = None

    def stop_clock(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def on_message(self, data: bytes) -> None:
        self._data = data

    def on_end(self, status: Status) -> None:
        if self.is_over:
            return
        self.is_over = True
        self.stop_clock()
        if status.code is not Code.OK:
            self._told(failed(status))
        elif self._data is None:
            self._told(CallFailed(Code.INTERNAL, "it answered nothing"))
        else:
            self._told(self._data)
