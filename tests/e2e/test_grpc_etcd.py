"""etcd's own lock interface, as its clients use it, and what users of etcd's complain about."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import grpc
import pytest

import fencehold
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
        self.elections = Stub(self.channel, "v3electionpb.Election", e.pool)
        self.own = Stub(self.channel, LOCK)

    def grant(self, ttl_s: int = 30, lease: int = 0) -> int:
        return int(self.leases.LeaseGrant(e.LeaseGrantRequest(TTL=ttl_s, ID=lease)).ID)

    def lock(self, name: bytes, lease: int, timeout: float = 60) -> Any:
        return self.locks.Lock(e.LockRequest(name=name, lease=lease), timeout=timeout)

    def keep_alive(self, lease: int) -> int:
        """What is left of a lease that is kept alive; 0: it is lost."""
        call = self.leases.LeaseKeepAlive(iter([e.LeaseKeepAliveRequest(ID=lease)]), timeout=60)
        return int(next(iter(call)).TTL)

    def unlock(self, key: bytes) -> None:
        self.locks.Unlock(e.UnlockRequest(key=key))

    def campaign(self, name: bytes, lease: int, value: bytes = b"", timeout: float = 60) -> Any:
        request = e.CampaignRequest(name=name, lease=lease, value=value)
        return self.elections.Campaign(request, timeout=timeout).leader

    def proclaim(self, leader: Any, value: bytes) -> None:
        self.elections.Proclaim(e.ProclaimRequest(leader=leader, value=value), timeout=60)

    def leader(self, name: bytes) -> Any:
        return self.elections.Leader(e.LeaderRequest(name=name), timeout=60).kv

    def resign(self, leader: Any) -> None:
        self.elections.Resign(e.ResignRequest(leader=leader), timeout=60)

    def observe(self, name: bytes) -> tuple[Any, list[bytes]]:
        """The call, and the values of leaders, as they are told."""
        call, told = self.elections.Observe(e.LeaderRequest(name=name)), list[bytes]()

        def read() -> None:
            with contextlib.suppress(grpc.RpcError):
                told.extend(each.kv.value for each in call)

        threading.Thread(target=read, daemon=True).start()
        return call, told

    def waiters(self, name: str) -> int:
        return int(self.own.Explain(m.ExplainRequest(name=name)).explanation.waiter_count)


_EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.fixture(scope="module")
def port(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with door(tmp_path_factory.mktemp("door"), "grpc", server.url) as chosen:
        yield chosen


@pytest.fixture(scope="module")
def etcd(port: int) -> Iterator[Etcd]:
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
        assert waiting.result(60).header.revision > first.header.revision
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
    alive = etcd.leases.LeaseKeepAlive(iter([e.LeaseKeepAliveRequest(ID=each) for each in (lease, 1)]), timeout=60)
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


def refused(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as error:
        call()
    return error.value.code(), str(error.value.details())


def election(etcd: Etcd) -> list[object]:
    """What is asked of elections, of an etcd and of a listener."""
    one, two, three = (etcd.grant(30, lease=each) for each in (901, 902, 903))
    told: list[object] = [refused(lambda: etcd.leader(b"lead"))]
    first = etcd.campaign(b"lead", one, b"one")
    seen = etcd.leader(b"lead")
    told += [first.name, first.key, first.lease, seen.key, seen.lease, seen.value, seen.version]
    told += [seen.create_revision == first.rev, seen.mod_revision == first.rev]
    etcd.proclaim(first, b"one again")
    seen = etcd.leader(b"lead")
    told += [seen.value, seen.version, seen.create_revision == first.rev, seen.mod_revision > first.rev]
    again = etcd.campaign(b"lead", one, b"once more")
    told += [again.key, again.rev == first.rev, etcd.leader(b"lead").value]
    call, values = etcd.observe(b"lead")
    until(lambda: values == [b"once more"])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(etcd.campaign, b"lead", two, b"two")
        # An etcd that notices first that the time is over says UNKNOWN.
        late = refused(lambda: etcd.campaign(b"lead", three, b"late", timeout=0.3))[0]
        told.append(late in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNKNOWN))
        etcd.proclaim(first, b"last words")
        until(lambda: b"last words" in values)
        etcd.resign(first)
        second = waiting.result(60)
    told += [second.key, second.rev > first.rev]
    until(lambda: values[-1] == b"two")
    told += [values, refused(lambda: etcd.proclaim(first, b"not any more"))]
    etcd.resign(first)
    told += [etcd.leader(b"lead").value, refused(lambda: etcd.elections.Resign(e.ResignRequest()))]
    etcd.leases.LeaseRevoke(e.LeaseRevokeRequest(ID=two))
    told += [refused(lambda: etcd.leader(b"lead")), refused(lambda: etcd.proclaim(second, b"gone"))]
    call.cancel()
    # Its code is UNKNOWN in etcd 3.4, and NOT_FOUND here: its clients go by the words.
    return [*told, refused(lambda: etcd.campaign(b"lead", two))[1]]


def test_try_by_a_deadline_or_by_the_interface_beside_it(etcd: Etcd) -> None:
    """etcd has no try (etcd#14062): a short deadline is one here, and so is `wait_ms: 0` on the same names."""
    lease = etcd.grant()
    held = etcd.lock(b"etcd-try", etcd.grant())
    with pytest.raises(grpc.RpcError) as error:
        etcd.lock(b"etcd-try", lease, timeout=0.2)
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    request = m.LockRequest(name="etcd-try", ttl_ms=1_000, wait_ms=0)
    assert etcd.own.Lock(request).HasField("not_acquired")
    etcd.unlock(held.key)
    assert etcd.own.Lock(request).hold.fence > held.header.revision


def test_the_waiter_of_a_dead_client_is_withdrawn(etcd: Etcd, port: int) -> None:
    """Its channel closes, or it is killed: no key of it is left to be waited for (etcd#13330)."""
    held, dead = etcd.lock(b"etcd-dead", etcd.grant()), Etcd(f"127.0.0.1:{port}")
    call = dead.locks.Lock.future(e.LockRequest(name=b"etcd-dead", lease=dead.grant(60)))
    until(lambda: etcd.waiters("etcd-dead") == 1)
    dead.channel.close()
    until(lambda: etcd.waiters("etcd-dead") == 0)
    etcd.unlock(held.key)
    assert etcd.lock(b"etcd-dead", etcd.grant(), timeout=5).key
    assert call.done()


def test_a_call_is_bounded_while_the_service_is_away(etcd: Etcd, server: Served) -> None:
    """It ends by its deadline and leaves nothing behind, however long the service hangs (etcd#18082)."""
    lease = etcd.grant(60)
    server.pause()
    try:
        with pytest.raises(grpc.RpcError) as error:
            etcd.lock(b"etcd-away", lease, timeout=0.3)
    finally:
        server.go_on()
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    until(lambda: etcd.own.Explain(m.ExplainRequest(name="etcd-away")).explanation.holder_count == 0)


def test_a_lease_that_the_service_has_ended_is_told(etcd: Etcd, server: Served) -> None:
    """By the next keep-alive, which says 0: jetcd#1322 went on, and did not know."""
    lease = etcd.grant(2)
    etcd.lock(b"etcd-lost", lease)
    server.pause()
    try:
        # Kept alive towards the listener all the while; the listener itself hears nothing of the service.
        until(lambda: etcd.keep_alive(lease) == 0)
    finally:
        server.go_on()
    with pytest.raises(grpc.RpcError) as error:
        etcd.lock(b"etcd-lost", lease)
    assert error.value.details() == "etcdserver: requested lease not found"


def test_who_leads_by_the_sdk_leads_here(etcd: Etcd, server: Served) -> None:
    """One name, one leader, whatever interface it was elected by."""
    with fencehold.connect(server.url) as client:
        term = client.election("etcd-mixed").campaign()
        seen = etcd.leader(b"etcd-mixed")
        assert (seen.create_revision, seen.value) == (term.epoch, b"")
        with pytest.raises(grpc.RpcError):
            etcd.campaign(b"etcd-mixed", etcd.grant(), b"x", timeout=0.2)
        term.release()
    assert etcd.campaign(b"etcd-mixed", etcd.grant(), b"x").rev > term.epoch
    assert refused(lambda: etcd.campaign(b"etcd-large", etcd.grant(), b"x" * 600))[0] is _EXHAUSTED


def test_an_etcd_answers_the_same(etcd: Etcd, tmp_path: Path) -> None:
    """Word for word, number for number: the messages are etcd's own, and so is what they mean."""
    cluster = EtcdCluster(tmp_path, 1)
    try:
        cluster.start()
        real = Etcd(cluster.url("x").removeprefix("etcd://").partition("/")[0])
        assert conversation(etcd) == conversation(real)
        assert election(etcd) == election(real)
        real.channel.close()
    finally:
        cluster.stop()
