"""The alarm rings once, for the earliest time it was set to; and a wait ends when it is over, tick or not."""

import asyncio
from time import monotonic

from fencehold.core.commands import Acquire, OpenSession
from fencehold.core.outcomes import WaitEnded
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.node.alarm import Alarm
from fencehold.node.leader import Bounds
from fencehold.node.node import Node
from fencehold.runtime.clock import MonotonicClock


async def test_it_rings_once_for_the_earliest() -> None:
    """Setting it later than it is set changes nothing."""
    rung = asyncio.Event()
    times: list[float] = []
    alarm = Alarm(lambda: (times.append(monotonic()), rung.set())[0])  # type: ignore[func-returns-value]
    alarm.set(30)
    alarm.set(0.01)
    alarm.set(20)
    async with asyncio.timeout(20):
        await rung.wait()
    assert len(times) == 1
    alarm.set(0.01)
    alarm.cancel()
    alarm.cancel()


class Waiting:
    """Is told when its wait is over."""

    def __init__(self) -> None:
        self.over: asyncio.Future[WaitEnded] = asyncio.get_running_loop().create_future()

    def on_notice(self, notice: object, at_ms: int) -> None:
        if isinstance(notice, WaitEnded):
            self.over.set_result(notice)


async def test_a_wait_ends_when_it_is_over_though_nothing_else_happens() -> None:
    """With a minute between two ticks, a wait of 50 ms ends all the same."""
    node = Node(MemoryJournal(MemoryStore()), MonotonicClock(), bounds=Bounds(tick_s=60))
    running = asyncio.create_task(node.run())
    await node.ready()
    waiting = Waiting()
    node.routes.attach(1, waiting)

    for command in (OpenSession(30_000), Acquire(1, ("a",)), Acquire(1, ("a",), wait_ms=50)):
        node.submit(command, lambda *_: None)
    async with asyncio.timeout(20):
        await waiting.over

    node.stop()
    await running
