"""kazoo's handler for locks: it turns to the system, and wakes the loop, as seldom as it can.

`fencehold.drivers.zookeeper.handler` has the rules of the rest. What differs:

1. What kazoo's thread has to tell by the time the loop wakes is told at one waking, still in order.
2. kazoo's socket is a plug, and the pair by which it is woken a bell: `plug` says why.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from fencehold.backends.zookeeper.plug import Bell, Plug, ready
from fencehold.drivers.zookeeper.handler import LoopHandler, Posts


class GatheredPosts(Posts):
    """What is put there is called on the loop, in order, many at one waking."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._calls: deque[Callable[[], object]] = deque()
        self._is_woken = False

    def put(self, call: Callable[[], object]) -> None:
        self._calls.append(call)
        if not self._is_woken:
            self._is_woken = True
            super().put(self._deliver)

    def _deliver(self) -> None:
        # First, so that what is put from now on wakes the loop again.
        self._is_woken = False
        while self._calls:
            self._calls.popleft()()


class PlugHandler(LoopHandler):
    """Serves one client, on the event loop it was made on."""

    def __init__(self, name: str, tls: ssl.SSLContext | None) -> None:
        super().__init__(name, tls, GatheredPosts)

    def create_connection(self, *args: Any, **kwargs: Any) -> Plug:
        return Plug(super().create_connection(*args, **kwargs))

    def create_socket_pair(self) -> tuple[Bell, Bell]:
        bell = Bell()
        return bell, bell

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """As `select.select`. A plug takes whatever is to be sent."""
        return ready(list(readers), timeout) if readers else [], list(writers), []
