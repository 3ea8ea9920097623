"""Sessions of a gateway: bounds, logins, streams; and events over several connections, each once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fencehold.core.commands import ChangePolicy
from fencehold.core.outcomes import PolicyChanged
from fencehold.core.policy import PolicyChange, Quota, Role, Rule, User, Verb
from fencehold.errors import LimitExceeded, SessionExpired
from fencehold.gateway.bounds import GatewayBounds
from fencehold.gateway.credentials import ANONYMOUS, Credentials, Voucher
from fencehold.gateway.problems import Unauthenticated
from fencehold.gateway.questions import Questions
from fencehold.gateway.served_client import Ask
from fencehold.gateway.sessions import Sessions, Stream
from fencehold.gateway.upstream import Upstream, host_of
from fencehold.gateway.watch import Begun
from fencehold.locks.loss_reasons import LossKind, loss_kind
from fencehold.locks.views import Event
from fencehold.security.secrets import hashed
from fencehold.security.throttle import Throttle
from fencehold.server import Config, Server
from fencehold.types import CORRECTNESS


@asynccontextmanager
async def gateway(**bounds: int) -> AsyncIterator[tuple[Sessions, Upstream, Server]]:
    """Sessions before a server in the same process."""
    async with Server(Config(port=0)) as server:
        upstream = Upstream(f"fencehold://127.0.0.1:{server.port}", via="test", bounds=GatewayBounds(**bounds))
        sessions = Sessions(upstream)
        try:
            yield sessions, upstream, server
        finally:
            await sessions.close()
            await upstream.close()


def opened(sessions: Sessions, peer: str = "ipv4:127.0.0.1:1", **said: Any) -> Coroutine[Any, Any, Any]:
    given = {"client": "ann", "meta": {}, "ttl_s": 0.0, "grace_s": None, **said}
    return sessions.open((ANONYMOUS, peer), **given)


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scene())


def test_sessions_are_bounded_by_listener_and_by_connection() -> None:
    """Beyond, the next one is refused; one that is closed makes room."""

    async def scene() -> None:
        async with gateway(sessions_max=3, sessions_per_peer_max=2) as (sessions, _, _server):
            first = await opened(sessions)
            await opened(sessions)
            with pytest.raises(LimitExceeded, match="a connection opens at most 2"):
                await opened(sessions)
            await opened(sessions, "ipv4:127.0.0.1:2")
            with pytest.raises(LimitExceeded, match="at most 3 sessions"):
                await opened(sessions, "ipv4:127.0.0.1:3")
            await sessions.end(first, "closed")
            await opened(sessions)
            assert len(sessions) == 3

    run(scene)


def test_a_session_is_its_openers() -> None:
    """To another login it does not exist."""

    async def scene() -> None:
        async with gateway() as (sessions, _, _server):
            session = await opened(sessions)
            assert sessions.find(session.id, ANONYMOUS) is session
            with pytest.raises(SessionExpired):
                sessions.find(session.id, Credentials("bob", "x"))

    run(scene)


def test_a_stream_that_does_not_read_is_broken_off() -> None:
    """What waits to be told has a bound."""

    async def scene() -> None:
        stream, broken = Stream(2), list[bool]()
        stream.on_broken = lambda: broken.append(True)
        for at in range(4):
            stream.tell(at)
        assert broken == [True]

    run(scene)


def test_a_new_stream_takes_the_place_of_the_old_one() -> None:
    """The end of the one that was replaced starts no grace."""

    async def scene() -> None:
        async with gateway() as (sessions, _, _server):
            session = await opened(sessions, ttl_s=20.0, grace_s=0.0)
            old, new = Stream(9), Stream(9)
            session.attach(old)
            session.attach(new)
            assert old.is_broken
            session.detach(old)
            assert session.ends_at() > asyncio.get_running_loop().time() + 10
            session.detach(new)
            assert session.ends_at() <= asyncio.get_running_loop().time()

    run(scene)


def test_one_login_shares_one_connection() -> None:
    """Calls at the same time make one; a bound lets go of logins that hold nothing."""

    async def scene() -> None:
        async with gateway(logins_max=1) as (_, upstream, _server):
            first, second = await asyncio.gather(upstream.shared(ANONYMOUS), upstream.shared(ANONYMOUS))
            assert first is second

    run(scene)


def test_a_secret_that_was_changed_opens_nothing_more() -> None:
    """A login is shown to the service again after a while; what it was taken for until then does not last."""

    async def scene() -> None:
        async with gateway() as (_, upstream, server):
            upstream.login_s = 0.0
            server.door.admission.throttle = Throttle(sleep=lambda _: None)
            roles: dict[str, Role | None] = {"all": Role((Rule(tuple(Verb), prefix=""),))}
            first = PolicyChange({"ann": User(("all",), secrets=(hashed("old"),))}, roles)
            await changed(server, 0, first)
            old = Credentials("ann", "old")
            client = await upstream.shared(old)
            assert await upstream.shared(old) is client
            await changed(server, 1, PolicyChange({"ann": User(("all",), secrets=(hashed("new"),))}))
            for _ in range(2):
                with pytest.raises(Unauthenticated):
                    await upstream.shared(old)
            assert await upstream.shared(Credentials("ann", "new")) is not client

    run(scene)


def test_a_login_is_shown_again_for_questions_and_without_a_session() -> None:
    """A secret that was changed lists nothing more; and showing it again takes nothing of a quota of sessions."""

    async def scene() -> None:
        async with gateway() as (_, upstream, server):
            questions = upstream.questions
            upstream.login_s = questions.login_s = 0.0
            server.door.admission.throttle = Throttle(sleep=lambda _: None)
            roles: dict[str, Role | None] = {"all": Role((Rule(tuple(Verb), prefix=""),))}
            quotas: dict[str, Quota | None] = {"ann": Quota(principal="ann", sessions=1)}
            first = PolicyChange({"ann": User(("all",), secrets=(hashed("old"),))}, roles, quotas)
            await changed(server, 0, first)
            old = Credentials("ann", "old")
            client = await upstream.shared(old)
            for _ in range(3):
                assert await upstream.shared(old) is client
                await questions.ask(old, CORRECTNESS, "LOCK.LIST")
            await changed(server, 1, PolicyChange({"ann": User(("all",), secrets=(hashed("new"),))}))
            with pytest.raises(Unauthenticated):
                await questions.ask(old, CORRECTNESS, "LOCK.LIST")
            with pytest.raises(Unauthenticated):
                await questions.ask_here(old, "LOCK.LIST")
            await questions.ask(Credentials("ann", "new"), CORRECTNESS, "LOCK.LIST")
            await questions.close()

    run(scene)


def test_a_token_that_is_refused_is_not_shown_with_every_probe(tmp_path: Path) -> None:
    """Each failed login slows down all that come from the address of the gateway."""

    async def scene() -> None:
        async with Server(Config(port=0, auth=True)) as server:
            shown: list[str] = []

            async def check(user: str, secret: str) -> bool:
                return False

            server.door.admission.check_user = check
            server.door.admission.throttle = Throttle(sleep=lambda _: None)
            server.door.on_denied = lambda _, what, _why: shown.append(what)
            (tmp_path / "token").write_text("no-such-token")
            url = f"fencehold://127.0.0.1:{server.port}"
            questions = Questions(url, None, GatewayBounds(), voucher=Voucher(tmp_path / "token"))
            for _ in range(3):
                assert await questions.roles() == {f"127.0.0.1:{server.port}": ""}
            assert [what for what in shown if what.startswith("login")] == ["login as 'token'"]
            await questions.close()

    run(scene)


def test_a_quota_of_ttls_bounds_what_nobody_asked_for() -> None:
    """Sessions of clients that named no ttl are as long as they may be; who named one is told what it may be."""

    async def scene() -> None:
        async with gateway() as (sessions, upstream, server):
            roles: dict[str, Role | None] = {"all": Role((Rule(tuple(Verb), prefix=""),))}
            quotas: dict[str, Quota | None] = {"ann": Quota(principal="ann", ttl_ms=5_000)}
            ann = User(("all",), secrets=(hashed("s3cret"),))
            await changed(server, 0, PolicyChange({"ann": ann}, roles, quotas))
            login = Credentials("ann", "s3cret")
            shared = await upstream.shared(login)
            assert await shared.acquire(Ask(("orders",), ttl_ms=5_000, wait_ms=0)) is not None
            with pytest.raises(LimitExceeded, match="at most 5 s"):
                await shared.acquire(Ask(("wallet",), ttl_ms=6_000, wait_ms=0))
            said: dict[str, Any] = {"client": "ann", "meta": {}, "grace_s": None}
            session = await sessions.open((login, "ipv4:127.0.0.1:1"), ttl_s=0.0, **said)
            assert session.ttl_s == 5.0
            with pytest.raises(LimitExceeded, match="at most 5 s"):
                await sessions.open((login, "ipv4:127.0.0.1:1"), ttl_s=30.0, **said)

    run(scene)


async def changed(server: Server, revision: int, change: PolicyChange) -> None:
    """Change the policy of a server, as its administrator."""
    done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    command = ChangePolicy(revision, change, "ann")
    server.node.submit(command, lambda outcome, _: done.set_result(outcome))
    assert isinstance(await done, PolicyChanged)


def test_watches_are_bounded() -> None:
    """Each is a connection to the service; one that ends makes room."""

    async def scene() -> None:
        async with gateway() as (_, upstream, _server):
            questions = Questions(upstream.url, None, GatewayBounds(watches_max=1))
            first = questions.events(ANONYMOUS, CORRECTNESS, "")
            await anext(first)
            second = questions.events(ANONYMOUS, CORRECTNESS, "")
            with pytest.raises(LimitExceeded):
                await anext(second)
            await first.aclose()
            assert questions.watching == 0
            await questions.close()

    run(scene)


def test_events_are_told_once_from_the_place_they_were_left_at() -> None:
    """After one event of a position come the others of it, and after a position what is beyond it."""

    async def scene() -> None:
        async with gateway() as (_, upstream, _server):
            questions = Questions(upstream.url, None, GatewayBounds())
            shared = await upstream.shared(ANONYMOUS)
            for name in ("a", "b"):
                await (await shared.client.lock(name).acquire()).release()
            all_of_it = questions.events(ANONYMOUS, CORRECTNESS, "", {0: (1, 0)})
            assert await anext(all_of_it) == Begun({0: (1, 0)}, 1)
            told = [seen for seen in [await anext(all_of_it) for _ in range(5)] if isinstance(seen, Event)]
            await all_of_it.aclose()
            assert [seen.kind for seen in told][-4:] == ["acquired", "released", "acquired", "released"]
            for at in (1, 2):
                rest = questions.events(ANONYMOUS, CORRECTNESS, "", {0: told[at].place})
                await anext(rest)
                assert await anext(rest) == told[at + 1]
                await rest.aclose()
            await questions.close()

    run(scene)


def test_others_are_told_where_a_client_comes_from() -> None:
    """As gRPC and HTTP write peers."""
    assert host_of("ipv4:10.0.0.1:4711") == "10.0.0.1"
    assert host_of("ipv6:[::1]:4711") == "::1"


@pytest.mark.parametrize("name", ["a", "closed"])
def test_a_hold_that_is_force_released_ends_alone(name: str) -> None:
    """Its session lives on, and its end is told as what it is, whoever did it and whatever the name is."""

    async def scene() -> None:
        async with gateway() as (sessions, upstream, _server):
            session = await opened(sessions, ttl_s=20.0)
            held = await session.served.acquire(Ask((name,)))
            assert held is not None
            told = asyncio.Event()
            held.hold.lost.add_callback(lambda _: told.set())
            operator = await upstream.shared(ANONYMOUS)
            await operator.client.break_hold(name, fence=held.fence)
            async with asyncio.timeout(60):
                await told.wait()
            assert loss_kind(held.ending) is LossKind.BROKEN
            assert not session.served.has_lost_session

    run(scene)
