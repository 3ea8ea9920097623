"""What `zookeeper://` keeps while sessions end, servers die or keep silent, and clients hang."""

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme

from fencehold import EFFICIENCY, HoldLost, OutcomeUnknown, PermissionDenied, State, Unavailable, UsageError, aio
from fencehold.errors import FenceholdError
from rig.zookeeper import Tls, ZookeeperEnsemble
from tests.behaviour.asking import connect, proceeding, until
from tests.behaviour.grounds.zookeeper import GROUND as ZookeeperGround
from tests.behaviour.zookeepers import (
    ROOT,
    Eye,
    behind_a_valve,
    expire,
    member_of,
    others_than,
    session_of,
)
from tests.stopwatch import Stopwatch
from tests.unit.client.service import until as until_so
from tests.unit.engines.zookeeper.test_logins import identity

GROUND = "zookeeper"
TTL = 1.5


@pytest.fixture
def eye(ground: ZookeeperGround) -> Iterator[Eye]:
    seeing = Eye(ground.ensemble)
    yield seeing
    seeing.close()


@pytest.fixture
def own(tmp_path: Path) -> Iterator[ZookeeperEnsemble]:
    """Three servers for one test, which may kill them."""
    with ZookeeperEnsemble(tmp_path, synced=False) as ensemble:
        yield ensemble


async def test_a_session_that_ends_is_told_to_all_its_holders(
    ground: ZookeeperGround, name: str, eye: Eye
) -> None:
    """Their work is stopped, who waits is granted with a greater fence, and the client goes on in a new one."""
    async with connect(ground) as one, connect(ground) as other:
        working, fences = asyncio.Event(), []

        async def work() -> None:
            async with one.lock(name) as hold:
                fences.append(hold.fence)
                working.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await working.wait()
        waiting = asyncio.create_task(other.lock(name, timeout=30).acquire())
        await until(lambda: len(eye.nodes(name)) == 2)
        await asyncio.to_thread(expire, one, ground.ensemble)
        with pytest.raises(HoldLost, match="session"):
            await task
        hold = await waiting
        assert hold is not None
        assert hold.fence > fences[0]
        await hold.release()
        async with one.lock(name, timeout=10) as again:
            assert again.fence > hold.fence


async def test_who_waited_in_a_session_that_ended_is_granted_in_the_next_one_only(
    ground: ZookeeperGround, name: str, eye: Eye
) -> None:
    """It stands in the queue again, in its new session, and what it is granted is there."""
    async with connect(ground) as one, connect(ground) as other:
        holder = await other.lock(name).acquire()
        assert holder is not None
        waiting = asyncio.create_task(one.lock(name, timeout=30).acquire())
        await until(lambda: len(eye.nodes(name)) == 2)
        first = session_of(one)
        await asyncio.to_thread(expire, one, ground.ensemble)
        await until(lambda: session_of(one) is not first and len(eye.nodes(name)) == 2)
        assert not waiting.done()
        await holder.release()
        hold = await waiting
        assert hold is not None
        (node,) = eye.nodes(name)
        stat = eye.stat(name, node)
        assert (stat.ephemeralOwner, stat.czxid) == (session_of(one)._client.client_id[0], hold.fence)
        await hold.release()


async def test_a_hold_survives_the_loss_of_the_server_it_was_made_on(own: ZookeeperEnsemble) -> None:
    """Its client finds another server, and resumes its session there: `survives_failover`."""
    async with aio.connect(own.url(ROOT), ttl=8) as one, aio.connect(own.url(ROOT)) as other:
        hold = await one.lock("a").acquire()
        assert hold is not None
        session, states = session_of(one), [hold.state]
        goes_on = session.on_change

        def on_change(changed: Any) -> None:
            states.append(hold.state)
            goes_on(changed)

        session.on_change = on_change
        await asyncio.to_thread(own.kill, member_of(one, own))
        await until(lambda: State.JEOPARDY in states)
        await until(lambda: states.append(hold.state) or hold.state is State.HELD)  # type: ignore[func-returns-value]
        assert State.LOST not in states
        assert await other.lock("a", timeout=0).acquire() is None
        await hold.extend(None)
        await hold.release()
        async with other.lock("a", timeout=10) as next_one:
            assert next_one.fence > hold.fence


@pytest.mark.parametrize("fault", ["kill", "pause"])
async def test_without_a_quorum_nothing_is_granted_and_holds_are_let_go(
    own: ZookeeperEnsemble, fault: str
) -> None:
    """Nobody can know who holds what: its holder stops in time, and whoever asks is told that it is not known.

    A leader whose followers were paused does not notice for a while, and goes on answering what it can by itself:
    that proves nothing.
    """
    leader = own.leader()
    url = f"zookeeper://{own.endpoints[leader]}{ROOT}"
    async with aio.connect(url, ttl=2, grace=1, connect_timeout=2) as client:
        hold = await client.lock("a").acquire()
        assert hold is not None
        watch = Stopwatch()
        for index in others_than(leader, own):
            getattr(own, fault)(index)
        await hold.lost.wait()
        assert watch.passed_s <= 2.5
        with pytest.raises((Unavailable, OutcomeUnknown)):
            await client.lock("b", timeout=0).acquire()
        with pytest.raises(HoldLost):
            await hold.release()


async def test_a_server_that_keeps_silent_is_left_in_time(ground: ZookeeperGround, name: str, eye: Eye) -> None:
    """The hold is in jeopardy, and then not: another connection carries the session on."""
    async with behind_a_valve(ground, ttl=6) as (valve, client):
        async with client.lock(name) as hold:
            valve.hush()
            await until(lambda: valve.connections == 2)
            await until(lambda: hold.state is State.HELD)
            hold.check()
        assert eye.nodes(name) == []


def test_what_a_hanging_client_held_is_free(ground: ZookeeperGround, name: str) -> None:
    """Its loop stands still, so its session is not kept alive; and it knows so when it goes on."""
    hung, states = threading.Event(), []

    async def hang() -> None:
        async with connect(ground, ttl=TTL) as client:
            hold = await client.lock(name).acquire()
            assert hold is not None
            hung.set()
            time.sleep(2.5 * TTL + 2)  # noqa: ASYNC251  (it hangs)
            states.append(hold.state)

    async def main() -> None:
        async with connect(ground) as client:
            begun = time.monotonic()
            async with client.lock(name, timeout=30):
                assert time.monotonic() - begun <= TTL + ground.settle_s

    thread = threading.Thread(target=lambda: asyncio.run(hang()))
    thread.start()
    assert hung.wait(20)
    asyncio.run(main())
    thread.join()
    assert states == [State.LOST]


async def test_locks_are_had_over_tls(tmp_path: Path) -> None:
    """All goes over TLS, the client's certificate too; who trusts others talks to nobody."""
    authority, stranger = trustme.CA(), trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    stranger.cert_pem.write_to_path(str(tmp_path / "stranger.pem"))
    authority.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "client.pem"))
    (tmp_path / "server.pem").write_bytes(identity(authority.issue_cert("127.0.0.1")))

    async def main(url: str) -> None:
        async with aio.connect(f"{url}?tls=yes&ca={tmp_path}/ca.pem&cert={tmp_path}/client.pem") as client:
            holds = await asyncio.gather(*(client.lock(f"{each}").acquire() for each in range(200)))
            assert None not in holds
            assert await client.lock("7", timeout=0).acquire() is None
        with pytest.raises(Unavailable):
            async with aio.connect(f"{url}?tls=yes&ca={tmp_path}/stranger.pem", connect_timeout=0.5):
                pass
        # A busy machine ends kazoo's threads later than the client waits for them.
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(left, timeout=30)

    with ZookeeperEnsemble(
        tmp_path / "server", 1, tls=Tls(tmp_path / "server.pem", tmp_path / "ca.pem")
    ) as server:
        await main(server.url(ROOT).replace("zookeepers://", "zookeeper://"))


async def test_a_ttl_that_the_servers_cannot_keep_is_refused(ground: ZookeeperGround) -> None:
    """They would free names later than is declared."""
    with pytest.raises(UsageError, match="ttl=1,"):
        async with connect(ground, ttl=0.6, grace=0.3):
            pass


async def test_names_made_with_a_login_are_for_that_login_alone(ground: ZookeeperGround, name: str) -> None:
    """Others are refused, told what to do, and not told the password."""
    root = "/owned/by/alice"
    url = ground.ensemble.url(root)

    async with (
        aio.connect(url.replace("://", "://alice:s3cret@")) as alice,
        aio.connect(url.replace("://", "://bob:s3cret@")) as bob,
        alice.lock(name),
    ):
        with pytest.raises(PermissionDenied, match="login") as refused:
            await bob.lock(name, timeout=0).acquire()
        assert "s3cret" not in str(refused.value)
        assert await alice.lock(name, timeout=0).acquire() is None
        await _is_denied(url.replace("://", "://bob:s3cret@"), name)


@pytest.mark.parametrize(
    ("properties", "login", "said"),
    [
        ({"enforce.auth.enabled": "true", "enforce.auth.schemes": "digest"}, "", "SessionClosedRequireSasl"),
        ({"DigestAuthenticationProvider.enabled": "false"}, "alice:s3cret@", "AuthFailed"),
    ],
)
async def test_who_is_not_let_in_is_told_so(
    tmp_path: Path, name: str, properties: dict[str, str], login: str, said: str
) -> None:
    """Servers that ask for another login end the session; that is no outage, and is not waited for."""

    async def main(url: str) -> None:
        with pytest.raises(PermissionDenied, match=said):
            await aio.connect(url, connect_timeout=60)
        await _is_denied(url, name)

    with ZookeeperEnsemble(tmp_path, 1, properties=properties) as server:
        await main(server.url(ROOT).replace("://", f"://{login}"))


async def test_servers_that_let_us_in_no_more_are_no_outage(tmp_path: Path, name: str) -> None:
    """While a client is connected, too: what it held is lost, and it goes on when they let it in again."""
    with ZookeeperEnsemble(tmp_path, 1) as server:
        strict = ZookeeperEnsemble(
            tmp_path, 1, properties={"enforce.auth.enabled": "true", "enforce.auth.schemes": "digest"}
        )
        strict.members[0].port = server.members[0].port
        async with aio.connect(f"{server.url(ROOT)}", connect_timeout=10, ttl=TTL) as client:
            lock = client.lock(name, timeout=0)
            hold = await lock.acquire()
            assert hold is not None
            server.stop()
            with strict:
                await asyncio.wait_for(hold.lost.wait(), 20)

                async def is_denied() -> bool:
                    try:
                        await lock.acquire()
                    except (Unavailable, OutcomeUnknown):
                        return False
                    except PermissionDenied:
                        return True
                    return False

                await until_so(is_denied)
                assert [await is_denied() for _ in range(5)] == [True] * 5
            server.start()

            async def is_held() -> bool:
                try:
                    async with lock:
                        return True
                except FenceholdError:
                    return False

            await until_so(is_held)


async def _is_denied(url: str, name: str) -> None:
    """Who is to proceed when a backend is away does not, however often it asks."""
    async with proceeding(url) as client:
        for _ in range(5):
            with pytest.raises(PermissionDenied):
                await client.lock(name, tier=EFFICIENCY, timeout=0).acquire()
