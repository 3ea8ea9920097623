"""Ways into a Redis, and what it refuses: each with an error that says what to do."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from fencehold import EFFICIENCY, HoldLost, PermissionDenied, Unavailable, UsageError, aio
from rig.processes import free_port
from rig.redis import Redis
from tests.unit.client.service import service


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Redis]:
    """A Redis of the test's own, to be changed."""
    with Redis(tmp_path) as server:
        yield server


async def hold_once(url: str, name: str = "n") -> None:
    async with aio.connect(url, connect_timeout=5) as client, client.lock(name, tier=EFFICIENCY, timeout=5):
        pass


async def test_a_user_and_a_database_are_used(server: Redis) -> None:
    """The rights that the page names are enough; and what has another database is another lock."""
    rights = ["~job:*", "~fencehold:*", "&fencehold:*", "+@connection", "+@read", "+@write", "+eval", "+evalsha"]
    server.ask("ACL", "SETUSER", "locker", "on", ">pässword", *rights, "+publish", "+subscribe", "+time")

    url = f"redis://locker:p%C3%A4ssword@{server.endpoint}"
    async with aio.connect(f"{url}/1") as one, aio.connect(url) as other:
        async with (
            one.lock("job:1", tier=EFFICIENCY, timeout=0),
            other.lock("job:1", tier=EFFICIENCY, timeout=0),
        ):
            pass
        with pytest.raises(PermissionDenied, match="does not allow"):
            await one.lock("other", tier=EFFICIENCY, timeout=0).acquire()


async def test_who_is_not_let_in_is_told_so(server: Redis) -> None:
    """Nothing happened, and the password is not in the message."""
    server.ask("ACL", "SETUSER", "locker", "on", ">right", "~*", "&*", "+@all")
    with pytest.raises(PermissionDenied, match="check user and password") as caught:
        await hold_once(f"redis://locker:wrong@{server.endpoint}")
    assert "wrong@" not in str(caught.value)


async def test_who_may_not_hear_messages_is_told_so(server: Redis) -> None:
    """Those who wait are called by messages."""
    server.ask("ACL", "SETUSER", "locker", "on", ">right", "~*", "resetchannels", "+@all")
    with pytest.raises(PermissionDenied, match="does not allow"):
        await hold_once(f"redis://locker:right@{server.endpoint}")


async def test_a_server_of_ours_is_no_redis() -> None:
    """Whoever mistook the scheme is told which one is right."""
    async with service() as url:
        with pytest.raises(UsageError, match=f"is a Fencehold server, not a Redis: use {url}"):
            await aio.connect(url.replace("fencehold://", "redis://"))


def test_tls_is_spoken_and_certificates_are_checked(tmp_path: Path) -> None:
    """An authority that is not named is not trusted."""
    authority = trustme.CA()
    pair = authority.issue_cert("127.0.0.1")
    ca, cert, key = (str(tmp_path / name) for name in ("ca.pem", "cert.pem", "key.pem"))
    authority.cert_pem.write_to_path(ca)
    pair.private_key_pem.write_to_path(key)
    pair.cert_chain_pems[0].write_to_path(cert)
    port = free_port()
    flags = ("--tls-port", str(port), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca)
    with Redis(tmp_path, flags=(*flags, "--tls-auth-clients", "no")):
        asyncio.run(hold_once(f"rediss://127.0.0.1:{port}?ca={ca}"))
        asyncio.run(hold_once(f"valkeys://127.0.0.1:{port}?ca={ca}&cert={cert}&key={key}"))
        with pytest.raises(Unavailable, match=r"(?i)certificate is not trusted") as caught:
            asyncio.run(hold_once(f"rediss://127.0.0.1:{port}"))
        assert not isinstance(caught.value, ssl.SSLError)


async def test_a_socket_in_the_file_system_is_reached(tmp_path: Path) -> None:
    """Its path stands where the host does not."""
    path = tmp_path / "s"
    with Redis(tmp_path, flags=("--unixsocket", str(path))):
        await hold_once(f"redis://{path}?db=1")


async def test_a_prefix_stands_before_every_key(server: Redis) -> None:
    """Two applications may share a Redis."""
    async with aio.connect(f"{server.url}?prefix=app:") as client, client.lock("n", tier=EFFICIENCY):
        waiting = asyncio.create_task(client.lock("n", tier=EFFICIENCY, timeout=0.2).acquire())
        while len(server.all_keys()) < 3:
            await asyncio.sleep(0.005)
        assert all(key.startswith("app:") for key in server.all_keys())
        assert "app:n" in server.all_keys()
        assert await waiting is None


async def test_fences_are_counted_where_they_are_asked_for(server: Redis) -> None:
    """They grow over all names; but a failover may set them back, so that they protect nothing."""
    async with aio.connect(f"{server.url}?fence=yes", ttl=1) as client:
        lock = client.lock("n", tier=EFFICIENCY)
        assert (lock.guarantees.fenced, lock.guarantees.fence_survives_failover) == (True, False)
        fences = []
        for name in ("n", "m", "n"):
            async with client.lock(name, tier=EFFICIENCY):
                seen = await client.explain(name, tier=EFFICIENCY)
                fences.append(seen.holders[0].fence)
        async with client.semaphore("s", 2, tier=EFFICIENCY):
            fences.append((await client.explain("s", tier=EFFICIENCY)).holders[0].fence)
        assert fences == [1, 2, 3, 4]
        claim = await lock.acquire()
        assert claim is not None
        # Of those with a fence up to 4 there is none; up to 5 there is.
        assert await client.break_hold("n", fence=4, tier=EFFICIENCY) == 0
        assert await lock.locked()
        assert await client.break_hold("n", fence=5, tier=EFFICIENCY) == 6
        assert not await lock.locked()
        await asyncio.wait_for(claim.lost.wait(), 20)
        with pytest.raises(HoldLost):
            await claim.release()


async def test_a_semaphore_that_is_broken_lets_those_who_wait_in(server: Redis) -> None:
    """All of its permits are taken away, and each of those who wait has one."""
    async with aio.connect(server.url, ttl=1) as one, aio.connect(server.url) as other:
        semaphore = one.semaphore("s", 3, tier=EFFICIENCY)
        held = [await semaphore.acquire() for _ in range(3)]
        waiting = [
            asyncio.create_task(other.semaphore("s", 3, tier=EFFICIENCY).acquire(timeout=10)) for _ in range(3)
        ]
        while len((await one.explain("s", tier=EFFICIENCY)).queue) < 3:
            await asyncio.sleep(0.005)
        await other.break_hold("s", tier=EFFICIENCY)
        for claim in await asyncio.wait_for(asyncio.gather(*waiting), 20):
            assert claim is not None
            await claim.release()
        for claim in held:
            assert claim is not None
            with pytest.raises(HoldLost):
                await claim.release()


async def test_data_of_others_is_left_alone(server: Redis) -> None:
    """A key that is no lock is none, whatever it is called; a lock is no semaphore, and the other way round."""
    server.ask("RPUSH", "list", "precious")

    async with aio.connect(server.url) as client:
        for asked in (client.lock("list", tier=EFFICIENCY), client.semaphore("list", 2, tier=EFFICIENCY)):
            with pytest.raises(UsageError, match="something else"):
                await asked.acquire(timeout=0)
        async with client.lock("lock", tier=EFFICIENCY):
            with pytest.raises(UsageError, match="something else"):
                await client.semaphore("lock", 2, tier=EFFICIENCY).acquire(timeout=0)
        async with client.semaphore("permits", 2, tier=EFFICIENCY):
            with pytest.raises(UsageError, match="something else"):
                await client.lock("permits", tier=EFFICIENCY).acquire(timeout=0)
    assert server.ask("LRANGE", "list", 0, -1) == ["precious"]


async def test_a_redis_that_takes_no_writes_says_so(server: Redis) -> None:
    """Certainly nothing happened: it is a replica, or it is out of memory. What is held can be given back."""
    async with aio.connect(server.url, connect_timeout=1) as client:
        async with client.lock("held", tier=EFFICIENCY):
            server.ask("CONFIG", "SET", "maxmemory", 1)
            with pytest.raises(Unavailable, match="out of memory"):
                await client.lock("n", tier=EFFICIENCY, timeout=5).acquire()
        assert not await client.lock("held", tier=EFFICIENCY).locked()
        server.ask("CONFIG", "SET", "maxmemory", 0)
        server.ask("REPLICAOF", "127.0.0.1", free_port())
        with pytest.raises(Unavailable, match="replica"):
            await client.lock("n", tier=EFFICIENCY, timeout=5).acquire()
        server.ask("REPLICAOF", "NO", "ONE")
        async with client.lock("n", tier=EFFICIENCY, timeout=5):
            pass


async def test_scripts_that_redis_forgot_are_sent_again(server: Redis) -> None:
    """`SCRIPT FLUSH`, or a server that was started anew."""
    async with aio.connect(server.url) as client:
        for _ in range(3):
            async with client.lock("n", tier=EFFICIENCY, timeout=0):
                server.ask("SCRIPT", "FLUSH")
