"""Who asks: what a client says of itself, and the names of the tasks and threads inside it."""

import asyncio
import json
import os
import platform
import socket
import threading
from collections.abc import Mapping
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from fencehold.client.wire import bulk

OWNER_BYTES_MAX = 128


def session_meta(name: str, meta: Mapping[str, object] | None, version: str) -> str:
    """What whoever asks who holds a name is told of this process."""
    known: dict[str, object] = {
        "client": name,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "version": version,
    }
    return json.dumps(known | dict(meta or {}), separators=(",", ":"), default=str)


class Owners:
    """One owner for each task or thread, for as long as it lives: two of the same name are strangers, too."""

    __slots__ = ("_known", "_numbers")

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Any, bytes] = WeakKeyDictionary()
        self._numbers = count(1)

    def of(self, who: "asyncio.Task[Any] | threading.Thread") -> bytes:
        """The option of an acquire that says who asks."""
        owner = self._known.get(who)
        if owner is None:
            owner = self._known[who] = self.anew(who)
        return owner

    def anew(self, who: "asyncio.Task[Any] | threading.Thread") -> bytes:
        """An owner by the name of a task or thread, but a stranger to it: for what outlives its interest."""
        name = who.name if isinstance(who, threading.Thread) else who.get_name()
        return encode(f"#{next(self._numbers)}", name)


def encode(number: str, name: str) -> bytes:
    """The option as it travels; a long name is cut, never the number that makes it unique."""
    text = name.encode("utf-8", "replace")[: OWNER_BYTES_MAX - len(number)].decode("utf-8", "ignore")
    return b"$5\r\nOWNER\r\n" + bulk((text + number).encode())
