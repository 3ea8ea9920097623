"""The well-behaved client: a few connections that acquire and release names of their own, with a pause between.

Half of them are clients of the SDK with its defaults, half are bare connections that open a session and keep
it alive every third of its ttl. Each also holds one name all the time. It notes how long each operation took,
from when it was sent to when its answer was read; what was refused; and each hold, session and connection
that it lost.

An operation that is still under way when a stretch ends counts for as long as it has taken by then: a server
that does not respond is not left out of the figures for that reason.
"""

import asyncio
import itertools
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from bench import latency
from bench.children import Talk
from bench.wire import Wire
from fencehold import aio
from fencehold.errors import FenceholdError

TTL_S = 30.0
LONG_NS = 20_000_000
"""What has not ended when a stretch does counts if it is this old; younger, it is an ordinary one cut short."""


@dataclass
class Stretch:
    """What was seen since it began."""

    latencies_ns: list[int] = field(default_factory=list)
    refused: int = 0
    lost: int = 0
    """Holds and sessions."""
    ended: int = 0
    """Connections."""
    last_trouble: str = ""


class Neighbour:
    """All the connections of the well-behaved client."""

    def __init__(self, pause_s: float) -> None:
        self.stretch = Stretch()
        self._pause_s = pause_s
        self._numbers = itertools.count()
        self._under_way: dict[int, int] = {}

    async def time(self, operation: Callable[[], Awaitable[Any]]) -> Any:
        """Do it, and note how long that took."""
        begun_ns, number = time.perf_counter_ns(), next(self._numbers)
        self._under_way[number] = begun_ns
        try:
            return await operation()
        finally:
            self._under_way.pop(number, None)
            self.stretch.latencies_ns.append(time.perf_counter_ns() - begun_ns)

    def begin(self) -> None:
        """A new stretch: what happened before it is forgotten."""
        self.stretch = Stretch()

    def seen(self) -> dict[str, Any]:
        """The stretch so far."""
        now_ns = time.perf_counter_ns()
        hanging_ns = [now_ns - begun_ns for begun_ns in self._under_way.values() if now_ns - begun_ns > LONG_NS]
        stretch = self.stretch
        return {
            "latencies_ns": stretch.latencies_ns + hanging_ns,
            "refused": stretch.refused,
            "lost": stretch.lost,
            "ended": stretch.ended,
            "last_trouble": stretch.last_trouble,
        }

    async def through_sdk(self, url: str, number: int) -> None:
        """One client of the SDK, for ever."""
        async with aio.connect(url) as client:
            held = await client.lock(f"neighbour:{number}:held").acquire()
            held.lost.add_callback(self._on_lost)
            for turn in itertools.count():
                lock = client.lock(f"neighbour:{number}:{turn % 100}", timeout=60)
                try:
                    hold = await self.time(lock.acquire)
                    if hold is None:
                        raise FenceholdError("an acquire that nobody contended timed out")
                    await self._pause()
                    await self.time(hold.release)
                except FenceholdError as error:
                    self._refused(error)
                await self._pause()

    async def bare(self, port: int, number: int, login: str = "") -> None:
        """One bare connection after another, for ever: there should be one only."""
        while True:
            try:
                wire = await Wire.open(port)
                if login:
                    await wire.ask("AUTH", "token", login)
                await wire.ask("SESSION.OPEN", "TTL", int(TTL_S * 1_000))
                await wire.ask("LOCK.ACQUIRE", f"neighbour:{number}:held", "WAIT", int(TTL_S * 1_000))
                await self._bare_turns(wire, number)
            except OSError as error:
                self.stretch.ended += 1
                self.stretch.last_trouble = f"a bare connection: {error!r}"
                await asyncio.sleep(0.1)
            except RuntimeError as error:
                self._refused(error)
                await asyncio.sleep(0.1)

    async def _bare_turns(self, wire: Wire, number: int) -> None:
        keep_alive_at = time.monotonic() + TTL_S / 3
        for turn in itertools.count():
            name = f"neighbour:{number}:{turn % 100}"
            try:
                grant = await self.time(lambda name=name: wire.ask("LOCK.ACQUIRE", name, "WAIT", 60_000))  # type: ignore[misc]
                fence = int(dict(zip(grant[::2], grant[1::2], strict=True))["fence"])
                await self._pause()
                await self.time(lambda name=name, fence=fence: wire.ask("LOCK.RELEASE", name, fence))  # type: ignore[misc]
                if time.monotonic() > keep_alive_at:
                    keep_alive_at = time.monotonic() + TTL_S / 3
                    await wire.ask("SESSION.KEEPALIVE")
            except RuntimeError as error:
                self._refused(error)
                if "NOSESSION" in str(error):
                    self.stretch.lost += 1
                    raise ConnectionError("the session is lost") from error
            await self._pause()

    async def _pause(self) -> None:
        # Not all the same: two that go in step would see only one side of what comes in step with them.
        await asyncio.sleep(random.uniform(0.5, 1.5) * self._pause_s)

    def _refused(self, error: Exception) -> None:
        self.stretch.refused += 1
        self.stretch.last_trouble = repr(error)

    def _on_lost(self, hold: Any) -> None:
        self.stretch.lost += 1
        self.stretch.last_trouble = f"{hold!r} is lost: {hold.lost.reason}"


class Connections(logging.Handler):
    """Counts the connections that clients of the SDK tell their log to have lost."""

    def __init__(self, neighbour: Neighbour) -> None:
        super().__init__(logging.INFO)
        self._neighbour = neighbour

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage().startswith("connection to"):
            self._neighbour.stretch.ended += 1
            self._neighbour.stretch.last_trouble = record.getMessage()


async def live(talk: Talk, url: str, port: int, connections: int, pause_s: float, login: str = "") -> None:
    """Be the well-behaved client until there is no parent any more. Words: `begin`, `count`, `seen`."""
    neighbour = Neighbour(pause_s)
    logger = logging.getLogger("fencehold.connection")
    logger.setLevel(logging.INFO)
    logger.addHandler(Connections(neighbour))
    half = connections // 2
    named = url.replace("://", f"://token:{login}@") if login else url
    lives = [neighbour.through_sdk(named, number) for number in range(half)]
    lives += [neighbour.bare(port, number, login) for number in range(half, connections)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(life) for life in lives]
        while word := await talk.word():
            match word:
                case "begin":
                    neighbour.begin()
                    talk.say()
                case "count":
                    talk.say(count=len(neighbour.stretch.latencies_ns))
                case _:
                    talk.say(**neighbour.seen())
        for task in tasks:
            task.cancel()


def figures(latencies_ns: list[int]) -> dict[str, float]:
    """In milliseconds: half, 99 of 100 and all of the operations took no longer."""
    ordered = sorted(latencies_ns)
    return {
        "p50_ms": latency.percentile(ordered, 50) / 1e6,
        "p99_ms": latency.percentile(ordered, 99) / 1e6,
        "longest_ms": ordered[-1] / 1e6,
    }
