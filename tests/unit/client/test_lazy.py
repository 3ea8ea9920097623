"""Lazy clients: made when a module is imported, connected when they are first used."""

import asyncio
import gc
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fencehold
from fencehold import EFFICIENCY, State, UsageError, aio
from tests.forks import in_a_child
from tests.unit.client.service import PATIENCE_S, run, service, service_on_a_thread


@pytest.fixture
def nowhere() -> Iterator[int]:
    """A port at which nobody answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        yield listener.getsockname()[1]


def threads() -> list[threading.Thread]:
    """Those of blocking clients."""
    return [thread for thread in threading.enumerate() if thread.name == "fencehold"]


def raised(call: Callable[[], object]) -> tuple[type[BaseException], str]:
    """What a call raises, and what that says."""
    with pytest.raises(fencehold.FenceholdError) as error:
        call()
    return error.type, str(error.value)


def refusing_urls(nowhere: int, served: str, folder: Path) -> dict[str, str]:
    """URLs that cannot be connected to, each for its own reason."""
    return {
        "service": f"fencehold://127.0.0.1:{nowhere}",
        "redis": f"redis://127.0.0.1:{nowhere}",
        "etcd": f"etcd://127.0.0.1:{nowhere}",
        "sqlite": f"sqlite:///{folder}/no/such/folder/locks.db",
        "denied": served.replace("://", "://user:secret@"),
    }


KINDS = ["service", "redis", "etcd", "sqlite", "denied"]


# Threads.


def test_making_a_lazy_client_connects_to_nothing(nowhere: int) -> None:
    """Nor do its locks, decorators and elections; and one that was never used need not be closed."""
    client = fencehold.connect(f"fencehold://127.0.0.1:{nowhere}", lazy=True)

    @client.lock("a")
    def under_a_lock() -> None: ...

    @client.once("b", at_most="1m")
    def once() -> None: ...

    client.election("c")
    client.rwlock("d").read()
    assert client.guarantees.fenced
    assert threads() == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del under_a_lock, once, client
        gc.collect()


@pytest.mark.parametrize("backend", ["fencehold", "memory", "sqlite"])
def test_a_lazy_client_connects_when_it_is_first_used(backend: str, tmp_path: Path) -> None:
    """And then is like any other."""
    with service_on_a_thread() as served:
        urls = {"fencehold": served, "memory": "memory://lazy", "sqlite": f"sqlite:///{tmp_path}/locks.db"}
        with fencehold.connect(urls[backend], lazy=True) as client:
            lock = client.lock("a")
            with lock as hold:
                assert hold.state is State.HELD
                assert len(client.explain("a").holders) == 1
            client.ready()
        with pytest.raises(UsageError, match="closed"):
            lock.acquire()


def test_a_lazy_client_that_is_closed_unused_stays_closed(nowhere: int) -> None:
    """Its first use is none."""
    client = fencehold.connect(f"fencehold://127.0.0.1:{nowhere}", lazy=True)
    client.close()
    with pytest.raises(UsageError, match="closed"):
        client.lock("a").acquire()


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_use_raises_what_connect_would_have(kind: str, nowhere: int, tmp_path: Path) -> None:
    """Whatever it is that is done first; and the next use tries again."""
    with service_on_a_thread() as served:
        url = refusing_urls(nowhere, served, tmp_path)[kind]
        eager = raised(lambda: fencehold.connect(url, connect_timeout="500ms"))
        first_uses: list[Callable[[fencehold.Client], object]] = [
            lambda client: client.lock("a", tier=EFFICIENCY).acquire(),
            lambda client: client.explain("a"),
            lambda client: client.ready(),
        ]
        for use in first_uses:
            with fencehold.connect(url, connect_timeout="500ms", lazy=True) as client:
                assert raised(lambda use=use, client=client: use(client)) == eager  # type: ignore[misc]
                assert raised(lambda use=use, client=client: use(client))[0] is eager[0]  # type: ignore[misc]


@pytest.mark.parametrize("wrong", ["nonsense://x", "fencehold://host:0"])
def test_what_makes_no_sense_is_said_at_once(wrong: str) -> None:
    """It would not make any later."""
    assert raised(lambda: fencehold.connect(wrong, lazy=True)) == raised(lambda: fencehold.connect(wrong))
    assert raised(lambda: aio.connect(wrong, lazy=True)) == raised(lambda: aio.connect(wrong))


def test_many_threads_that_use_it_first_share_one_session() -> None:
    """Whoever of them comes first."""
    with service_on_a_thread() as url, fencehold.connect(url, lazy=True) as client:
        together = threading.Barrier(8)
        owners: list[int] = []

        def use(name: str) -> None:
            together.wait()
            with client.lock(name):
                owners.append(client.explain(name).holders[0].party.session)

        users = [threading.Thread(target=use, args=(str(each),)) for each in range(8)]
        for user in users:
            user.start()
        for user in users:
            user.join()
        assert (len(owners), len(set(owners)), len(threads())) == (8, 1, 1)


def test_children_that_inherit_an_unused_lazy_client_just_work() -> None:
    """Each has a session of its own, as the parent has when it uses it later."""
    with service_on_a_thread() as url, fencehold.connect(url, lazy=True) as client:
        lock = client.lock("a", timeout=PATIENCE_S)

        def check() -> None:
            with lock as hold:
                assert hold.state is State.HELD
            client.close()

        assert [in_a_child(check) for _ in range(2)] == [0, 0]
        with lock as hold:
            assert hold.state is State.HELD


def test_children_that_inherit_a_used_lazy_client_have_a_session_of_their_own() -> None:
    """And none of the parent's holds, as of any other client."""
    with service_on_a_thread() as url, fencehold.connect(url, lazy=True) as client, client.lock("a") as hold:

        def check() -> None:
            assert hold.state is State.LOST
            assert client.lock("a").acquire(timeout=0) is None
            with client.lock("b"):
                pass
            client.close()

        assert in_a_child(check) == 0
        hold.check()


def test_a_lazy_client_is_closed_when_the_interpreter_ends() -> None:
    """What it held is free at once, and not when its session runs out; and nothing is warned of."""
    program = """
import fencehold, sys
client = fencehold.connect(sys.argv[1], lazy=True, ttl=60, grace=60)
kept = client.lock("a").acquire()
"""
    with service_on_a_thread() as url, fencehold.connect(url) as other:
        words = [sys.executable, "-X", "dev", "-c", program, url]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert (ended.returncode, ended.stderr) == (0, "")
        assert other.explain("a").holders == ()


# Tasks.


def test_a_lazy_async_client_belongs_to_the_loop_that_first_uses_it(nowhere: int) -> None:
    """Made where no loop runs, with locks and decorators; and one that was never used need not be closed."""
    with service_on_a_thread() as url:
        client = aio.connect(url, lazy=True)
        lock = client.lock("a")
        election = client.election("c")

        @client.once("b", at_most=60)
        async def job() -> str:
            return "done"

        async def main() -> None:
            async with lock as hold:
                assert hold.deadline() > asyncio.get_running_loop().time()
                assert (await client.explain("a")).holders[0].fence == hold.fence
            assert await job() == "done"
            term = await election.campaign()
            await term.release()
            await client.ready()
            async with client.watch("a") as events, lock:
                assert (await anext(events)).kind == "acquired"
            await client.close()
            with pytest.raises(UsageError, match="closed"):
                await lock.acquire()

        run(main())
    unused = aio.connect(f"fencehold://127.0.0.1:{nowhere}", lazy=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del unused
        gc.collect()


async def test_a_lazy_async_client_may_be_entered() -> None:
    """And is closed at the end."""
    async with service() as url:
        async with aio.connect(url, lazy=True) as client, client.lock("a") as hold:
            hold.check()
        with pytest.raises(UsageError, match="closed"):
            await client.lock("b").acquire()


def test_a_lazy_async_client_needs_a_running_loop_to_connect(nowhere: int) -> None:
    """What would connect says so; and closing one that was never used does nothing."""
    client = aio.connect(f"fencehold://127.0.0.1:{nowhere}", lazy=True)
    with pytest.raises(UsageError, match="inside a running event loop"):
        client.watch("a")

    async def main() -> None:
        await client.close()
        with pytest.raises(UsageError, match="closed"):
            await client.lock("a").acquire()

    run(main())


async def test_an_async_client_that_was_used_and_not_closed_warns() -> None:
    """Lazy or not."""
    with service_on_a_thread() as url:
        clients = [aio.connect(url, lazy=True)]
        async with clients[0].lock("a"):
            pass
        channel = clients[0]._first.within  # type: ignore[attr-defined]
        with pytest.warns(ResourceWarning, match="not closed"):
            clients.clear()
        await channel.close()


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_use_by_a_task_raises_what_connect_would_have(kind: str, nowhere: int, tmp_path: Path) -> None:
    """Whatever it is that is done first."""
    with service_on_a_thread() as served:
        url = refusing_urls(nowhere, served, tmp_path)[kind]

        async def eager() -> None:
            await aio.connect(url, connect_timeout="500ms")

        async def lazy() -> None:
            async with aio.connect(url, connect_timeout="500ms", lazy=True) as client:
                await client.lock("a", tier=EFFICIENCY).acquire()

        assert raised(lambda: asyncio.run(lazy())) == raised(lambda: asyncio.run(eager()))


def test_children_may_use_a_lazy_async_client_that_was_not_used_before() -> None:
    """One that was belongs to the parent's loop."""
    with service_on_a_thread() as url:
        unused, used = aio.connect(url, lazy=True), aio.connect(url, lazy=True)

        async def use(client: aio.Client) -> None:
            async with client.lock("a", timeout=PATIENCE_S):
                pass

        def check() -> None:
            asyncio.run(use(unused))
            with pytest.raises(UsageError, match="fork"):
                asyncio.run(use(used))

        async def main() -> None:
            await use(used)
            assert await asyncio.to_thread(in_a_child, check) == 0
            await use(used)
            await use(unused)
            await used.close()
            await unused.close()

        asyncio.run(main())


def test_a_lazy_async_client_says_so_when_another_loop_uses_it() -> None:
    """It belongs to the first one, also when that is over."""
    with service_on_a_thread() as url:
        client = aio.connect(url, lazy=True)

        async def use() -> None:
            async with client.lock("a"):
                pass

        async def use_and_close() -> None:
            await use()
            with pytest.raises(UsageError, match="another event loop"):
                await asyncio.to_thread(asyncio.run, use())
            await client.close()

        asyncio.run(use_and_close())
        with pytest.raises(UsageError):
            asyncio.run(use())
