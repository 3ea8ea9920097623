"""A raw connection: what one node says, and nothing done about it. Pushes count as well as replies."""

import contextlib
import socket
import time
from typing import Any

import hiredis

from tests.e2e.driver import frame

NO_ANSWER = ("NOTLEADER", "UNAVAILABLE", "UNKNOWN")
"""Errors that grant nothing, renew nothing and tell nothing of the state."""


class Closed(Exception):
    """The node closed the connection."""


class Wire:
    """One blocking connection in RESP3. Errors are returned, not raised."""

    def __init__(self, host: str, port: int, timeout_s: float = 10.0) -> None:
        self._timeout_s = timeout_s
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        self._reader = hiredis.Reader(encoding="utf-8")
        self.call("HELLO", 3)

    def send(self, *words: str | int) -> None:
        """Say something. Whether the node reads it is another question."""
        self._socket.sendall(frame(*words))

    def call(self, *words: str | int) -> Any:
        """Say something, and wait for the next message.

        Raises:
            Closed: the connection ended first.
            TimeoutError: nothing was said in time.
        """
        self.send(*words)
        return self.next(self._timeout_s)

    def next(self, seconds: float) -> Any:
        """The next message, reply or push.

        Raises: as `call`.
        """
        until = time.monotonic() + seconds
        while (message := self._reader.gets()) is False:
            self._socket.settimeout(max(0.001, until - time.monotonic()))
            try:
                data = self._socket.recv(1 << 16)
            except ConnectionError as error:
                raise Closed from error
            if not data:
                raise Closed
            self._reader.feed(data)
        return message

    def rest(self, seconds: float) -> list[Any]:
        """All that is said until the connection ends, or the time is over."""
        messages: list[Any] = []
        until = time.monotonic() + seconds
        with contextlib.suppress(Closed, TimeoutError):
            while True:
                messages.append(self.next(max(0.001, until - time.monotonic())))
        return messages

    def close(self) -> None:
        self._socket.close()


def is_no_answer(message: object) -> bool:
    """Whether a message is an error that says: not here, not now, or don't know."""
    return isinstance(message, hiredis.ReplyError) and str(message).startswith(NO_ANSWER)
