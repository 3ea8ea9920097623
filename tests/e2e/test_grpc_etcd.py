"""etcd's own lock interface, as its clients use it, and what users of etcd's complain about."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import grpc
import pytest

from fencehold.wire import etcd_messages as e
from fencehold.wire import messages as m
from fencehold.wire.services import LOCK, Stub
from rig.etcd import EtcdCluster
from tests.e2e.grpc_client import door
from tests.e2e.served import Served, until


class Etcd:
    """A client of etcd's lock and lease services."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)
        self.leases = Stub(self.channel, "etcdserverpb.Lease", e.pool)
        self.locks = Stub(self.channel, "v3lockpb.Lock", e.pool)
        self.own = Stub(self.channel, LOCK)

    def grant(self, ttl_s: int = 30, lease: int = 0) -> int:
        return int(self.leases.LeaseGrant(e.LeaseGrantRequest(TTL=ttl_s, ID=lease)).ID)

    def lock(self, name: bytes, lease: int, timeout: float = 10) -> Any:
        return self.locks.Lock(e.LockRequest(name=name, lease=lease), timeout=timeout)

    def unlock(self, key: bytes) -> None:
        self.locks.Unlock(e.UnlockRequest(key=key))

    def waiters(self, name: str) -> int:
        return int(self.own.Explain(m.ExplainRequest(name=name)).explanation.waiter_count)


@pytest.fixture(scope="module")
def etcd(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    with door(tmp_path_factory.mktemp("door"), "grpc", server.url) as port:
        client = Etcd(f"127.0.0.1:{port}")
        yield client
        client.channel.close()


def test_a_lock_belongs_to_its_lease_and_its_revision_is_the_fence(etcd: Etcd) -> None:
    """The same lease gets the same key again; another one waits; revisions grow."""
    one, two = etcd.grant(), etcd.grant()
    first = etcd.lock(b"etcd-a", one)
    assert first.key == b"etcd-a/%x" % one
    again = etcd.lock(b"etcd-a", one)
    assert (again.key, again.header.revision) == (first.key, first.header.revision)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(etcd.lock, b"etcd-a", two)
        until(lambda: etcd.waiters("etcd-a") == 1)
        etcd.unlock(first.key)
        assert waiting.result(10).header.revision > first.header.revision
    # Released: asked for with the same lease, it is a new hold.
    etcd.unlock(b"etcd-a/%x" % two)
    assert etcd.lock(b"etcd-a", one).header.revision > first.header.revision
    etcd.unlock(b"no such key")


def test_a_waiter_that_timed_out_is_never_granted_later(etcd: Etcd) -> None:
    """Nor does it block those behind it."""
    one, two = etcd.grant(), etcd.grant()
    held = etcd.lock(b"etcd-b", one)
    with pytest.raises(grpc.RpcError) as error:
        etcd.lock(b"etcd-b", two, timeout=0.2)
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    until(lambda: etcd.waiters("etcd-b") == 0)
    etcd.unlock(held.key)
    assert etcd.lock(b"etcd-b", one, timeout=2).key


def test_a_lease_ends_with_what_it_locked(etcd: Etcd) -> None:
    """Revoked, or not kept alive: then the name is free, and the lease not found."""
    other = etcd.grant()
    revoked = etcd.grant(60, lease=4711)
    assert revoked == 4711
    etcd.lock(b"etcd-c", revoked)
    assert etcd.leases.LeaseTimeToLive(e.LeaseTimeToLiveRequest(ID=revoked, keys=True)).keys == [b"etcd-c/1267"]
    assert revoked in [each.ID for each in etcd.leases.LeaseLeases(e.LeaseLeasesRequest()).leases]
    etcd.leases.LeaseRevoke(e.LeaseRevokeRequest(ID=revoked))
    assert etcd.lock(b"etcd-c", other).key
    with pytest.raises(grpc.RpcError) as error:
        etcd.lock(b"etcd-d", revoked)
    assert (error.value.code(), error.value.details()) == (
        grpc.StatusCode.NOT_FOUND,
        "etcdserver: requested lease not found",
    )
    assert etcd.leases.LeaseTimeToLive(e.LeaseTimeToLiveRequest(ID=revoked)).TTL == -1
    expiring = etcd.grant(1)
    etcd.lock(b"etcd-e", expiring)
    assert etcd.lock(b"etcd-e", other).key


def test_keep_alives_keep_a_lease_and_tell_of_one_that_is_lost(etcd: Etcd) -> None:
    """By a ttl of 0: nobody goes on without knowing."""
    lease, up, told = etcd.grant(30), Queue[Any](), list[Any]()
    call = etcd.leases.LeaseKeepAlive(iter(up.get, None))
    threading.Thread(target=lambda: told.extend(call), daemon=True).start()
    up.put(e.LeaseKeepAliveRequest(ID=lease))
    up.put(e.LeaseKeepAliveRequest(ID=12345))
    up.put(None)
    until(lambda: len(told) == 2)
    assert [each.TTL for each in told] == [30, 0]


def test_a_lock_without_a_lease_has_a_minute(etcd: Etcd) -> None:
    """As in etcd."""
    key = etcd.lock(b"etcd-f", 0).key
    seen = etcd.own.Explain(m.ExplainRequest(name="etcd-f")).explanation
    assert 0 < seen.holders[0].left_ms <= 60_000
    etcd.unlock(key)
    assert etcd.own.Explain(m.ExplainRequest(name="etcd-f")).explanation.holder_count == 0


def conversation(etcd: Etcd) -> list[object]:
    """What is asked of an etcd and of a listener, and what each answers."""
    lease = etcd.grant(30, lease=777)
    first, again = etcd.lock(b"same", lease), etcd.lock(b"same", lease)
    alive = etcd.leases.LeaseKeepAlive(iter([e.LeaseKeepAliveRequest(ID=each) for each in (lease, 1)]), timeout=10)
    seen = etcd.leases.LeaseTimeToLive(e.LeaseTimeToLiveRequest(ID=lease, keys=True))
    told: list[object] = [lease, first.key, again.key == first.key, again.header.revision == first.header.revision]
    told += [[(each.ID, each.TTL) for each in alive], seen.grantedTTL, list(seen.keys)]
    told.append(lease in [each.ID for each in etcd.leases.LeaseLeases(e.LeaseLeasesRequest()).leases])
    with pytest.raises(grpc.RpcError) as error:
        etcd.grant(30, lease=777)
    told += [error.value.code(), error.value.details()]
    etcd.unlock(first.key)
    etcd.unlock(b"no such key")
    told.append(etcd.lock(b"same", lease).header.revision > first.header.revision)
    etcd.leases.LeaseRevoke(e.LeaseRevokeRequest(ID=lease))
    told.append(etcd.leases.LeaseTimeToLive(e.LeaseTimeToLiveRequest(ID=lease)).TTL)
    with pytest.raises(grpc.RpcError) as error:
        etcd.leases.LeaseRevoke(e.LeaseRevokeRequest(ID=lease))
    return [*told, error.value.code(), error.value.details()]


def test_an_etcd_answers_the_same(etcd: Etcd, tmp_path: Path) -> None:
    """Word for word, number for number: the messages are etcd's own, and so is what they mean."""
    cluster = EtcdCluster(tmp_path, 1)
    try:
        cluster.start()
        real = Etcd(cluster.url("x").removeprefix("etcd://").partition("/")[0])
        assert conversation(etcd) == conversation(real)
        real.channel.close()
    finally:
        cluster.stop()
