"""One conversation, word for word over RESP, gRPC and HTTP: the same happens, and is told in the same words."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.e2e.grpc_client import door
from tests.e2e.served import Served, serving, until
from tests.e2e.speakers import DONE, HELD, NOT_ACQUIRED, SPEAKERS, Login, Seen, Speaker, Told, Wish

POLICY = """
[roles.all]
rules = [{ prefix = "", allow = ["acquire", "observe", "break", "events", "admin"] }]
[roles.team]
rules = [{ prefix = "", allow = ["acquire", "observe", "break", "events"] }]
[roles.guest]
rules = [{ prefix = "", allow = ["observe"] }]
[users.root]
roles = ["all"]
[users.ann]
roles = ["team"]
[users.bob]
roles = ["team"]
[users.carol]
roles = ["team"]
[users.guest]
roles = ["guest"]
"""
USERS = ("ann", "bob", "carol", "guest")
LONG_MS = 50_000


def secret_of(user: str) -> str:
    return f"secret-of-{user}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With a policy: so everybody is somebody, over every protocol."""
    place = tmp_path_factory.mktemp("ruled")
    (place / "policy.toml").write_text(POLICY)
    for user in ("root", *USERS):
        (place / user).write_text(secret_of(user))
    with serving(place, "--memory") as served:
        root = served.url.replace("://", f"://root:{secret_of('root')}@")
        commands: list[tuple[str, ...]] = [
            ("user", "add", "root", "--admin", "--secret-file", str(place / "root"), "--url", served.url),
            ("policy", "apply", str(place / "policy.toml"), "--yes", "--url", root),
            *(("user", "secret", user, "--secret-file", str(place / user), "--url", root) for user in USERS),
        ]
        for words in commands:
            said = served.call(*words)
            assert said.code == 0, said
        yield served


@pytest.fixture(scope="module", params=SPEAKERS)
def speaking(
    request: pytest.FixtureRequest, server: Served, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Login], Speaker]]:
    """Makes speakers of one protocol."""
    kind, make = request.param, SPEAKERS[request.param]
    place: Path = tmp_path_factory.mktemp(kind)
    if kind == "resp":
        port = int(server.url.rpartition(":")[2])
        yield lambda login: make(port, login)
    else:
        with door(place, kind, server.url) as port:
            yield lambda login: make(port, login)


class Company:
    """Three who lock, and one who may only look on."""

    def __init__(self, speaking: Callable[[Login], Speaker], name: str) -> None:
        self.speaking = speaking
        self.ann, self.bob, self.carol, self.guest = (speaking((user, secret_of(user))) for user in USERS)
        self.name = name
        self.threads = ThreadPoolExecutor(4)

    def await_waiters(self, count: int, name: str = "") -> None:
        until(lambda: self.guest.look(name or self.name).waiters == count)

    def leave(self) -> None:
        for each in (self.ann, self.bob, self.carol, self.guest):
            each.leave()
        self.threads.shutdown()


@pytest.fixture
def us(speaking: Callable[[Login], Speaker], request: pytest.FixtureRequest) -> Iterator[Company]:
    # Each protocol has names of its own: they share one server.
    company = Company(speaking, str(request.node.name).partition("test_")[2].replace("[", ":").rstrip("]"))
    yield company
    company.leave()


def held(told: Told) -> int:
    """The fence of what was acquired."""
    assert told.word == HELD, told
    return told.fence


def wish(*names: str, **said: object) -> Wish:
    return Wish(names)._replace(**said)  # type: ignore[arg-type]  # mypy does not know the fields by name


def test_try(us: Company) -> None:
    """One holds it, another's try is an answer, and fences grow."""
    first = held(us.ann.acquire(wish(us.name)))
    assert us.bob.acquire(wish(us.name)) == Told(NOT_ACQUIRED)
    assert us.guest.look(us.name) == Seen(((first, "X"),), 0)
    assert us.ann.release((us.name,), first) == Told(DONE)
    assert held(us.bob.acquire(wish(us.name))) > first


def test_wait(us: Company) -> None:
    """Who waits is granted when it is free, or told that it was not in time; then nothing waits."""
    first = held(us.ann.acquire(wish(us.name)))
    assert us.bob.acquire(wish(us.name, wait_ms=30)) == Told(NOT_ACQUIRED)
    waiting = us.threads.submit(us.bob.acquire, wish(us.name, wait_ms=LONG_MS))
    us.await_waiters(1)
    us.ann.release((us.name,), first)
    assert held(waiting.result()) > first
    us.await_waiters(0)


def test_first_come_first_served(us: Company) -> None:
    """In the order in which they came, each with a greater fence."""
    fence, waits = held(us.ann.acquire(wish(us.name))), []
    for place, who in enumerate((us.bob, us.carol)):
        waits.append(us.threads.submit(who.acquire, wish(us.name, wait_ms=LONG_MS)))
        us.await_waiters(place + 1)
    us.ann.release((us.name,), fence)
    second = held(waits[0].result())
    assert not waits[1].done()
    us.bob.release((us.name,), second)
    assert held(waits[1].result()) > second > fence


def test_shared(us: Company) -> None:
    """Readers share; a writer waits for all of them, and readers behind it wait for it."""
    one, two = (held(who.acquire(wish(us.name, mode="S"))) for who in (us.ann, us.bob))
    writing = us.threads.submit(us.carol.acquire, wish(us.name, wait_ms=LONG_MS))
    us.await_waiters(1)
    assert us.ann.acquire(wish(us.name, mode="S", owner="second")) == Told(NOT_ACQUIRED)
    us.ann.release((us.name,), one)
    assert us.guest.look(us.name) == Seen(((two, "S"),), 1)
    us.bob.release((us.name,), two)
    assert held(writing.result()) > two


def test_permits(us: Company) -> None:
    """Of two permits there are two, and one that is given back is another's."""
    one, _ = (held(who.acquire(wish(us.name, permits=2))) for who in (us.ann, us.bob))
    assert us.carol.acquire(wish(us.name, permits=2)) == Told(NOT_ACQUIRED)
    us.ann.release((us.name,), one)
    assert held(us.carol.acquire(wish(us.name, permits=2)))
    assert {mode for _, mode in us.guest.look(us.name).holders} == {"P"}


def test_several(us: Company) -> None:
    """All or none, with one fence, released together."""
    one, two, three = (f"{us.name}:{at}" for at in range(3))
    told = us.ann.acquire(wish(two, one))
    assert told.names == (one, two)
    assert us.bob.acquire(wish(three, two)) == Told(NOT_ACQUIRED)
    assert us.guest.look(three) == Seen((), 0)
    assert us.ann.release((one, two), held(told)) == Told(DONE)
    assert held(us.bob.acquire(wish(three, two))) > told.fence


def test_extend(us: Company) -> None:
    """It lasts longer than it was asked for; what is another's, or over, cannot be extended."""
    fence = held(us.ann.acquire(wish(us.name, ttl_ms=1_500)))
    assert us.ann.extend(us.name, fence, 60_000) == Told(DONE)
    assert us.bob.acquire(wish(us.name, wait_ms=2_000)) == Told(NOT_ACQUIRED)
    assert us.bob.extend(us.name, fence, 60_000) == Told("NOT_OWNER")
    us.ann.release((us.name,), fence)
    assert us.ann.extend(us.name, fence, 60_000) == Told("ALREADY_RELEASED")


def test_why_a_release_cannot_be(us: Company) -> None:
    """It is another's, was released before, or has run out: three words."""
    fence = held(us.ann.acquire(wish(us.name)))
    assert us.bob.release((us.name,), fence) == Told("NOT_OWNER")
    assert us.ann.release((us.name,), fence) == Told(DONE)
    assert us.ann.release((us.name,), fence) == Told("ALREADY_RELEASED")
    short = held(us.ann.acquire(wish(us.name, ttl_ms=100)))
    us.bob.release((us.name,), held(us.bob.acquire(wish(us.name, wait_ms=LONG_MS))))
    until(lambda: us.ann.release((us.name,), short) == Told("EXPIRED"))


def test_deadlock(us: Company) -> None:
    """Who would close a circle is told, and nobody else is."""
    one, two = f"{us.name}:1", f"{us.name}:2"
    held(us.ann.acquire(wish(one, owner="a")))
    second = held(us.bob.acquire(wish(two, owner="b")))
    waiting = us.threads.submit(us.ann.acquire, wish(two, owner="a", wait_ms=LONG_MS))
    us.await_waiters(1, two)
    assert us.bob.acquire(wish(one, owner="b", wait_ms=LONG_MS)) == Told("DEADLOCK")
    us.bob.release((two,), second)
    assert held(waiting.result()) > second


def test_break(us: Company) -> None:
    """An operator takes it away: the next one has it, and who had it is told."""
    fence = held(us.ann.acquire(wish(us.name)))
    waiting = us.threads.submit(us.bob.acquire, wish(us.name, wait_ms=LONG_MS))
    us.await_waiters(1)
    assert us.guest.force_release(us.name, fence) == Told("DENIED")
    assert us.carol.force_release(us.name, fence) == Told(DONE)
    assert held(waiting.result()) > fence
    until(lambda: us.ann.release((us.name,), fence) == Told("EXPIRED"))


def test_loss_is_told(us: Company) -> None:
    """What happens to a name is told in order to those who watch it, a loss as well."""
    watch = us.carol.watch(us.name)
    one = held(us.ann.acquire(wish(us.name, ttl_ms=100)))
    two = held(us.bob.acquire(wish(us.name, wait_ms=LONG_MS)))
    us.carol.force_release(us.name, two)
    until(lambda: any(kind == "broken" for kind, _ in watch.told))
    watch.close()
    endings = [told for told in watch.told if told[0] not in ("queued", "fence_raised")]
    assert endings == [("acquired", one), ("expired", one), ("acquired", two), ("broken", two)]


def test_a_repetition_is_acted_upon_once(us: Company) -> None:
    """By its id: the same fence, and one hold to release."""
    first = us.ann.acquire(wish(us.name, request=7))
    assert us.ann.acquire(wish(us.name, request=7)) == first
    assert us.guest.look(us.name) == Seen(((held(first), "X"),), 0)
    assert us.ann.release((us.name,), first.fence) == Told(DONE)
    assert us.guest.look(us.name) == Seen((), 0)


def test_who_leaves_while_waiting_is_withdrawn(us: Company) -> None:
    """Its connection closes: nothing waits, and it is never granted later."""
    fence = held(us.ann.acquire(wish(us.name)))
    gone = us.speaking(("bob", secret_of("bob")))
    waiting = us.threads.submit(gone.acquire, wish(us.name, wait_ms=LONG_MS))
    us.await_waiters(1)
    gone.leave()
    us.await_waiters(0)
    us.ann.release((us.name,), fence)
    assert us.guest.look(us.name) == Seen((), 0)
    # What it hears of its own end is its library's to say.
    assert waiting.exception() is not None or waiting.result().word != HELD


def test_who_may_not_is_told(us: Company) -> None:
    """By the same words: a right that is missing, a secret that is wrong, a name that is none."""
    assert us.guest.acquire(wish(us.name)) == Told("DENIED")
    stranger = us.speaking(("ann", "guessed"))
    stranger.leave()
    assert stranger.refusal == "UNAUTHENTICATED"
    assert us.ann.acquire(wish("x" * 300)) == Told("LIMIT")
    assert us.ann.acquire(wish(us.name, ttl_ms=10**9)).word in ("USAGE", "LIMIT")
