"""Whatever happens on `zookeeper://`, no place, watch, parent or thread is left behind."""

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fencehold import HoldLost, aio
from fencehold.backends.zookeeper.queue import part_of
from rig.zookeeper import Member, ZookeeperEnsemble
from tests.behaviour.asking import connect, until
from tests.behaviour.grounds.zookeeper import GROUND as ZookeeperGround
from tests.behaviour.zookeepers import (
    CREATE2,
    ROOT,
    Eye,
    behind_a_valve,
    session_of,
)

GROUND = "zookeeper"


@pytest.fixture
def eye(ground: ZookeeperGround) -> Iterator[Eye]:
    seeing = Eye(ground.ensemble)
    yield seeing
    seeing.close()


@pytest.mark.parametrize("timeout", [0, 20])
def test_a_place_whose_answer_was_lost_is_found_again(
    ground: ZookeeperGround, new_name: Callable[[], str], eye: Eye, timeout: float
) -> None:
    """The ask goes on with the place it has: it is granted once, and leaves nothing behind."""

    async def main() -> None:
        async with behind_a_valve(ground) as (valve, client):
            name = new_name()
            valve.lose_reply(CREATE2)
            async with client.lock(name, timeout=timeout) as hold:
                assert valve.lost.is_set()
                (node,) = eye.nodes(name)
                assert eye.stat(name, node).czxid == hold.fence
            assert eye.nodes(name) == []

    asyncio.run(main())


@pytest.mark.parametrize("is_held", [False, True])
def test_a_place_whose_answer_was_lost_is_removed_if_nobody_waits_for_it_any_more(
    ground: ZookeeperGround, new_name: Callable[[], str], eye: Eye, is_held: bool
) -> None:
    """Cancelled at the moment at which it cannot know whether it has a place."""

    async def main() -> None:
        async with behind_a_valve(ground) as (valve, client), connect(ground) as other:
            name = new_name()
            holder = await other.lock(name).acquire() if is_held else None
            task = asyncio.create_task(client.lock(name).acquire())

            async def cancel() -> None:
                valve.is_open = False
                assert len(eye.nodes(name)) == 1 + is_held
                task.cancel()

            valve.lose_reply(CREATE2, cancel)
            with pytest.raises(asyncio.CancelledError):
                await task
            valve.is_open = True
            await until(lambda: len(eye.nodes(name)) == is_held)
            if holder is not None:
                await holder.release()
            async with other.lock(name, timeout=10):
                pass

    asyncio.run(main())


def test_a_place_that_is_asked_for_late_is_not_made_twice(
    ground: ZookeeperGround, new_name: Callable[[], str], eye: Eye
) -> None:
    """A request that a dead connection delivers after the next one was made comes to nothing."""

    async def main() -> None:
        async with behind_a_valve(ground) as (valve, client):
            name = new_name()
            valve.lose_request(CREATE2)
            async with client.lock(name, timeout=20) as hold:
                valve.held()
                await client.explain(name)
                (node,) = eye.nodes(name)
                assert eye.stat(name, node).czxid == hold.fence
            assert eye.nodes(name) == []

    asyncio.run(main())


def test_a_storm_of_tries_leaves_nothing_behind(ground: ZookeeperGround, name: str, eye: Eye) -> None:
    """Eight hundred who do not wait, while connections break: one place is there, and it is the holder's."""

    async def main() -> None:
        async with connect(ground) as one, connect(ground) as other, connect(ground) as third:
            async with one.lock(name) as hold:

                async def attempt(client: aio.Client) -> None:
                    assert await client.lock(name, timeout=0).acquire() is None

                tries = [asyncio.create_task(attempt((other, third)[each % 2])) for each in range(800)]
                for done in (0, 100, 300, 500):
                    await until(lambda done=done: sum(each.done() for each in tries) >= done)  # type: ignore[misc]
                    session_of(other).cut()
                    session_of(third).cut()
                await asyncio.gather(*tries)
                await until(lambda: len(eye.nodes(name)) == 1)
                assert eye.stat(name, eye.nodes(name)[0]).czxid == hold.fence
            assert eye.nodes(name) == []
            await until(lambda: (session_of(other).claims, session_of(third).claims) == (0, 0))

    asyncio.run(main())


def test_a_storm_of_cancellations_leaves_nothing_behind(ground: ZookeeperGround, name: str, eye: Eye) -> None:
    """Three hundred who are cancelled at any moment, while connections break."""
    lot = random.Random(7)

    async def main() -> None:
        async with connect(ground) as one, connect(ground) as other:

            async def ask(client: aio.Client, give_up_after: float) -> None:
                try:
                    async with asyncio.timeout(give_up_after), client.lock(name):
                        await asyncio.sleep(0.001)
                except (TimeoutError, HoldLost):
                    pass

            asks = [asyncio.create_task(ask((one, other)[each % 2], lot.uniform(0, 0.6))) for each in range(300)]
            for over in (50, 100, 150, 200):
                await until(lambda over=over: sum(each.done() for each in asks) >= over)  # type: ignore[misc]
                session_of(one).cut()
            await asyncio.gather(*asks)
            await until(lambda: eye.nodes(name) == [])
            async with one.lock(name, timeout=10):
                pass

    asyncio.run(main())


def test_a_free_name_costs_nothing(tmp_path: Path) -> None:
    """Its parent is removed by the servers once nobody has a place there; here they look often."""
    ensemble = ZookeeperEnsemble(tmp_path, 1)
    ensemble.members = [Member(1, tmp_path / "1", {"znode.container.checkIntervalMs": "100"})]

    async def main(eye: Eye) -> None:
        async with aio.connect(ensemble.url(ROOT)) as client:
            async with client.lock("kept"), client.lock("free"):
                assert eye.stat("free") is not None
            async with client.lock("kept", timeout=10):
                await until(lambda: eye.stat("free") is None)
                assert eye.stat("kept") is not None

    with ensemble:
        eye = Eye(ensemble)
        try:
            asyncio.run(main(eye))
        finally:
            eye.close()


def test_a_name_whose_parent_went_is_asked_for_again(ground: ZookeeperGround, name: str, eye: Eye) -> None:
    """A client that knew the parent of a name makes it anew, and fences go on growing."""

    async def main() -> None:
        async with connect(ground) as client:
            async with client.lock(name) as hold:
                first = hold.fence
            eye._kazoo.delete(f"{ROOT}/{part_of(name)}")
            async with client.lock(name, timeout=10) as hold:
                assert hold.fence > first

    asyncio.run(main())


def test_a_closed_client_leaves_no_thread(ground: ZookeeperGround, name: str) -> None:
    """Nor a session."""

    async def main() -> None:
        before = threading.active_count()
        async with connect(ground) as client, client.lock(name):
            assert any(each.name == "fencehold zookeeper" for each in threading.enumerate())
        assert not any(each.name == "fencehold zookeeper" for each in threading.enumerate())
        # A loop keeps a thread for what blocks; it ends with the loop.
        assert threading.active_count() <= before + 2

    asyncio.run(main())


def test_a_storm_of_handovers_leaves_no_watches(ground: ZookeeperGround, name: str) -> None:
    """Neither here nor at the servers: a watch on what has gone would be kept for as long as the session."""

    async def main() -> None:
        async with connect(ground) as one, connect(ground) as other:

            async def turns(client: aio.Client) -> None:
                for _ in range(5):
                    async with client.lock(name, timeout=30):
                        pass

            await asyncio.gather(*(turns((one, other)[each % 2]) for each in range(16)))
            for client in (one, other):
                session = session_of(client)
                assert session._watched == {}
                await until(lambda session=session: not any(session._client._data_watchers.values()))  # type: ignore[misc]

    asyncio.run(main())
