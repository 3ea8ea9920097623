"""Calls of a child process: the same as its parent's, by a library that survives a fork."""

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trustme

from fencehold.errors import Unavailable
from fencehold.etcd import forked
from fencehold.etcd.address import Address, parse
from fencehold.etcd.cluster import Bounds, Cluster
from rig.etcd import EtcdCluster
from rig.processes import free_port
from tests.unit.etcd.guarded import issued

BOUNDS = Bounds(call_s=3.0)


@pytest.fixture
def as_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process whose parent has called."""
    monkeypatch.setattr(forked, "_called_by", [os.getpid() + 1])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    folder = tmp_path_factory.mktemp("forked")
    etcd = EtcdCluster(folder / "data", size=1, tls=issued(trustme.CA(), folder / "certificates"))
    try:
        etcd.start()
        yield etcd
    finally:
        etcd.stop()


async def use(address: Address, bounds: Bounds = BOUNDS) -> None:
    """A lease, a key, a reading."""
    cluster = Cluster(address, bounds)
    try:
        await cluster.grant_lease(7, 10)
        assert (await cluster.keep_alive(7, 3.0)).TTL == 10
        await cluster.put(b"key", b"value")
        stream = cluster.stream()
        assert stream is not None
        stream.cancel()
        assert await cluster.delete(b"key", b"") > 0
        await cluster.revoke_lease(7)
        await cluster.revoke_lease(7)
    finally:
        await cluster.close()


@pytest.mark.usefixtures("as_child")
def test_a_child_calls_over_tls(guarded: EtcdCluster) -> None:
    """With certificates on both sides; and what etcd refuses is understood as in its parent."""
    asyncio.run(use(parse(guarded.url())))


@pytest.mark.usefixtures("as_child")
def test_nobody_there_is_told_to_a_child_at_once() -> None:
    """Refused connections leave nothing to wait for."""
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="cannot be reached"):
        asyncio.run(use(Address((f"127.0.0.1:{free_port()}",)), Bounds(call_s=60.0)))
    assert time.monotonic() - begun < 30


@pytest.mark.usefixtures("as_child")
def test_one_who_says_nothing_is_given_up_by_a_child() -> None:
    """Within the deadline."""
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        address = Address((f"127.0.0.1:{mute.getsockname()[1]}",))
        with pytest.raises(Unavailable, match="cannot be reached"):
            asyncio.run(use(address, Bounds(call_s=0.3, try_s=0.1)))


def test_who_has_not_called_leaves_its_children_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only a child of one who has called is bound to the slower way."""
    monkeypatch.setattr(forked, "_called_by", [])
    assert not forked.is_child()
    forked.on_opened(channel := object())
    assert not forked.is_child()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if forked.is_child() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    forked.on_closed(channel)
