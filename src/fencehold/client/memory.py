"""`memory://`: the whole service inside this process, for tests and for programs that are one process.

1. It is the real server on a thread of its own, on a loopback port of its own, over memory: all kinds of locks,
   both tiers, the same guarantees. Nothing survives the process, and no other process takes part.
2. It runs while there is a client: the first one starts it, the last one ends it, and nothing is left.
   `memory://a` and `memory://b` are two.
3. Fences begin at the time of day in microseconds, so they grow from one run of it to the next, too, as long as
   that clock moves forward.
4. A child process has its own: it shares nothing with its parent but the URL.
"""

import asyncio
import os
import threading
from collections.abc import Callable

from fencehold.client.aio.channel import Channel
from fencehold.client.driver import Driver
from fencehold.client.threads.loop import LoopThread
from fencehold.guarantees import Guarantees
from fencehold.server import Config, Server


class _Host(LoopThread):
    """One server on one thread."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.users = 0
        self._server = Server(Config(port=0))
        self.run(self._server.start())

    @property
    def port(self) -> int:
        return self._server.port

    async def end(self) -> None:
        await self._server.stop()


class _Hosts:
    """All of this process, by URL."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._hosts: dict[str, _Host] = {}

    def enter(self, url: str) -> _Host:
        """The host of a URL, started if need be."""
        with self._changing:
            host = self._hosts.get(url)
            if host is None:
                host = self._hosts[url] = _Host(url)
            host.users += 1
            return host

    def leave(self, host: _Host) -> None:
        """A user that entered has left; this may take a moment."""
        with self._changing:
            host.users -= 1
            if not host.users and self._hosts.get(host.url) is host:
                del self._hosts[host.url]
                host.close()

    def on_forked(self) -> None:
        """In a child: the threads are not here. Their loops must not be closed: what they watch is shared."""
        _inherited.extend(self._hosts.values())
        self._changing = threading.Lock()
        self._hosts = {}


class HostedChannel(Channel):
    """A channel to the service of this process with a given URL, which runs for as long as the channel is open."""

    __slots__ = ("_has_left", "_host")

    def __init__(self, url: str, driver: Callable[[str], Driver], guarantees: Guarantees) -> None:
        """`driver`: makes one to the service at a URL."""
        self._host = _hosts.enter(url)
        self._has_left = False
        try:
            super().__init__(driver(f"fencehold://127.0.0.1:{self._host.port}"), guarantees)
        except BaseException:
            _hosts.leave(self._host)
            raise

    async def close(self) -> None:
        if asyncio.get_running_loop() is not self.loop:
            await super().close()
            return
        try:
            await super().close()
        finally:
            # Once: other channels may use the same host.
            if not self._has_left:
                self._has_left = True
                await asyncio.shield(asyncio.to_thread(_hosts.leave, self._host))


_hosts = _Hosts()
_inherited: list[_Host] = []

os.register_at_fork(after_in_child=_hosts.on_forked)
