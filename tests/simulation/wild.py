"""Wild clients: they keep to no rule but that of their own machine. What they do harms nobody but themselves.

1. A *flooder* speaks the protocol, and abuses it: acquires that are refused, too large, or sent twice;
   withdrawals of what was never asked; sessions and connections opened and dropped; pipelines that it never reads;
   lists and watches of everything. It opens its sessions itself, so that what it is told can be checked like
   anybody's answers. Where there are several shards, each of its connections chooses one, and asks there for names
   of all of them.
2. A *babbler* does not speak it: mutated frames, noise, heads that promise too much, each on a connection of its
   own. Nobody listens to what it is told; what comes of it in the journal is checked all the same.
3. Both go on until they are killed, which is when a run is nearly over: while they go on and all faults are over,
   no session of anybody else may run out.
"""

import asyncio
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any, cast

import hiredis

from rig.frames import frame, heads, mutated, noise
from tests.simulation.clients import tags
from tests.simulation.nodes import PORT
from tests.simulation.process import Process

DRIP_S = 0.2
"""From one command of the drip to the next: there is hardly a moment in which nothing is asked of the leader."""
PAUSE_S = 3.0
CONNECT_S = 2.0
OPEN_S = 2.0
_HOT = 4
_HEADS_BYTES_MAX = 1 << 10


class Line(asyncio.Protocol):
    """A connection that heeds its replies only as far as it likes."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_lost = False
        self.session = 0
        self.answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Whether the session that was asked for is open: answered, or the connection lost."""
        self.fences: list[tuple[str, int]] = []
        self.is_spent = False
        """Its session may be over: an acquire would be that of a plain connection."""
        self._reader = hiredis.Reader()

    def say(self, *words: str | int) -> None:
        self.write(frame(*words))

    def write(self, data: bytes) -> None:
        if self.transport is not None and not self.is_lost:
            self.transport.write(data)

    def drop(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self._heed(reply)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True
        if not self.answered.done():
            self.answered.set_result(None)

    def _heed(self, reply: Any) -> None:
        if isinstance(reply, hiredis.PushNotification):
            self.is_spent |= reply[0] == b"ended"
        elif isinstance(reply, hiredis.ReplyError):
            self.is_spent |= str(reply).startswith("NOSESSION")
        elif not isinstance(reply, dict):
            return
        elif b"secret" in reply:
            self.session = int(reply[b"session"])
            if not self.answered.done():
                self.answered.set_result(None)
        elif b"fence" in reply and b"names" in reply:
            self.fences.append((reply[b"name"].decode(), int(reply[b"fence"])))


class Flooder:
    """Knows the protocol, and no measure."""

    def __init__(
        self,
        name: str,
        process: Process,
        nodes: list[str],
        ttl_s: float,
        random: Random,
        note: Callable[[str], None],
        *,
        shards: int = 1,
        groups: int = 0,
    ) -> None:
        self.name = name
        self.process = process
        self._nodes, self._shards, self._tags = nodes, shards, tags(groups)
        self._ttl_ms = int(ttl_s * 1_000)
        self._random = random
        self._note = note
        self._requests = count(1)
        self._acts: tuple[Callable[[Line], None], ...] = (
            self._flood,
            self._ask_too_much,
            self._repeat,
            self._withdraw_the_unknown,
            self._release_what_is_not_its_own,
            self._contend,
            self._keep_alive,
            self._look_at_everything,
            self._stop_reading,
            self._open_and_close,
        )

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._act())
            group.create_task(self._drip())
            group.create_task(self._come_and_go())

    async def _act(self) -> None:
        random = self._random
        while True:
            line = await self._opened()
            for _ in range(random.randint(1, 6)):
                if line.is_lost or line.is_spent:
                    break
                act = random.choice(self._acts)
                self._note(act.__name__)
                act(line)
                await asyncio.sleep(random.expovariate(1 / PAUSE_S))
            line.drop()

    async def _drip(self) -> None:
        """One small command after another, without a pause that is worth the name."""
        while True:
            line = await self._opened()
            for number in count():
                if line.is_lost or line.is_spent:
                    break
                if number % 5 == 0:
                    line.say("SESSION.KEEPALIVE")
                name, request = f"{self._tag(number)}{self.name}-drip-{number % 10}", number + 1
                line.say("LOCK.ACQUIRE", name, "WAIT", 0, "TTL", 50, "REQUEST", request, "ANSWERED", number)
                await asyncio.sleep(DRIP_S)
            line.drop()

    async def _come_and_go(self) -> None:
        """Sessions whose connection is gone before they have done anything."""
        while True:
            lines = [await self._opened(awaited=False) for _ in range(self._random.randint(1, 4))]
            await asyncio.sleep(self._random.expovariate(1 / PAUSE_S))
            for line in lines:
                line.drop()

    async def _opened(self, *, awaited: bool = True) -> Line:
        """A connection with a session; to whichever node will have it."""
        while True:
            line = await self._connected()
            line.say("HELLO", 3, *self._some_shard())
            meta = f'{{"client": "{self.name}"}}'
            line.say("SESSION.OPEN", "TTL", self._ttl_ms, "GRACE", self._random.choice((0, 500)), "META", meta)
            if awaited:
                await asyncio.wait((line.answered,), timeout=OPEN_S)
            if not awaited or line.session:
                return line
            line.drop()
            await asyncio.sleep(DRIP_S)

    async def _connected(self) -> Line:
        return await connected(self._random, self._nodes)

    def _some_shard(self) -> tuple[str | int, ...]:
        """Where there is one, nothing is drawn."""
        return ("SHARD", self._random.randrange(self._shards)) if self._shards > 1 else ()

    def _tag(self, number: int) -> str:
        return self._tags[number % len(self._tags)]

    def _hot(self) -> str:
        """A name that others want, too."""
        number = self._random.randrange(_HOT * len(self._tags))
        return f"{self._tag(number)}hot-{number % _HOT}"

    # What it does on a connection with a session.

    def _flood(self, line: Line) -> None:
        for number in range(self._random.randint(20, 80)):
            how = self._random.choice((("WAIT", 0), ("ASYNC",), ("WAIT", 100, "ASYNC")))
            name = f"{self._tag(number)}{self.name}-{number % 20}"
            line.say("LOCK.ACQUIRE", name, "REQUEST", next(self._requests), *how)

    def _ask_too_much(self, line: Line) -> None:
        """Names, owners, sets and durations beyond every limit."""
        for _ in range(10):
            request = ("REQUEST", next(self._requests))
            line.say("LOCK.ACQUIRE", "n" * self._random.choice((257, 5_000, 60_000)), "WAIT", 0, *request)
            line.say("LOCK.ACQUIRE", self.name, "META", "m" * 2_000, "OWNER", "o" * 500, "WAIT", 0)
            line.say("LOCK.MACQUIRE", 100, *(f"{self.name}-{each}" for each in range(100)), "WAIT", 0)
            line.say("LOCK.ACQUIRE", self.name, "TTL", 10**15, "WAIT", 0)

    def _repeat(self, line: Line) -> None:
        """The same request again and again; one that was answered long ago; one that asks for something else."""
        request = next(self._requests)
        for _ in range(10):
            line.say("LOCK.ACQUIRE", f"{self.name}-twice", "WAIT", 0, "REQUEST", request)
        line.say("LOCK.ACQUIRE", f"{self.name}-other", "WAIT", 0, "REQUEST", request)
        line.say("LOCK.ACQUIRE", f"{self.name}-first", "WAIT", 0, "REQUEST", 1, "ANSWERED", request)

    def _withdraw_the_unknown(self, line: Line) -> None:
        for _ in range(20):
            line.say("LOCK.CANCEL", self._random.choice((1, next(self._requests) + 1_000, 1 << 40)))
        line.say("LOCK.SETTLE", *range(1, 50))

    def _release_what_is_not_its_own(self, line: Line) -> None:
        for _ in range(10):
            request = ("REQUEST", next(self._requests))
            line.say("LOCK.RELEASE", self._hot(), self._random.randrange(1, 10_000), *request)
            line.say("LOCK.EXTEND", f"{self.name}-1", 1, 1_000, "REQUEST", next(self._requests))
        for name, fence in line.fences:
            line.say("LOCK.RELEASE", name, fence, "REQUEST", next(self._requests))
        line.fences.clear()

    def _contend(self, line: Line) -> None:
        """For what others want, too, but for a moment only: nothing forbids that."""
        for _ in range(5):
            name, request = self._hot(), next(self._requests)
            line.say("LOCK.ACQUIRE", name, "WAIT", 200, "TTL", 50, "OWNER", "o", "REQUEST", request, "ASYNC")

    def _keep_alive(self, line: Line) -> None:
        line.write(frame("SESSION.KEEPALIVE") * 50)

    def _look_at_everything(self, line: Line) -> None:
        line.say("LOCK.WATCH", "")
        for _ in range(10):
            line.say("LOCK.LIST", "COUNT", 1_000, "HOLD")
            line.say("SESSION.LIST")
            line.say("LOCK.INFO", self._hot())
        line.say("LOCK.UNWATCH", "")

    def _stop_reading(self, line: Line) -> None:
        if line.transport is not None:
            line.transport.pause_reading()
        self._flood(line)
        line.write(frame("PING") * 100)

    def _open_and_close(self, line: Line) -> None:
        line.write(frame("SESSION.CLOSE") + frame("SESSION.OPEN", "TTL", self._ttl_ms, "GRACE", 0) * 10)
        line.is_spent = True


class Babbler:
    """Knows nothing."""

    def __init__(self, process: Process, nodes: list[str], random: Random, note: Callable[[str], None]) -> None:
        self.process = process
        self._nodes = nodes
        self._random = random
        self._note = note
        self._heads = [head[:_HEADS_BYTES_MAX] for head in heads()]

    async def run(self) -> None:
        """For ever."""
        random = self._random
        while True:
            line = await connected(random, self._nodes)
            babble = random.choice((self._mistakes, self._noise, self._promises))
            self._note(babble.__name__)
            line.write(babble())
            await asyncio.sleep(random.expovariate(1 / PAUSE_S))
            line.drop()

    def _mistakes(self) -> bytes:
        return b"".join(mutated(self._random) for _ in range(self._random.randint(1, 20)))

    def _noise(self) -> bytes:
        return noise(self._random)

    def _promises(self) -> bytes:
        return self._random.choice(self._heads)


async def connected(random: Random, nodes: list[str]) -> Line:
    """A connection to some node, sooner or later."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            async with asyncio.timeout(CONNECT_S):
                _, line = await loop.create_connection(Line, random.choice(nodes), PORT)
                return line
        except OSError:
            await asyncio.sleep(DRIP_S)
