"""An administrator: changes who may do what, while everybody goes on and everything fails.

It takes rights away and gives them back, disables clients and enables them, all by lot. A change is made for the
revision that it has read last; if the answer was lost it reads again. When all faults are over it gives everybody
everything back, and is done.
"""

import asyncio
import json
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any, cast

import hiredis

from rig.frames import frame
from tests.simulation.nodes import PORT
from tests.simulation.process import Process

EVERY_S = 4.0
ANSWER_S = 3.0
AGAIN_S = 0.5

_SEEN = ["observe", "events"]
_ALL = ["acquire", *_SEEN]
ROLES: dict[str, Any] = {
    "root": {"rules": [{"prefix": "", "allow": [*_ALL, "break", "admin"]}]},
    "all": {"rules": [{"prefix": "", "allow": [*_ALL, "break"]}]},
    "some": {
        "rules": [
            {"prefix": "", "allow": _ALL},
            {"name": "hot-0", "allow": _SEEN},
            {"prefix": "cold-1", "allow": []},
        ]
    },
    "few": {"rules": [{"name": "hot-1", "allow": ["acquire"]}, {"prefix": "probe-", "allow": ["acquire"]}]},
    "none": {"rules": [{"prefix": "", "allow": _SEEN}]},
}


class CallLine(asyncio.Protocol):
    """A connection of somebody who runs the service. Its replies come in order."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.waiting: deque[asyncio.Future[Any]] = deque()
        self._reader = hiredis.Reader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            if self.waiting and not (waiting := self.waiting.popleft()).done():
                waiting.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        for waiting in self.waiting:
            if not waiting.done():
                waiting.set_exception(ConnectionError("lost"))

    async def call(self, *words: str | int) -> Any:
        assert self.transport is not None
        waiting = asyncio.get_running_loop().create_future()
        self.waiting.append(waiting)
        self.transport.write(frame(*words))
        async with asyncio.timeout(ANSWER_S):
            reply = await waiting
        if isinstance(reply, hiredis.ReplyError):
            raise ConnectionError(str(reply))
        return reply


class Administrator:
    """Of one run."""

    def __init__(
        self,
        process: Process,
        nodes: list[str],
        clients: list[str],
        others: tuple[str, ...],
        random: Random,
        note: Callable[[str], None],
    ) -> None:
        self.process = process
        self._nodes, self._clients, self._random, self._note = nodes, clients, random, note
        self._users = {
            **{host: {"roles": ["root"]} for host in (process.host, *nodes)},
            **{host: {"roles": ["all"]} for host in (*clients, *others)},
        }
        self._stopping = False
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """Give everything back, and be done."""
        self._stopping = True
        self._stopped.set()

    async def run(self) -> None:
        """From the first policy to the last."""
        while True:
            try:
                await self._rule()
            except (OSError, TimeoutError) as error:
                self._note(f"{error!r}")
            else:
                return
            await asyncio.sleep(AGAIN_S)

    async def _rule(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(ANSWER_S):
            line: CallLine
            _, line = await loop.create_connection(CallLine, self._random.choice(self._nodes), PORT)
        try:
            await line.call("HELLO", 3)
            while True:
                known = await line.call("WHOAMI")
                revision, is_last = int(known[b"revision"]), self._stopping
                change = self._first() if not revision or is_last else self._next()
                told = await line.call("POLICY.APPLY", revision, json.dumps(change))
                self._note(f"changed the policy: {change if revision else 'the first'}, {told}")
                if is_last:
                    return
                await self._pause()
        finally:
            if line.transport is not None:
                line.transport.abort()

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(self._random.expovariate(1 / EVERY_S)):
                await self._stopped.wait()
        except TimeoutError:
            return

    def _first(self) -> dict[str, Any]:
        return {"users": self._users, "roles": ROLES}

    def _next(self) -> dict[str, Any]:
        random = self._random
        changes: dict[str, Any] = {}
        for client in random.sample(self._clients, random.choice((1, 1, 2))):
            role = random.choice(("all", "all", "some", "few", "none"))
            changes[client] = {"roles": [role], "disabled": random.random() < 0.1}
        return {"users": changes}
