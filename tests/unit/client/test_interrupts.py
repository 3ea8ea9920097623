"""A `KeyboardInterrupt`, at whichever point CPython raises it, leaves nothing held and nothing queued."""

from collections.abc import Callable, Iterator
from contextvars import copy_context
from itertools import count
from typing import Any

import pytest

import fencehold
from fencehold import Client, current_hold
from fencehold.compat.redis import Lock as RedisLock
from tests.interrupts import Point, interrupted_everywhere
from tests.unit.client.service import service_on_a_thread

# What an interrupt keeps from being begun at all, Python warns of: nothing was asked, and nothing is left.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with service_on_a_thread() as url:
        yield url


@pytest.fixture
def client(request: pytest.FixtureRequest, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """One whose callers send and receive by themselves, whatever came before, or one whose calls are tasks."""
    monkeypatch.setattr("fencehold.client.direct.exchange.COMPANY", 0)
    # Each run has to come by the same points.
    monkeypatch.setattr("fencehold.client.direct.spin.processors", lambda: 1)
    routed = None if request.param == "service" else url
    with fencehold.connect(None if routed else url, correctness=routed, efficiency=routed) as client:
        yield client


def _on(kinds: list[Any], routed: list[Any]) -> pytest.MarkDecorator:
    """Everything on the service, and some where each call is a task."""
    cases = [("service", kind) for kind in kinds] + [("routed", kind) for kind in routed]
    names = [f"{where}-{getattr(kind, '__name__', kind).strip('_')}" for where, kind in cases]
    return pytest.mark.parametrize(("client", "case"), cases, indirect=["client"], ids=names)


def _with_lock(client: Client, name: str) -> None:
    with client.lock(name):
        pass


def _with_rlock(client: Client, name: str) -> None:
    with client.rlock(name) as outer:
        with client.rlock(name) as inner:
            assert inner is outer


def _with_one_rlock(client: Client, name: str) -> None:
    lock = client.rlock(name)
    with lock, lock:
        pass


def _with_permits(client: Client, name: str) -> None:
    lock = client.semaphore(name, 2)
    with lock, lock:
        pass


def _decorated(client: Client, name: str) -> None:
    @client.lock(name)
    def body() -> None: ...

    body()


def _once(client: Client, name: str) -> None:
    client.once(name, at_most=60)(lambda: None)()


def _redis_py(client: Client, name: str) -> None:
    with RedisLock(client, name, timeout=60):
        pass


BODIES: list[Callable[[Client, str], None]] = [
    _with_lock,
    _with_rlock,
    _with_one_rlock,
    _with_permits,
    _decorated,
    _once,
    _redis_py,
]


def _is_beyond_help(point: Point) -> bool:
    """The function that ends a `with` has been called and has not begun: in Python nobody can act there."""
    return point.event == "call" and point.function.endswith(".__exit__")


@_on(BODIES, [_with_lock, _with_rlock, _once])
def test_an_interrupted_body_holds_nothing(client: Client, case: Callable[[Client, str], None]) -> None:
    """Wherever the interrupt comes: before the body, in it, or at its end; but for the call that ends a `with`."""
    numbers = count()
    name = "nothing"
    context = copy_context()

    def run() -> None:
        nonlocal name, context
        name, context = f"{case.__name__}:{next(numbers)}", copy_context()
        context.run(case, client, name)

    points = 0
    for point, error in interrupted_everywhere(run):
        points += 1
        left = _held(client, name)
        if not _is_beyond_help(point):
            assert left == (), str(point)
        elif left:
            # What the documents say: it is freed with the session. Here, lest it is warned of.
            client.break_hold(name)
        assert isinstance(error, KeyboardInterrupt), str(point)
        assert context.run(current_hold) is None or _is_beyond_help(point), str(point)
    assert points > 30
    case(client, "again")


ACQUIRES: dict[str, Callable[[Client, str], Any]] = {
    "lock": lambda client, name: client.lock(name).acquire(),
    "timeout": lambda client, name: client.lock(name).acquire(timeout=5),
    "try": lambda client, name: client.lock(name).acquire(blocking=False),
    "multi": lambda client, name: client.multi([name, "other"]).acquire(),
    "rlock": lambda client, name: client.rlock(name).acquire(),
    "campaign": lambda client, name: client.election(name).campaign(),
}


@_on([*ACQUIRES], ["lock"])
def test_an_interrupted_acquire_holds_nothing(client: Client, case: str) -> None:
    """Either it returns, or nothing came of it."""
    numbers = count()
    name = "nothing"
    holds: list[Any] = []

    def run() -> None:
        nonlocal name
        name = f"{case}:{next(numbers)}"
        hold = ACQUIRES[case](client, name)
        holds.append(hold)

    for point, error in interrupted_everywhere(run):
        if isinstance(error, KeyboardInterrupt) and not holds:
            assert _held(client, name) == (), str(point)
        while holds:
            _give_back(holds.pop())
    assert len(holds) == 1
    _give_back(holds.pop())


RELEASES: dict[str, Callable[[Client, str], tuple[Any, Callable[[], None]]]] = {}


def _release(verb: str) -> Callable[[Any], Any]:
    def add(prepare: Any) -> Any:
        RELEASES[verb] = prepare
        return prepare

    return add


@_release("hold")
def _(client: Client, name: str) -> tuple[Any, Callable[[], None]]:
    hold = client.lock(name).acquire()
    return hold, hold.release


@_release("lock")
def _(client: Client, name: str) -> tuple[Any, Callable[[], None]]:
    lock = client.lock(name)
    return lock.acquire(), lock.release


@_release("rlock")
def _(client: Client, name: str) -> tuple[Any, Callable[[], None]]:
    lock = client.rlock(name)
    return lock.acquire(), lock.release


@_release("resign")
def _(client: Client, name: str) -> tuple[Any, Callable[[], None]]:
    election = client.election(name)
    return election.campaign(), election.resign


@_on([*RELEASES], ["hold"])
def test_an_interrupted_release_is_done_or_can_be_done_again(client: Client, case: str) -> None:
    """It was begun, and then it is done; or nothing has changed, and the hold is as good as before."""
    numbers = count()
    name, hold, release = "nothing", None, _nothing

    def run() -> None:
        nonlocal name, hold, release
        name = f"{case}:{next(numbers)}"
        hold, release = RELEASES[case](client, name)
        began.append(name)
        release()

    began: list[str] = []
    for point, _ in interrupted_everywhere(run):
        if began[-1:] != [name]:
            # In the acquire, of which there is a test of its own.
            continue
        assert hold is not None
        if _held(client, name):
            hold.check()
            release()
        assert _held(client, name) == (), str(point)


def _nothing() -> None: ...


def _give_back(hold: Any) -> None:
    if hold.state is not fencehold.State.RELEASED:
        hold.release()


def _held(client: Client, name: str) -> tuple[object, ...]:
    """Who has a name or waits for it; asked behind all that this client has sent."""
    seen = client.explain(name)
    return (*seen.holders, *seen.queue)
