"""Identity: what a client says of itself, and the tasks and threads inside it that make requests.

A task is known by itself. A thread is known by a `ThreadIdentity`, which it has for as long as it lives and which
no other thread ever gets: its number (`threading.get_ident()`) is reused as soon as it has ended, and so is the
`Thread` object of one that Python did not start.
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
    """What `explain` shows of this process.

    `client`: which client a session belongs to. By that, an owner in one shard is known to be the same in another.
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
    """Per-thread state; ends with the thread."""

    def __init__(self) -> None:
        self.identity = ThreadIdentity(threading.current_thread().name)


_here = _Here()


def this_thread() -> ThreadIdentity:
    """The calling thread."""
    return _here.identity


Who: TypeAlias = "asyncio.Task[Any] | ThreadIdentity"
"""The task or thread inside a client that makes a request."""


def name_of(who: Who) -> str:
    """The name of a task or thread."""
    return who.name if isinstance(who, ThreadIdentity) else who.get_name()


class Owners:
    """One owner for each task or thread, for as long as it lives: two with the same name are different owners."""

    __slots__ = ("_known", "_numbers")

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[Any, bytes] = WeakKeyDictionary()
        self._numbers = count(1)

    def of(self, who: Who) -> bytes:
        """The option of an acquire that names the owner."""
        owner = self._known.get(who)
        if owner is None:
            owner = self._known[who] = self.anew(who)
        return owner

    def anew(self, who: Who) -> bytes:
        """A separate owner with the name of a task or thread: for requests that outlive its interest in them."""
        return encode(f"#{next(self._numbers)}", name_of(who))


def encode(number: str, name: str) -> bytes:
    """The option as it is sent; a long name is cut, never the number that makes it unique."""
    text = name.encode("utf-8", "replace")[: OWNER_BYTES_MAX - len(number)].decode("utf-8", "ignore")
    return b"$5\r\nOWNER\r\n" + bulk((text + number).encode())
