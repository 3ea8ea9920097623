"""Who asks: what a client says of itself, and the tasks and threads inside it.

A task is known by itself. A thread is known by a `ThreadIdentity`, which it has for as long as it lives and which
no other thread ever gets: its number (`threading.get_ident()`) is given again as soon as it has ended, and so is
the `Thread` object of one that Python did not start.
"""

import asyncio
import json
import os
import platform
import socket
import threading
from collections.abc import Mapping
from itertools import count
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

from fencehold.drivers.resp.wire import bulk

OWNER_BYTES_MAX = 128


def session_meta(name: str, meta: Mapping[str, object] | None, version: str, client: str = "") -> str:
    """What those who ask who holds a name are told of this process.

    `client`: which client a session is of. By that, an owner in one shard is known to be the same in another.
    """
    known: dict[str, object] = {
        "client": name,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "version": version,
    }
    # Last: metadata of the application must not replace it and make two clients one.
    own = {"session_of": client} if client else {}
    return json.dumps(known | dict(meta or {}) | own, separators=(",", ":"), default=str)


class ThreadIdentity:
    """One thread, or one greenlet where these take the place of threads."""

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<thread {self.name!r}>"


class _Here(threading.local):
    """What each thread has of its own; gone with it."""

    def __init__(self) -> None:
        self.identity = ThreadIdentity(threading.current_thread().name)


_here = _Here()


def this_thread() -> ThreadIdentity:
    """The thread that asks."""
    return _here.identity


Who: TypeAlias = "asyncio.Task[Any] | ThreadIdentity"
"""Who inside a client asks."""


def name_of(who: Who) -> str:
    """What a task or thread is called."""
    return who.name if isinstance(who, ThreadIdentity) else who.get_name()


class Owners:
    """One owner for each task or thread, for as long as it lives: two of the same name are strangers, too."""

    __slots__ = ("_known", "_numbers")

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Any, bytes] = WeakKeyDictionary()
        self._numbers = count(1)

    def of(self, who: Who) -> bytes:
        """The option of an acquire that says who asks."""
        owner = self._known.get(who)
        if owner is None:
            owner = self._known[who] = self.anew(who)
        return owner

    def anew(self, who: Who) -> bytes:
        """An owner by the name of a task or thread, but a stranger to it: for what outlives its interest."""
        return encode(f"#{next(self._numbers)}", name_of(who))


def encode(number: str, name: str) -> bytes:
    """The option as it travels; a long name is cut, never the number that makes it unique."""
    text = name.encode("utf-8", "replace")[: OWNER_BYTES_MAX - len(number)].decode("utf-8", "ignore")
    return b"$5\r\nOWNER\r\n" + bulk((text + number).encode())
