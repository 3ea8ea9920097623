"""A socket to a host, by whichever of its addresses answers first (RFC 8305).

A name may stand for several addresses, and one of them may swallow what is sent to it: a protocol that leads
nowhere, a machine that is gone. So the next address is tried when the one before has failed, or has not answered
for a moment, and the first that answers is taken. How long all of it may take is the caller's to say.
"""

import asyncio
import os
import socket
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any, NamedTuple

_HEAD_START_S = 0.25
"""What an address has before the next one is tried as well; RFC 8305, 8."""


class HostAddress(NamedTuple):
    """One of a host's, as sockets take it."""

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
