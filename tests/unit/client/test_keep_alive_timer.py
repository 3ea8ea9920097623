"""One timer for the sessions of all shards: they are kept alive together, and each stands for itself."""

import asyncio
from math import inf
from typing import Any

import pytest

from fencehold import aio
from fencehold.client.aio.carriers import channel_of
from fencehold.client.aio.shards import ShardChannels
from fencehold.client.keep_alive_timer import KeepAliveTimer
from fencehold.client.protocol.session import SessionProtocol
from fencehold.client.returns import Returns
from fencehold.errors import Unavailable
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant, State, Trust
from fencehold.server import Config, Server
from tests.unit.node.doubles import until

SHARDS = 4
NAMES = ("b", "c", "a", "d")
TTL_S = 3.0


def shards_of(client: aio.Client) -> ShardChannels:
    channel = channel_of(client._first)
    assert channel is not None
    assert isinstance(channel.shards, ShardChannels)
    return channel.shards


async def test_keep_alives_of_all_shards_go_out_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions that were opened one after another are soon kept alive in one turn, one write each."""
    sent: list[float] = []
    keep_alive = SessionProtocol._keep_alive

    def noted(protocol: SessionProtocol) -> None:
        if protocol.is_keep_alive_due(protocol._now):
            sent.append(protocol._now)
        keep_alive(protocol)

    monkeypatch.setattr(SessionProtocol, "_keep_alive", noted)
    async with Server(Config(port=0, shards=SHARDS)) as server:
        async with aio.connect(f"fencehold://127.0.0.1:{server.port}", ttl=TTL_S) as client:
            for name in NAMES:
                async with client.lock(name):
                    await asyncio.sleep(TTL_S / 16)
            together = len(sent) + 4 * SHARDS
            await until(lambda: len(sent) >= together)
            before = [at for at in sent if at < sent[-1] - TTL_S / 6]
            assert len(sent) - len(before) == SHARDS
            # As often as each would send by itself.
            assert sent[-1] - before[-1] > TTL_S / 4


async def test_a_connection_that_hangs_delays_no_other() -> None:
    """A shard that is heard of no more costs its own hold; those in others are held, and kept alive as before."""
    async with Server(Config(port=0, shards=SHARDS)) as server:
        async with aio.connect(f"fencehold://127.0.0.1:{server.port}", ttl=TTL_S) as client:
            holds = [await client.lock(name).acquire() for name in NAMES]
            mute = shards_of(client).of((NAMES[1],))
            # Whatever it connects to: nothing is heard, and what is written is not read.
            mute.protocol.on_data = lambda *_: None  # type: ignore[method-assign]
            assert holds[1] is not None
            await until(lambda: holds[1] is not None and holds[1].state is State.LOST)
            lost = [hold for hold in holds if hold is not None and hold.state is State.LOST]
            assert lost == [holds[1]]
            for hold in holds:
                if hold is not None and hold is not holds[1]:
                    await hold.release()
            del mute.protocol.on_data


class Beating:
    """A driver as its keep-alive timer sees it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, at: float, *, fails: bool = False) -> None:
        self.protocol, self.clock, self.at, self.fails, self.woken = self, loop.time, at, fails, 0

    def share_timer(self, timer: KeepAliveTimer) -> None:
        timer.expect(self.at, self.clock())

    def due_at(self) -> float:
        return self.at

    def is_keep_alive_due(self, now: float) -> bool:
        return now >= self.at

    def hasten(self, now: float) -> bool:
        return self.at < now + 10

    def wake(self) -> None:
        self.woken, self.at = self.woken + 1, inf
        if self.fails:
            raise Unavailable("planted")


async def test_a_mistake_in_one_wakes_the_others_all_the_same() -> None:
    loop = asyncio.get_running_loop()
    told: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: told.append(context))
    shared, now = KeepAliveTimer(loop), loop.time()
    drivers = [Beating(loop, now + 0.01, fails=True), Beating(loop, now + 5), Beating(loop, now + 60)]
    sleeping = Beating(loop, -inf)
    for driver in (*drivers, sleeping):
        shared._drivers.append(driver)  # type: ignore[arg-type]
    shared.expect(now + 0.01, now)
    await until(lambda: drivers[0].woken and drivers[1].woken)
    assert (drivers[2].woken, sleeping.woken, shared.times, len(told)) == (0, 0, 1, 1)
    handle = shared._timer
    for driver in (*drivers, sleeping):
        shared.leave(driver)  # type: ignore[arg-type]
    assert handle is not None
    assert handle.cancelled()


async def test_who_joins_when_all_have_left_is_woken() -> None:
    """What was due for those who left is forgotten: nobody waits for it."""
    loop = asyncio.get_running_loop()
    shared, now = KeepAliveTimer(loop), loop.time()
    gone, comes = Beating(loop, now + 0.01), Beating(loop, now + 0.02)
    shared.join(gone)  # type: ignore[arg-type]
    shared.leave(gone)  # type: ignore[arg-type]
    shared.join(comes)  # type: ignore[arg-type]
    await until(lambda: comes.woken)
    assert gone.woken == 0
    shared.leave(comes)  # type: ignore[arg-type]


async def test_who_has_something_on_its_way_back_asks_elsewhere_as_a_stranger() -> None:
    """Until the release is answered, or the hold has ended by itself; in the same shard, order is enough."""
    now = 100.0
    returns = Returns(lambda: now)
    here, there = Trust(30, 1), Trust(30, 1)
    grant = Grant(Terms(("a",)), 1, there)
    grant.owner = b"t"
    released: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    returns.begin(grant, released)
    assert returns.has_elsewhere(b"t", here)
    assert not returns.has_elsewhere(b"t", there)
    assert not returns.has_elsewhere(b"u", here)
    released.set_result(None)
    await asyncio.sleep(0)
    assert not returns.has_elsewhere(b"t", here)
    unheard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    returns.begin(grant, unheard)
    unheard.set_exception(Unavailable("away"))
    await asyncio.sleep(0)
    assert returns.has_elsewhere(b"t", here)
    now += 31
    assert not returns.has_elsewhere(b"t", here)


async def test_a_release_on_its_way_is_no_part_of_a_circle() -> None:
    """Who asks in another shard before its release is answered is another owner there while it waits."""
    async with Server(Config(port=0, shards=SHARDS)) as server:
        low, high = (server.hosts[shard].node.replica.machine.state for shard in (0, SHARDS - 1))
        url = f"fencehold://127.0.0.1:{server.port}"
        async with aio.connect(url) as client, aio.connect(url) as other:
            held, first = await other.lock("b").acquire(), await client.lock("a").acquire()
            assert held is not None
            assert first is not None
            itself = high.held["a"].owner
            mute = shards_of(client).of(("a",))
            unheard: list[bytes] = []
            mute.protocol.on_data = lambda data, now: unheard.append(data)  # type: ignore[method-assign]
            release = asyncio.create_task(first.release())
            await until(lambda: "a" not in high.held)

            async def waiting() -> str:
                await until(lambda: low.waiting)
                ((_, owner),) = low.waiting
                await held.release()
                return owner

            asked = asyncio.create_task(waiting())
            async with client.lock("b"):
                assert await asked != itself
            del mute.protocol.on_data
            mute.protocol.on_data(b"".join(unheard), mute.clock())
            await release
            async with client.lock("c"):
                assert server.hosts[1].node.replica.machine.state.held["c"].owner == itself
