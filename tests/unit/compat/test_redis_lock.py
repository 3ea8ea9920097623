"""Locks in redis-py's manner: the same calls on redis-py's own, on a real Redis, and on ours have one result."""

import asyncio
import inspect
import pickle
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.lock
import redis.lock
from redis import exceptions

import fencehold
from fencehold import aio
from fencehold.client.blocking.lock import Lock as BlockingLock
from fencehold.compat import redis as compat
from fencehold.compat.redis import (
    Denied,
    Gone,
    InDoubt,
    Lock,
    Misused,
    NotAcquired,
    NotHeld,
    NotHonoured,
    TooBusy,
    Unreachable,
)
from fencehold.compat.redis import asyncio as compat_aio
from fencehold.errors import (
    HoldLost,
    LockTimeout,
    NotOwner,
    OutcomeUnknown,
    PermissionDenied,
    Unavailable,
    Unsupported,
    UsageError,
)
from tests.unit.client.service import until_true
from tests.unit.compat.redises import RedisServer
from tests.unit.compat.scenarios import SCENARIOS, Scenario, Stage, play

MEMORY = "memory://compat"


@pytest.fixture
def client() -> Iterator[fencehold.Client]:
    with fencehold.connect(MEMORY) as made:
        yield made


def named(scenario: Scenario) -> str:
    return scenario.title.replace(" ", "-")


async def _left(client: aio.Client, name: str) -> float | None:
    return (await client.explain(name)).holders[0].left


def pttl(ms: int) -> float | None:
    return None if ms < 0 else ms / 1000


@pytest.mark.parametrize("scenario", SCENARIOS, ids=named)
def test_threads_see_what_they_see_with_redis_py(
    scenario: Scenario, client: fencehold.Client, redis_at: RedisServer
) -> None:
    """Every step has the same result, or the same error with the same words."""
    name = f"threads:{scenario.title}"
    with redis.Redis(port=redis_at.port) as server:
        theirs = Stage(lambda **made: redis.lock.Lock(server, name, **made), lambda: pttl(server.pttl(name)))
        ours = Stage(lambda **made: Lock(client, name, **made), lambda: client.explain(name).holders[0].left)
        expected = asyncio.run(play(scenario, theirs))
    assert asyncio.run(play(scenario, ours)) == expected


@pytest.mark.parametrize("scenario", SCENARIOS, ids=named)
async def test_tasks_see_what_they_see_with_redis_py(scenario: Scenario, redis_at: RedisServer) -> None:
    """Every step has the same result, or the same error with the same words, on an event loop, too."""
    name = f"tasks:{scenario.title}"

    async with redis.asyncio.Redis(port=redis_at.port) as server, aio.connect(MEMORY) as client:

        async def left() -> float | None:
            return pttl(await server.pttl(name))

        theirs = Stage(lambda **made: redis.asyncio.lock.Lock(server, name, **made), left)
        ours = Stage(lambda **made: compat_aio.Lock(client, name, **made), lambda: _left(client, name))
        expected = await play(scenario, theirs)
        assert await play(scenario, ours) == expected


LOCKS = [(redis.lock.Lock, Lock), (redis.asyncio.lock.Lock, compat_aio.Lock)]


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize(("theirs", "ours"), LOCKS, ids=["threads", "tasks"])
def test_methods_take_what_redis_pys_take(theirs: type, ours: type) -> None:
    """Every public method is there, with the same parameters in the same order with the same defaults."""
    # There are no scripts to register.
    names = {name for name, _ in inspect.getmembers(theirs, inspect.isfunction) if name[0] != "_"} - {
        "register_scripts"
    }
    for name in names | {"__init__"}:
        assert parameters(getattr(ours, name)) == parameters(getattr(theirs, name)), name


@pytest.mark.parametrize(
    ("theirs", "ours"), [(redis.Redis, compat), (redis.asyncio.Redis, compat_aio)], ids=["threads", "tasks"]
)
def test_the_helper_takes_what_redis_pys_takes(theirs: type, ours: Any) -> None:
    """`lock(client, …)` is `client.lock(…)`."""
    assert parameters(ours.lock)[1:] == parameters(theirs.lock)[1:]  # type: ignore[attr-defined]


def test_a_lock_has_a_fence_that_grows(client: fencehold.Client) -> None:
    """What redis-py has no word for is there while the lock is held."""
    lock = compat.lock(client, "fenced")
    assert (lock.fence, lock.hold) == (None, None)
    with lock as entered:
        first = entered.fence
        assert lock.hold.fence == first > 0
    with lock:
        assert lock.fence > first
    assert (lock.fence, lock.hold) == (None, None)


def test_on_one_redis_both_exclude_each_other(server: redis.Redis, redis_at: RedisServer) -> None:
    """The key is the same: so one process after the other can be moved, and none may take both."""
    theirs = server.lock("orders", timeout=60, blocking=False)
    with fencehold.connect(redis_at.url) as client:
        ours = Lock(client, "orders", blocking=False)
        with theirs:
            assert not ours.acquire()
            assert client.lock("orders", tier=fencehold.EFFICIENCY, timeout=0).acquire() is None
        with ours:
            assert not theirs.acquire()
        with theirs, pytest.raises(exceptions.LockError), ours:
            pass


def test_elsewhere_both_are_taken_to_exclude_the_old_code_and_the_new(
    client: fencehold.Client, server: redis.Redis
) -> None:
    """A service and a Redis do not know of each other."""
    with server.lock("orders", timeout=60), Lock(client, "orders"):
        assert not server.lock("orders", timeout=60).acquire(blocking=False)
        assert not Lock(client, "orders").acquire(blocking=False)


def test_a_waiter_gets_it_when_it_is_released(client: fencehold.Client) -> None:
    """Nobody polls: the pause of redis-py, here as long as a test can be, is not made."""
    first, second = Lock(client, "waited"), Lock(client, "waited", sleep=600)
    got = []
    assert first.acquire()

    def wait() -> None:
        got.append(second.acquire())
        second.release()

    waiter = threading.Thread(target=wait)
    waiter.start()
    until_true(lambda: bool(client.explain("waited").queue))
    first.release()
    waiter.join()
    assert got == [True]


def test_a_thread_sees_its_own_lock_only(client: fencehold.Client) -> None:
    """Another thread cannot release it; with `thread_local=False` it can."""
    own, passed_on = Lock(client, "own"), Lock(client, "passed-on", thread_local=False)
    assert own.acquire()
    assert passed_on.acquire()
    seen: list[object] = []

    def other() -> None:
        seen.extend((own.owned(), own.fence, passed_on.owned()))
        passed_on.release()
        with pytest.raises(exceptions.LockError, match="already unlocked"):
            own.release()

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [False, None, True]
    assert (own.owned(), passed_on.locked()) == (True, False)
    own.release()


def test_a_token_of_the_callers_is_refused(client: fencehold.Client) -> None:
    """A hold is its session's: what cannot be honoured is not taken for done."""
    lock = Lock(client, "token")
    with pytest.raises(NotHonoured, match="token") as refused:
        lock.acquire(token="mine")
    assert isinstance(refused.value, Unsupported | exceptions.LockError)
    assert not lock.locked()


def test_a_token_of_the_lock_gives_it_back(client: fencehold.Client) -> None:
    """`do_acquire` and `do_release` go together, as in redis-py."""
    lock = Lock(client, "by-token")
    assert lock.do_acquire(b"one")
    assert not lock.do_acquire(b"two")
    with pytest.raises(exceptions.LockNotOwnedError):
        lock.do_release(b"two")
    lock.do_release(b"one")
    assert not lock.locked()


def test_errors_are_of_both_families(client: fencehold.Client) -> None:
    """Handlers written for redis-py and for Fencehold both catch them, and learn the name."""
    lock, other = Lock(client, "both", timeout=30), Lock(client, "both", blocking=False)
    with lock:
        with pytest.raises(NotAcquired) as refused, other:
            pass
        assert isinstance(refused.value, LockTimeout)
        assert isinstance(refused.value, TimeoutError)
        assert (refused.value.lock_name, refused.value.names) == ("both", ("both",))
        with pytest.raises(exceptions.LockError) as not_held:
            other.release()
        assert isinstance(not_held.value, NotOwner)
        lock.extend(0.05, replace_ttl=True)
        until_true(lambda: not lock.locked())
        with pytest.raises(Gone) as lost:
            lock.release()
        assert isinstance(lost.value, HoldLost)
        assert lost.value.fence > 0
        lock.acquire()


@pytest.mark.parametrize(
    "kind", [NotAcquired, NotHeld, Misused, NotHonoured, Gone, Unreachable, TooBusy, Denied, InDoubt]
)
def test_errors_are_whole_as_those_of_redis_py(kind: type[exceptions.RedisError]) -> None:
    """Whatever redis-py's version gives the errors that it makes, such as what their `repr` shows, is there."""
    theirs = next(each for each in kind.__mro__ if each.__module__ == "redis.exceptions")
    given = ("words", "name") if issubclass(kind, exceptions.LockError) else ("words",)
    ours, expected = kind(*given), theirs(*given)
    missing = vars(expected).keys() - vars(ours).keys()
    assert not missing
    assert str(ours) == "words"
    assert kind.__name__ in repr(ours)
    assert str(pickle.loads(pickle.dumps(ours))) == "words"


async def test_an_error_that_ends_a_loop_is_told() -> None:
    """What was raised on an event loop comes out of `asyncio.run`."""

    async def test() -> None:
        async with aio.connect(MEMORY) as client:
            await compat_aio.Lock(client, "never acquired").release()

    with pytest.raises(exceptions.LockError, match="not owned or is already unlocked"):
        await test()


def test_a_body_keeps_its_own_exception(client: fencehold.Client) -> None:
    """That the lock was lost as well is a note on it; redis-py would show the loss only."""

    def lose_and_fail() -> None:
        with Lock(client, "noted", timeout=0.05) as lock:
            until_true(lambda: not lock.locked())
            raise KeyError("mine")

    with pytest.raises(KeyError) as raised:
        lose_and_fail()
    assert raised.value.__notes__ == ["Cannot release a lock that's no longer owned"]


def test_a_lock_is_not_shortened_to_nothing(client: fencehold.Client) -> None:
    """redis-py would delete it, and say True."""
    with Lock(client, "short", timeout=5) as lock:
        for args in ((0, True), (-6,)):
            with pytest.raises(exceptions.LockError, match="release it"):
                lock.extend(*args)
        assert lock.owned()


def test_an_extension_adds_to_what_is_left(client: fencehold.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in redis-py, and also if the grant was long on its way: it never lasts longer than that."""
    granted = BlockingLock._acquire_unowned

    def late(*args: Any) -> Any:
        hold = granted(*args)
        time.sleep(0.05)
        return hold

    def left() -> float:
        return client.explain("more").holders[0].left or 0

    monkeypatch.setattr(BlockingLock, "_acquire_unowned", late)
    with Lock(client, "more", timeout=10) as lock:
        for _ in range(2):
            before = left()
            lock.extend(10)
            # Times are whole milliseconds of the machine's, and grants were late by fifty.
            assert before + 9.5 < left() < before + 10.02


def test_names_may_be_bytes(client: fencehold.Client) -> None:
    """As text in UTF-8 they are the same names."""
    with Lock(client, "ä".encode()):
        assert Lock(client, "ä").locked()
    for name in (b"\xff", "", 7):
        with pytest.raises(UsageError, match="lock name must be"):
            Lock(client, name)


async def test_a_client_of_the_wrong_kind_is_refused(client: fencehold.Client) -> None:
    """The message names the class to use."""
    async with aio.connect(MEMORY) as awaited:
        with pytest.raises(UsageError, match=r"compat\.redis\.asyncio\.Lock"):
            Lock(awaited, "a")
    with pytest.raises(UsageError, match=r"compat\.redis\.Lock"):
        compat_aio.Lock(client, "a")
    with pytest.raises(UsageError, match=r"compat\.redis\.asyncio\.Lock"):
        Lock(redis.asyncio.Redis(), "a")
    with pytest.raises(UsageError, match=r"compat\.redis\.Lock"):
        compat_aio.Lock(redis.Redis(), "a")


def test_a_service_that_is_not_there_is_a_connection_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is certain is said in the words of both: nothing happened, or it may have."""
    with fencehold.connect(MEMORY) as client:
        lock = Lock(client, "away")

        def raises(error: Exception) -> Any:
            def fail(*_: Any, **__: Any) -> Any:
                raise error

            return fail

        monkeypatch.setattr(client, "lock", raises(Unavailable("nobody there")))
        with pytest.raises(exceptions.ConnectionError, match="nobody there") as nothing:
            lock.acquire()
        assert isinstance(nothing.value, Unavailable)
        monkeypatch.setattr(client, "lock", raises(OutcomeUnknown("who knows")))
        with pytest.raises(exceptions.TimeoutError, match="who knows") as unknown:
            lock.acquire()
        assert isinstance(unknown.value, OutcomeUnknown)


async def test_who_is_not_let_in_is_told_as_by_redis_py(redis_at: RedisServer) -> None:
    """A wrong password is an `AuthenticationError`, and so a `ConnectionError`, and our `PermissionDenied`."""

    async def test() -> None:
        async with redis.asyncio.Redis(port=redis_at.port, username="nobody", password="wrong") as server:
            with pytest.raises(exceptions.AuthenticationError, match="check user and password"):
                await compat_aio.Lock(server, "a").acquire()

    with redis.Redis(port=redis_at.port, username="nobody", password="wrong") as server:
        with pytest.raises(exceptions.AuthenticationError) as refused:
            Lock(server, "a").acquire()
        assert isinstance(refused.value, exceptions.ConnectionError)
        assert isinstance(refused.value, PermissionDenied)
    await test()


async def test_a_task_releases_its_own_hold_or_one_handed_to_it() -> None:
    """A task whose hold was lost does not release the next one's, though both use one lock object."""
    async with aio.connect(MEMORY) as client:
        lock = compat_aio.Lock(client, "tasks", timeout=0.3)
        assert await lock.acquire()
        first = lock.fence

        async def second() -> int | None:
            await lock.acquire()
            await lock.reacquire()
            await lock.extend(10)
            return lock.fence

        fence = await asyncio.create_task(second())
        assert lock.fence is None or lock.fence == first
        with pytest.raises(exceptions.LockNotOwnedError):
            await lock.release()
        assert await lock.locked()
        assert lock.fence == fence
        await lock.release()
        assert not await lock.locked()


async def test_a_cancelled_acquire_leaves_nothing_behind() -> None:
    """The name is free for the next one, and nobody waits."""
    async with aio.connect(MEMORY) as client:
        lock = compat_aio.Lock(client, "cancelled")
        async with lock:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await compat_aio.Lock(client, "cancelled").acquire()
            assert (await client.explain("cancelled")).queue == ()
        assert not await lock.locked()
