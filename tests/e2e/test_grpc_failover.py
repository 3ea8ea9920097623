"""gRPC over a change of leaders, and listeners that a server starts beside itself."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from grpc_health.v1 import health_pb2, health_pb2_grpc

from rig.etcd import EtcdCluster
from rig.nodes import NodeGroup
from rig.processes import accepts, free_port
from tests.e2e.grpc_client import Client, Compiled, Talk, door
from tests.e2e.served import ended, serving, until


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled(tmp_path_factory.mktemp("compiled"))


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[NodeGroup]:
    etcd = EtcdCluster(tmp_path / "etcd", 1)
    try:
        etcd.start()
        with NodeGroup(etcd.url("grpc"), tmp_path, 2) as group:
            yield group
    finally:
        etcd.stop()


def health(client: Client, service: str) -> int:
    return int(
        health_pb2_grpc.HealthStub(client.channel).Check(health_pb2.HealthCheckRequest(service=service)).status
    )


def test_a_listener_beside_a_standby_serves_and_loses_no_hold_when_the_leader_dies(
    nodes: NodeGroup, compiled: Compiled, tmp_path: Path
) -> None:
    """It goes to the leader, and to the next one; health says which way is the short one."""
    leader = nodes.leader()
    (standby,) = [node for node in nodes.nodes if node is not leader]
    serves, does_not = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    with door(tmp_path, "grpc", standby.url) as port:
        ann, bob = Client(compiled, port).open(ttl_ms=60_000), Client(compiled, port).open()
        assert (health(ann, ""), health(ann, "fencehold.v1.LockService")) == (serves, does_not)
        talk = Talk(ann)
        watch = ann.watches.Watch(ann.m.WatchRequest(prefix="wallet"), timeout=60)
        assert next(watch).HasField("watching")
        hold = ann.lock("wallet")
        assert next(watch).event.fence == hold.fence
        leader.kill()
        assert bob.lock("wallet", wait_ms=0, timeout=60, request_id="during") is None
        until(lambda: health(ann, "fencehold.v1.LockService") == serves)
        assert not [one for one in talk.told if one.WhichOneof("message") == "lost"]
        ann.unlock(hold)
        assert bob.lock("wallet", timeout=60).fence > hold.fence
        kinds = [_kind(message) for message in _until_acquired(watch)]
        assert kinds[-1] == "acquired"
        for client in (ann, bob):
            client.close()


def _kind(message: Any) -> str:
    return "gap" if message.HasField("gap") else str(message.event.kind_text)


def _until_acquired(watch: Any) -> Iterator[Any]:
    for message in watch:
        yield message
        if _kind(message) == "acquired":
            watch.cancel()
            return


def test_what_a_server_has_forgotten_is_a_gap(compiled: Compiled, tmp_path: Path) -> None:
    """More happened than its ring keeps: a watcher from an old position is told so, and goes on."""
    with serving(tmp_path, "--memory") as server, door(tmp_path, "grpc", server.url) as port:
        client = Client(compiled, port).open()
        client.lock("a")
        with (
            redis.from_url(server.url.replace("fencehold", "redis")) as other,
            other.pipeline(transaction=False) as many,
        ):
            for _ in range(20_000):
                many.execute_command("LOCK.ACQUIRE", "a", "WAIT", "0")
            assert len(many.execute(raise_on_error=False)) == 20_000
        watch = client.watches.Watch(client.m.WatchRequest(from_position=1), timeout=60)
        assert next(watch).HasField("watching")
        assert next(watch).HasField("gap")
        assert next(watch).HasField("event")
        watch.cancel()
        client.close()


def test_events_from_before_a_restart_are_told(compiled: Compiled, tmp_path: Path) -> None:
    """As far back as the journal still has them: a watcher goes on where it was."""
    data = ("--data", str(tmp_path / "data"))
    with serving(tmp_path, *data) as server, door(tmp_path, "grpc", server.url) as port:
        client = Client(compiled, port).open()
        client.unlock(client.lock("a"))
        client.close()
    with serving(tmp_path, *data) as server, door(tmp_path, "grpc", server.url) as port:
        client = Client(compiled, port).open()
        watch = client.watches.Watch(client.m.WatchRequest(from_position=1), timeout=60)
        assert next(watch).HasField("watching")
        kinds = [_kind(next(watch)) for _ in range(2)]
        assert "gap" not in kinds
        assert "acquired" in kinds
        watch.cancel()
        client.close()


def test_a_server_starts_a_listener_restarts_it_and_takes_it_along(compiled: Compiled, tmp_path: Path) -> None:
    """In a process of its own: killed, it comes back; when the server is killed, it ends, too."""
    port = free_port()
    with serving(tmp_path, "--memory", "--grpc", str(port)) as server:
        until(lambda: accepts(port))
        client = Client(compiled, port).open()
        assert client.lock("a").fence
        client.channel.close()
        first = _child(server.process.pid)
        os.kill(first, signal.SIGKILL)
        until(lambda: accepts(port) and _child(server.process.pid) not in (0, first))
        again = Client(compiled, port).open()
        # What the one that was killed held is held until its session ends; other names are not concerned.
        assert again.lock("b").fence
        again.channel.close()
        second = _child(server.process.pid)
        server.process.kill()
        assert "listener_ended" in ended(server.process).err
        until(lambda: not _is_running(second))
        until(lambda: not accepts(port))


def test_a_listener_that_is_not_installed_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """Not by a process that ends again and again."""
    from fencehold.cli import listener_processes as listeners  # noqa: PLC0415
    from fencehold.errors import UsageError  # noqa: PLC0415

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(listeners.KINDS, "grpc", ("no_such_module",))
        with pytest.raises(UsageError, match=r"pip install 'fencehold\[grpc\]'"):
            listeners.check_installed({"grpc": 1})


def _child(parent: int) -> int:
    """The listener of a server; 0 if there is none."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return int(children[0]) if children else 0


def _is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
