"""Asking by the thread that asks: what threads, the loop, closing, interrupts and forks do to one another."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fencehold
from fencehold import EFFICIENCY, HoldLost, OutcomeUnknown, State, UsageError, aio
from fencehold.backends.lease.store import Busy, Taken
from fencehold.backends.lease.thread_path import ThreadPath
from fencehold.backends.port import Ask, Lease, Settings
from fencehold.backends.redis.store import RedisStore
from fencehold.drivers.resp.address import RedisAddress
from fencehold.locks.clock import clock
from fencehold.locks.identity import this_thread
from fencehold.locks.terms import Terms
from rig.redis import Redis
from tests.forks import in_a_child
from tests.unit.backends.lease.shelf import Scene
from tests.unit.backends.lease.test_backend import granted, until


class Desk:
    """Where threads ask the shelf. What stands in `then` is called when something was done, before it is told."""

    def __init__(self, scene: Scene) -> None:
        self._held = scene.shelf.held
        self.then: Callable[[], object] = lambda: None
        self.is_closed = False

    def take(self, ask: Ask, ttl: float) -> Taken | Busy:
        is_taken = self._held.setdefault(ask.name, ask.token) == ask.token
        self.then()
        return Taken(1) if is_taken else Busy()

    def release(self, lease: Lease) -> bool:
        had = self._held.get(lease.ask.name) == lease.ask.token
        if had:
            del self._held[lease.ask.name]
        self.then()
        return had

    def close(self) -> None:
        self.is_closed = True


class DeskScene(Scene):
    """A backend that threads may ask."""

    def __init__(self, ttl: float = 0.6) -> None:
        super().__init__(ttl)
        self.desk = Desk(self)
        self.shelf.thread_store = self.desk

    async def __aenter__(self) -> "DeskScene":
        await super().__aenter__()
        return self

    @property
    def at_once(self) -> ThreadPath:
        assert self.backend.at_once is not None
        return self.backend.at_once

    def ask_by_thread(self, name: str = "a", **terms: Any) -> Lease | None:
        """What the calling thread gets."""
        grant = self.at_once.acquire(Terms((name,), **terms), this_thread()).grant
        assert grant is None or isinstance(grant, Lease)
        return grant


async def granted_to_thread(scene: DeskScene, name: str = "a", **terms: Any) -> Lease:
    lease = await asyncio.to_thread(scene.ask_by_thread, name, **terms)
    assert lease is not None
    return lease


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Redis]:
    with Redis(tmp_path) as server:
        yield server


async def test_what_a_thread_is_granted_while_the_client_is_closed_is_given_back() -> None:
    """The client is closed after the store has granted and before the thread hears so."""
    scene = DeskScene()
    async with scene:
        await granted(scene, "other")
        is_granted, go_on = threading.Event(), threading.Event()

        def pause() -> None:
            scene.desk.then = lambda: None
            is_granted.set()
            go_on.wait(5)

        scene.desk.then = pause
        asking = asyncio.create_task(asyncio.to_thread(scene.ask_by_thread))
        await asyncio.to_thread(is_granted.wait, 5)
    go_on.set()
    assert await asking is None
    assert scene.shelf.held == {}


@pytest.mark.parametrize("ttl", [None, 5.0])
async def test_an_interrupt_behind_a_grant_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, ttl: float | None
) -> None:
    """Also if the lease is looked after already: it would be kept alive for ever."""
    async with DeskScene() as scene:
        await granted(scene, "other")
        keeper = scene.backend.keeper
        adopt = keeper.adopt

        def interrupted(lease: Lease) -> bool:
            adopt(lease)
            raise KeyboardInterrupt

        monkeypatch.setattr(keeper, "adopt", interrupted)

        def ask() -> bool:
            with pytest.raises(KeyboardInterrupt):
                scene.ask_by_thread(ttl=ttl)
            return True

        assert await asyncio.to_thread(ask)
        await until(lambda: list(scene.shelf.held) == ["other"])
        assert [lease.ask.name for lease in keeper.leases] == ["other"]


async def test_a_release_that_was_done_and_not_answered_is_no_loss() -> None:
    """To ask again finds nothing; and what may be free is trusted by nobody meanwhile."""
    async with DeskScene() as scene:
        lease = await granted_to_thread(scene)
        lost: list[object] = []
        lease.on_lost = lost.append

        def cut() -> None:
            raise OutcomeUnknown("cut")

        scene.desk.then = cut
        assert not await asyncio.to_thread(scene.at_once.release, lease)
        assert lease.safe_for(clock()) == 0
        with pytest.raises(OutcomeUnknown, match="is free"):
            await scene.backend.release(lease)
        assert lease.state(clock()) is State.RELEASED
        assert lost == []


async def test_a_release_that_was_not_done_is_done_on_the_loop() -> None:
    async with DeskScene() as scene:
        lease = await granted_to_thread(scene)

        def cut() -> None:
            scene.shelf.held["a"] = lease.ask.token
            raise OutcomeUnknown("cut")

        scene.desk.then = cut
        assert not await asyncio.to_thread(scene.at_once.release, lease)
        await scene.backend.release(lease)
        assert scene.shelf.held == {}


async def test_a_loss_is_told_in_time_though_an_extension_hangs() -> None:
    """A lease of a thread has no timer at first: no renewal that hangs may keep it from getting one."""
    async with DeskScene(ttl=0.6) as scene:
        other = await granted(scene, "other")
        lease = await granted_to_thread(scene)
        scene.shelf.next_renewals.append(asyncio.Event().wait)
        extending = asyncio.create_task(scene.backend.extend(other, 5))
        lost = asyncio.Event()
        lease.on_lost = lambda _: lost.set()
        async with asyncio.timeout(4):
            await lost.wait()
        extending.cancel()
        await asyncio.gather(extending, return_exceptions=True)


def test_a_withdrawal_finds_a_loop_that_is_closed(recwarn: pytest.WarningsRecorder) -> None:
    """Then there is nobody to tell: what was asked for runs out by itself."""
    scene = DeskScene()

    async def main() -> ThreadPath:
        async with scene:
            return scene.at_once

    at_once = asyncio.run(main())

    def cut() -> None:
        raise OutcomeUnknown("cut")

    scene.desk.then = cut
    assert not at_once.acquire(Terms(("a",)), this_thread()).is_known
    assert not recwarn.list


def test_a_thread_that_asks_a_closed_redis_leaves_no_connection(server: Redis) -> None:
    store = RedisStore(RedisAddress.parse(server.url), Settings())
    assert store.thread_store is not None
    ask = Ask(Terms(("a",)), "0" * 32, "thread")
    assert store.thread_store.take(ask, 5) == Taken(0)
    store.thread_store.close()
    assert store.thread_store.take(ask, 5) == Taken(0)
    assert not any(connection._sock is not None for connection in store.thread_store._all)


def test_a_connection_in_use_is_given_up_by_who_uses_it(server: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing meanwhile does not turn an answer that comes into one that is unknown."""
    store = RedisStore(RedisAddress.parse(server.url), Settings())
    thread_store = store.thread_store
    assert thread_store is not None
    asked = thread_store._ask

    def closing(connection: Any, command: bytes) -> Any:
        thread_store.close()
        return asked(connection, command)

    monkeypatch.setattr(thread_store, "_ask", closing)
    assert thread_store.take(Ask(Terms(("a",)), "0" * 32, "thread"), 5) == Taken(0)
    assert not any(connection._sock is not None for connection in thread_store._all)


@pytest.mark.parametrize("ttl", [None, 10.0])
def test_a_forked_child_inherits_no_hold_of_a_backend(server: Redis, ttl: float | None) -> None:
    """It cannot trust it, nor give it back for its parent, nor use its parent's connection."""
    with fencehold.connect(server.url) as client, client.lock("a", ttl=ttl, tier=EFFICIENCY) as claim:

        def check() -> None:
            assert claim.state is State.LOST
            with pytest.raises(HoldLost, match="parent"):
                claim.check()
            with pytest.raises(HoldLost, match="parent"):
                claim.release()
            with client.lock("b", tier=EFFICIENCY):
                assert client.lock("a", tier=EFFICIENCY).acquire(timeout=0) is None
            client.close()

        assert in_a_child(check) == 0
        claim.check()
        assert server.ask("EXISTS", "a") == 1
        with client.lock("c", tier=EFFICIENCY):
            pass


async def test_an_async_client_of_a_backend_is_not_used_in_a_child(server: Redis) -> None:
    async def acquire(client: aio.Client) -> None:
        await client.lock("b", tier=EFFICIENCY).acquire()

    async with aio.connect(server.url) as client, client.lock("a", tier=EFFICIENCY) as claim:

        def check() -> None:
            assert claim.state is State.LOST
            # In a thread: this one has a loop that runs, as its parent's has.
            caught: list[BaseException] = []
            thread = threading.Thread(target=_run_into, args=(acquire(client), caught))
            thread.start()
            thread.join(10)
            assert isinstance(caught[0], UsageError)
            assert "fork" in str(caught[0])

        assert in_a_child(check) == 0
        claim.check()
        assert await client.lock("a", tier=EFFICIENCY).locked()


def _run_into(coroutine: Any, caught: list[BaseException]) -> None:
    try:
        asyncio.run(coroutine)
    except BaseException as error:
        caught.append(error)


async def test_what_is_kept_for_a_least_time_is_given_back_on_the_loop() -> None:
    """A thread by itself would free the name; the loop has its record run out when its time is over."""
    async with DeskScene() as scene:
        lease = await granted_to_thread(scene, ttl=60.0, at_least=20.0)
        assert not await asyncio.to_thread(scene.at_once.release, lease)
        assert not lease.ending
        await scene.backend.release(lease)
        assert scene.shelf.held == {"a": lease.ask.token}
        assert 19 < scene.shelf.lasting[lease.ask.token] <= 20
