"""The watch over deadlocks through several shards: what it finds it reads again before it refuses anybody."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from fencehold import aio
from fencehold.core.wait_graph import Circle, Reading
from fencehold.errors import Deadlock, Unavailable
from fencehold.journal.port import Record
from fencehold.node.deadlock_watch import DeadlockWatch, _follow_to_end
from fencehold.server import Config, Server
from fencehold.types import Epoch, Position
from tests.unit.node.doubles import until

SHARDS = 3
LOW, HIGH = "b", "a"
"""Names of shards 0 and 2."""


class Stuck(NamedTuple):
    """Two clients that wait for one another: the second has HIGH, and asked against the order of the shards."""

    watch: DeadlockWatch
    second: aio.Hold
    tasks: "list[asyncio.Task[bool]]"

    async def outcomes(self) -> list[bool]:
        """Whether each has had both."""
        return await asyncio.gather(*self.tasks)


@asynccontextmanager
async def stuck(patch: pytest.MonkeyPatch) -> AsyncIterator[Stuck]:
    """A watch that looks when it is told to, and something to see."""
    patch.setattr(DeadlockWatch, "run", _never)
    async with Server(Config(port=0, shards=SHARDS)) as server:
        url = f"fencehold://127.0.0.1:{server.port}"
        async with aio.connect(url) as first, aio.connect(url) as second:
            holds: list[aio.Hold] = []
            tasks = [
                asyncio.create_task(_take(first, LOW, HIGH, holds)),
                asyncio.create_task(_take(second, HIGH, LOW, holds)),
            ]
            states = [server.hosts[shard].node.replica.machine.state for shard in (0, SHARDS - 1)]
            await until(lambda: all(state.waiting for state in states))
            assert server.shards is not None
            yield Stuck(server.shards.deadlocks, next(hold for hold in holds if HIGH in hold.names), tasks)


async def _never(_: DeadlockWatch) -> None:
    await asyncio.Event().wait()


async def _take(client: aio.Client, name: str, other: str, holds: list[aio.Hold]) -> bool:
    hold = await client.lock(name).acquire()
    assert hold is not None
    holds.append(hold)
    await until(lambda: len(holds) == 2)
    try:
        async with client.lock(other):
            return True
    except Deadlock:
        return False
    finally:
        if hold.safe_for() > 0:
            await hold.release()


async def test_a_circle_is_ended_by_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is read again while nobody has begun to wait since."""
    async with stuck(monkeypatch) as seen:
        await seen.watch.look()
        assert await seen.outcomes() == [True, False]
        assert (seen.watch.refused, seen.watch.looks) == (1, 1)
        await seen.watch.look()
        assert seen.watch.looks == 1


async def test_what_a_look_takes_is_counted_within_a_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on while the loop is kept: the pause after a look is so many times that."""
    async with stuck(monkeypatch) as seen:
        loop = asyncio.get_running_loop()
        stands_still = loop.time()
        with monkeypatch.context() as patch:
            patch.setattr(loop, "time", lambda: stands_still, raising=False)
            found = await seen.watch._search([])
        assert found == []
        assert seen.watch._took_s > 0
        await seen.watch.look()
        assert await seen.outcomes() == [True, False]


async def test_what_is_over_when_it_is_read_again_refuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hold of the circle is released after the first readings, before the second."""
    async with stuck(monkeypatch) as seen:
        search = DeadlockWatch._search

        async def late(watch: DeadlockWatch, readings: list[Reading]) -> list[Circle]:
            circles = await search(watch, readings)
            assert len(circles) == 1
            await seen.second.release()
            return circles

        monkeypatch.setattr(DeadlockWatch, "_search", late)
        await seen.watch.look()
        assert await seen.outcomes() == [True, True]
        assert seen.watch.refused == 0


async def test_what_could_not_be_read_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shard whose journal was not followed for a moment shows the same as before, and the circle is found."""
    async with stuck(monkeypatch) as seen:
        read = DeadlockWatch._read

        async def blind(watch: DeadlockWatch, shard: int, *args: Any, **more: Any) -> Reading | None:
            return None if shard == 0 else await read(watch, shard, *args, **more)

        with monkeypatch.context() as patch:
            patch.setattr(DeadlockWatch, "_read", blind)
            await seen.watch.look()
        assert seen.watch.refused == 0
        await seen.watch.look()
        assert seen.watch.refused == 1
        assert await seen.outcomes() == [True, False]


async def test_while_a_shard_cannot_be_read_nobody_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even one outside the circle: somebody in it may wait there, too, and be no one task."""
    async with stuck(monkeypatch) as seen:
        read = DeadlockWatch._read

        async def blind(watch: DeadlockWatch, shard: int, *args: Any, **more: Any) -> Reading | None:
            return None if shard == 1 else await read(watch, shard, *args, **more)

        with monkeypatch.context() as patch:
            patch.setattr(DeadlockWatch, "_read", blind)
            await seen.watch.look()
            assert seen.watch.refused == 0
        await seen.watch.look()
        assert await seen.outcomes() == [True, False]


class Follower:
    """A node that has followed a journal up to a position, behind its end."""

    def __init__(self) -> None:
        self.position, self.role, self.journal = 3, "standby", self

    async def read(self, after: int) -> AsyncIterator[Record]:
        for position in range(after + 1, 6):
            yield Record(Position(position), Epoch(1), b"entry")


async def test_a_node_that_is_behind_reads_on_before_it_confirms() -> None:
    """What the journal held when it was asked is followed first; one that does not follow confirms nothing."""
    node: Any = Follower()
    current = asyncio.create_task(_follow_to_end(node))
    for node.position in (3, 4):
        await asyncio.sleep(0.03)
        assert not current.done()
    node.position = 5
    await current
    node.position, node.role = 3, "waiting"
    with pytest.raises(Unavailable):
        await _follow_to_end(node)
