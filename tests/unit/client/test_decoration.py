"""What a lock can be put around: only what runs its body when it is called, so that none runs without the lock."""

import asyncio
import contextlib
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from functools import partial, wraps
from typing import Any, cast

import pytest

import fencehold
from fencehold import Client, aio
from fencehold.errors import UsageError
from tests.unit.client.service import service, service_on_a_thread


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with service_on_a_thread() as url, fencehold.connect(url) as client:
        yield client


Decorator = Callable[[Any], Any]

BLOCKING: dict[str, Callable[[Client], Decorator]] = {
    "lock": lambda client: client.lock("x"),
    "once": lambda client: client.once("x", at_most=60),
    "multi": lambda client: client.multi(["x", "y"]),
    "semaphore": lambda client: client.semaphore("s", 2),
    "read": lambda client: client.rwlock("x").read(),
    "write": lambda client: client.rwlock("x").write(),
}
ASYNC: dict[str, Callable[[aio.Client], Decorator]] = {
    "lock": lambda client: client.lock("x"),
    "once": lambda client: client.once("x", at_most=60),
    "semaphore": lambda client: client.semaphore("s", 2),
}


async def charge(amount: int = 1) -> int:
    return amount


def plain(amount: int = 1) -> int:
    return amount


def rows() -> Iterator[int]:
    yield 1


async def streamed() -> AsyncIterator[int]:
    yield 1


@contextlib.contextmanager
def session() -> Iterator[int]:
    yield 1


@contextlib.asynccontextmanager
async def async_session() -> AsyncIterator[int]:
    yield 1


@types.coroutine
def old_style() -> Generator[Any, Any, int]:
    yield
    return 1


class Job:
    """Methods of every kind."""

    async def charge(self, amount: int = 1) -> int:
        return amount

    def plain(self, amount: int = 1) -> int:
        return amount

    def rows(self) -> Iterator[int]:
        yield 1


class Charging:
    """An object to be called, and awaited."""

    async def __call__(self, amount: int = 1) -> int:
        return amount


class Counting:
    """An object to be called."""

    def __call__(self, amount: int = 1) -> int:
        return amount


def wrapping(function: Callable[..., Awaitable[int]]) -> Callable[..., Awaitable[int]]:
    """As many decorators are written: a plain function that returns what an async one does."""

    @wraps(function)
    def call(*args: Any) -> Awaitable[int]:
        return function(*args)

    return call


LATE: dict[str, tuple[Any, str]] = {
    "a generator": (
        rows,
        "`rows` is a generator: a lock around it is released before its body runs; take the lock",
    ),
    "a method": (Job().rows, "`Job.rows` is a generator"),
    "a partial": (partial(rows), "`rows` is a generator"),
    "an async generator": (streamed, "`streamed` is an async generator: a lock around it is released before"),
    "a context manager": (
        session,
        "`session` is a context manager: .* take the lock inside it, around the `yield`",
    ),
    "an async context manager": (async_session, "`async_session` is a context manager"),
    "a class": (Job, "`Job` is a class: decorate those of its methods that need the lock"),
    "a staticmethod": (staticmethod(charge), "put the lock on `charge` below @staticmethod"),
    "a classmethod": (classmethod(cast(Any, charge)), "put the lock on `charge` below @classmethod"),
    "no function": (5, "a lock decorates a function, not 5"),
}
COROUTINES: dict[str, tuple[Any, str]] = {
    "async def": (charge, "`charge` is async: use fencehold.aio"),
    "a method": (Job().charge, "`Job.charge` is async: use fencehold.aio"),
    "a partial": (partial(partial(charge), 2), "`charge` is async"),
    "an object": (Charging(), "`Charging` is async"),
    "a partial of an object": (partial(Charging(), 2), "`Charging` is async"),
    "a method of an object": (Charging().__call__, "`Charging.__call__` is async"),
    "types.coroutine": (old_style, "`old_style` is async"),
}


@pytest.mark.parametrize("verb", BLOCKING)
@pytest.mark.parametrize("what", COROUTINES)
def test_a_blocking_lock_is_not_put_around_what_is_async(client: Client, verb: str, what: str) -> None:
    """Its body would run after the lock was released: that is said where it is decorated."""
    function, message = COROUTINES[what]
    with pytest.raises(UsageError, match=message):
        BLOCKING[verb](client)(function)


@pytest.mark.parametrize("verb", ["lock", "once"])
@pytest.mark.parametrize("what", LATE)
def test_a_blocking_lock_is_not_put_around_what_runs_later(client: Client, verb: str, what: str) -> None:
    """A generator, and what else has not run when its call returns, is told to take the lock inside."""
    function, message = LATE[what]
    with pytest.raises(UsageError, match=message):
        BLOCKING[verb](client)(function)


@pytest.mark.parametrize("verb", ["lock", "once"])
def test_a_coroutine_that_a_plain_function_returns_is_refused(client: Client, verb: str) -> None:
    """Nobody can tell before it is called; it is closed, and its body does not run."""
    decorated = BLOCKING[verb](client)(wrapping(charge))
    with pytest.raises(UsageError, match="`charge` returned a coroutine, whose body would run without the lock"):
        decorated(3)
    assert not client.lock("x").locked()


@pytest.mark.parametrize("verb", BLOCKING)
@pytest.mark.parametrize("function", [plain, Job().plain, partial(plain), Counting(), partial(Counting()), abs])
def test_a_blocking_lock_is_put_around_whatever_runs_when_called(client: Client, verb: str, function: Any) -> None:
    """Functions, methods, partials and objects run under the lock."""
    assert BLOCKING[verb](client)(function)(7) == 7


@pytest.mark.parametrize("verb", ASYNC)
async def test_the_lock_of_an_async_client_is_put_around_what_is_async_only(verb: str) -> None:
    """A plain function is refused, and so is what runs later; what can be awaited runs under the lock."""
    async with service() as url, aio.connect(url) as client:
        decorate = ASYNC[verb](client)
        plains: list[Any] = [plain, Job().plain, partial(plain), Counting(), abs, lambda: charge(2)]
        for function in plains:
            with pytest.raises(UsageError, match="is not async: make it `async def`, or use the blocking client"):
                decorate(function)
        for function, message in LATE.values():
            with pytest.raises(UsageError, match=message):
                decorate(function)
        for function, _ in COROUTINES.values():
            assert await decorate(function)() in (1, 2)
        assert await decorate(wrapping(charge))(5) == 5


async def test_what_is_decorated_runs_under_the_lock(client: Client) -> None:
    """By both clients: the name is held while the body runs, and free after it."""

    @client.lock("covered")
    def covered() -> bool:
        return client.lock("covered").locked()

    assert covered()
    assert not client.lock("covered").locked()

    async def test() -> None:
        async with service() as url, aio.connect(url) as other:

            @other.lock("covered")
            async def covered() -> bool:
                await asyncio.sleep(0)
                return await other.lock("covered").locked()

            assert await covered()

    await test()
