"""Calls to members that are guarded, absent or mute, and from a child process."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.drivers.etcd.client import EtcdBounds, EtcdClient
from fencehold.errors import Unavailable
from rig.etcd import EtcdCluster
from rig.processes import free_port
from tests.unit.drivers.etcd.guarded import with_tls

BOUNDS = EtcdBounds(call_s=3.0)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdCluster]:
    with with_tls(tmp_path_factory.mktemp("tls")) as etcd:
        yield etcd


async def use(address: EtcdAddress, bounds: EtcdBounds = BOUNDS) -> None:
    """A lease, a key, a reading."""
    cluster = EtcdClient(address, bounds)
    try:
        await cluster.grant_lease(7, 10)
        for _ in range(3):
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


def test_calls_go_over_tls(guarded: EtcdCluster) -> None:
    """With certificates on both sides; and what etcd refuses is understood."""
    asyncio.run(use(EtcdAddress.parse(guarded.url())))


def test_nobody_there_is_told_at_once() -> None:
    """Refused connections leave nothing to wait for."""
    begun = time.monotonic()
    with pytest.raises(Unavailable, match="cannot be reached"):
        asyncio.run(use(EtcdAddress((f"127.0.0.1:{free_port()}",)), EtcdBounds(call_s=60.0)))
    assert time.monotonic() - begun < 30


def test_one_who_says_nothing_is_given_up() -> None:
    """Within the deadline."""
    with closing(socket.create_server(("127.0.0.1", 0))) as mute:
        address = EtcdAddress((f"127.0.0.1:{mute.getsockname()[1]}",))
        with pytest.raises(Unavailable, match="cannot be reached"):
            asyncio.run(use(address, EtcdBounds(call_s=0.3, try_s=0.1)))


def test_a_child_calls_after_its_parent_has(guarded: EtcdCluster) -> None:
    """Threads do not survive a fork; calls need none. The parent's own go on."""

    async def parent() -> int:
        cluster = EtcdClient(EtcdAddress.parse(guarded.url()), BOUNDS)
        await cluster.put(b"parent", b"before")
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                threading.Thread(target=child).start()
                status = done.wait(30) - 1
            finally:
                os._exit(status)
        for _ in range(5):
            await cluster.put(b"parent", b"after")
        await cluster.close()
        return pid

    def child() -> None:
        asyncio.run(use(EtcdAddress.parse(guarded.url())))
        done.set()

    done = threading.Event()
    assert os.waitstatus_to_exitcode(os.waitpid(asyncio.run(parent()), 0)[1]) == 0
