"""Requests to a Redis by the calling thread, on a connection of its own.

1. A connection is used by one thread, with one command in flight. After any error, an interrupt too, it is closed:
   a late reply must not be taken for that of another command.
2. A thread's connection ends with it. There are at most as many connections as calling threads.
3. A call in progress while this is closed is finished; then its connection is closed, too.
"""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast
from weakref import WeakSet

from redis.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import NoScriptError, RedisError, ResponseError

from fencehold.backends.lease.store import Busy, Taken
from fencehold.backends.port import Ask, Lease
from fencehold.drivers.resp.address import RedisServer
from fencehold.drivers.resp.client import Script
from fencehold.drivers.resp.connection import Word
from fencehold.drivers.resp.failures import Refusal, answered, unanswered, unreached


class ScriptCall(NamedTuple):
    """One script, and what it is about."""

    script: Script
    keys: Sequence[Word]
    words: Sequence[Word]


class ScriptCalls(NamedTuple):
    """How a store takes and releases names, on the loop and on threads."""

    taking: Callable[[Ask, float], ScriptCall]
    taken: Callable[[Ask, Any], Taken | Busy]
    freeing: Callable[[Ask], ScriptCall]


Maker: TypeAlias = Callable[[], Any]
"""Makes a connection of redis-py, which has no types."""


class RedisThreadStore:
    """For any thread."""

    def __init__(self, server: RedisServer, steps: ScriptCalls, connect_s: float, answer_s: float) -> None:
        self._name = str(server)
        self._steps = steps
        self._make = _maker(server, connect_s, answer_s)
        self._mine = threading.local()
        self._all: WeakSet[Any] = WeakSet()
        self._busy: set[Any] = set()
        """Connections with a command in flight: closed only by the thread that uses them."""
        self._changing = threading.Lock()
        self._is_closed = False

    def take(self, ask: Ask, ttl: float) -> Taken | Busy:
        return self._steps.taken(ask, self._run(self._steps.taking(ask, ttl)))

    def release(self, lease: Lease) -> bool:
        return bool(self._run(self._steps.freeing(lease.ask)))

    def close(self) -> None:
        self._is_closed = True
        with self._changing:
            connections = tuple(self._all)
        for connection in connections:
            if connection not in self._busy:
                connection.disconnect()

    def _run(self, step: ScriptCall) -> Any:
        connection = self._connection()
        try:
            self._busy.add(connection)
            try:
                return self._ask(connection, step.script.by_hash(step.keys, step.words))
            except NoScriptError:
                return self._ask(connection, step.script.whole(step.keys, step.words))
        except ResponseError as error:
            raise answered(Refusal(str(error)), self._name) from error
        except BaseException as error:
            self._mine.connection = None
            connection.disconnect()
            # For a connection that is closed while in use, redis-py raises any exception.
            if isinstance(error, RedisError | OSError) or (self._is_closed and isinstance(error, Exception)):
                raise unanswered(self._name, str(error)) from error
            raise
        finally:
            self._busy.discard(connection)
            if self._is_closed:
                connection.disconnect()

    def _connection(self) -> Any:
        connection: Any = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._make()
            try:
                connection.connect()
            except (RedisError, OSError) as error:
                connection.disconnect()
                raise unreached(error, self._name) from error
            self._mine.connection = connection
            with self._changing:
                self._all.add(connection)
        return connection

    @staticmethod
    def _ask(connection: Any, command: bytes) -> Any:
        connection.send_packed_command([command], check_health=False)
        return connection.read_response(disable_decoding=True)


def _maker(server: RedisServer, connect_s: float, answer_s: float) -> Maker:
    words: dict[str, Any] = {
        "db": server.db,
        "username": server.login.user or None,
        "password": server.login.password or None,
        "socket_timeout": answer_s,
        "socket_connect_timeout": connect_s,
        "protocol": 2,
    }
    if server.path:
        return partial(cast(Any, UnixDomainSocketConnection), path=server.path, **words)
    words |= {"host": server.endpoint.host, "port": server.endpoint.port}
    if server.tls is None:
        return partial(cast(Any, Connection), **words)
    ca, cert, key = (None if path is None else str(path) for path in server.tls[:3])
    tls = {
        "ssl_ca_certs": ca,
        "ssl_certfile": cert,
        "ssl_keyfile": key,
        "ssl_cert_reqs": "required" if server.tls.verifies else "none",
        "ssl_check_hostname": server.tls.verifies,
    }
    return partial(cast(Any, SSLConnection), **words, **tls)
