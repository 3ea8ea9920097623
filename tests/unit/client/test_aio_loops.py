"""An async client belongs to the event loop it was made on: on another it says so at once, and hangs nobody."""

import asyncio
import gc
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

import fencehold
from fencehold import aio
from fencehold.errors import UsageError
from tests.stopwatch import Stopwatch
from tests.unit.client.service import PATIENCE_S, service_on_a_thread

ELSEWHERE = "this client belongs to another event loop: connect inside the running one"
SOON_S = 2.0
"""Less than any timeout of a client, and far more than an answer at once takes."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with service_on_a_thread() as url:
        yield url


@pytest.fixture(params=["service", "direct"])
def home(request: pytest.FixtureRequest, url: str, tmp_path: Any) -> str:
    """Where locks come from: the service, or a backend that is used directly."""
    return url if request.param == "service" else f"sqlite:///{tmp_path}/locks.db"


class Elsewhere:
    """A client, a lock and a hold on the loop of another thread, or on one that is closed."""

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.client: aio.Client = self.run(_connected(url))
        self.hold: Any = self.run(self.client.lock("held").acquire())

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(PATIENCE_S)

    def close(self) -> None:
        self.run(self.client.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _connected(url: str) -> aio.Client:
    return await aio.connect(url)


async def _entered(lock: Any) -> None:
    async with lock:
        pytest.fail("granted")


VERBS: dict[str, Callable[[aio.Client, Any], Coroutine[Any, Any, Any]]] = {
    "acquire": lambda client, _: client.lock("a").acquire(),
    "try": lambda client, _: client.lock("a").acquire(timeout=0),
    "with": lambda client, _: _entered(client.lock("a")),
    "rlock": lambda client, _: _entered(client.rlock("a")),
    "locked": lambda client, _: client.lock("a").locked(),
    "campaign": lambda client, _: client.election("a").campaign(),
    "leader": lambda client, _: client.election("a").leader(),
    "explain": lambda client, _: client.explain("a"),
    "break": lambda client, _: client.break_hold("a"),
    "ready": lambda client, _: client.ready(),
    "close": lambda client, _: client.close(),
    "release": lambda _, hold: hold.release(),
    "extend": lambda _, hold: hold.extend(5),
    "lost": lambda _, hold: hold.lost.wait(),
}


def test_every_verb_says_that_the_client_is_anothers(home: str) -> None:
    """At once, and what is held on its own loop stays held, and can be closed there."""
    elsewhere = Elsewhere(home)
    try:
        for verb, ask in VERBS.items():
            watch = Stopwatch()
            with pytest.raises(UsageError, match=ELSEWHERE):
                asyncio.run(ask(elsewhere.client, elsewhere.hold))
            assert watch.passed_s < SOON_S, verb
        elsewhere.hold.check()
        assert elsewhere.run(elsewhere.client.explain("held")).holders
        assert not elsewhere.run(elsewhere.client.explain("a")).queue
    finally:
        elsewhere.close()


def test_a_tier_is_not_opened_on_another_loop(url: str) -> None:
    """What is first used there would belong to neither."""
    elsewhere = Elsewhere(url)

    async def use() -> None:
        with pytest.raises(UsageError, match=ELSEWHERE):
            elsewhere.client.lock("a", tier=fencehold.EFFICIENCY)

    try:
        asyncio.run(use())
    finally:
        elsewhere.close()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_client_whose_loop_is_closed_hangs_nobody(url: str) -> None:
    """Neither does an acquire on the next loop, nor the close after it."""
    clients = [asyncio.run(_connected(url))]

    async def use() -> None:
        for ask in (clients[0].lock("a").acquire, clients[0].close):
            with pytest.raises(UsageError, match=ELSEWHERE):
                await ask()

    watch = Stopwatch()
    asyncio.run(use())
    assert watch.passed_s < SOON_S
    # Nobody can close it any more: its socket is closed when it is collected, and that is warned of.
    clients.clear()
    gc.collect()


def test_what_is_closed_twice_or_elsewhere_ends_no_other_client() -> None:
    """Clients of one `memory://` share a server, which lives as long as one of them does."""
    elsewhere = Elsewhere("memory://shared")

    async def use() -> None:
        async with aio.connect("memory://shared") as other:
            with pytest.raises(UsageError, match=ELSEWHERE):
                await elsewhere.client.close()
            elsewhere.close()
            for _ in range(2):
                await elsewhere.client.close()
            async with other.lock("a") as hold:
                hold.check()

    asyncio.run(use())


def test_a_closed_client_is_closed_on_every_loop(home: str) -> None:
    """Closing it again does nothing, and whoever asks hears that it is closed."""
    elsewhere = Elsewhere(home)
    elsewhere.close()

    async def use() -> None:
        await elsewhere.client.close()
        with pytest.raises(UsageError, match="the client is closed"):
            await elsewhere.client.lock("a").acquire()

    asyncio.run(use())
