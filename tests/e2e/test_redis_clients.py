"""Clients of Redis that know nothing of Fencehold: redis-cli, redis-py and a Node client, in RESP2 and RESP3."""

import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.e2e.served import PATIENCE_S, serving

NODE = Path(__file__).parent / "node"
both = pytest.mark.parametrize("version", [2, 3])


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A server for the tests of this module."""
    place = tmp_path_factory.mktemp("redis")
    with serving(place, "--data", str(place / "data")) as served:
        yield int(served.url.rpartition(":")[2])


def redis_cli(port: int, version: int, script: str) -> list[str]:
    """What redis-cli prints for commands on its standard input, all on one connection."""
    done = subprocess.run(
        ["redis-cli", "-p", str(port), f"-{version}"],
        input=script,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@both
def test_redis_cli_locks(port: int, version: int) -> None:
    """Commands typed into redis-cli are answered in words a person can read."""
    name = f"cli:{version}"
    lines = redis_cli(
        port,
        version,
        f"PING\nLOCK.ACQUIRE {name} WAIT 0 TTL 5000\nLOCK.ACQUIRE {name} WAIT 0\nLOCK.RELEASE {name} 0\nINFO\n",
    )
    assert lines[0] == "PONG"
    text = "\n".join(lines)
    assert name in text
    assert "own_ttl" in text
    assert "NOTOWNER" in text
    assert "role:leader" in text


@both
def test_redis_cli_chooses_its_tier(port: int, version: int) -> None:
    """TIER says which machine it speaks to, and changes it before the first lock only."""
    script = f"TIER\nTIER EFFICIENCY\nTIER\nLOCK.ACQUIRE tier:{version} WAIT 0\nTIER CORRECTNESS\nLOCK.LIST\n"
    lines = redis_cli(port, version, script)
    assert lines[:3] == ["CORRECTNESS", "OK", "EFFICIENCY"]
    assert any(line.startswith("USAGE the tier is chosen before the first session") for line in lines)
    assert f"tier:{version}" in "\n".join(lines[4:])


@both
def test_redis_py_locks_in_both_tiers(port: int, version: int) -> None:
    """One name is held in each, and what was held in the volatile one is free when its connection ends."""
    name = f"py-tier:{version}"
    with connect(port, version) as durable, connect(port, version) as waiter:
        with connect(port, version) as volatile:
            for client in (volatile, waiter):
                assert client.execute_command("TIER", "EFFICIENCY") == "OK"
            claim = as_map(volatile.execute_command("LOCK.ACQUIRE", name, "WAIT", 0))["fence"]
            assert as_map(durable.execute_command("LOCK.ACQUIRE", name, "WAIT", 0))["fence"] < claim
            assert waiter.execute_command("LOCK.ACQUIRE", name, "WAIT", 0) is None
        assert as_map(waiter.execute_command("LOCK.ACQUIRE", name))["fence"] > claim


@both
def test_what_redis_cli_held_is_free_when_it_ends(port: int, version: int) -> None:
    """A plain client's locks live as long as its connection."""
    name = f"cli-gone:{version}"
    for _ in range(3):
        assert any(name in line for line in redis_cli(port, version, f"LOCK.ACQUIRE {name} WAIT 5000\n"))


def as_map(reply: Any) -> dict[str, Any]:
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def connect(port: int, version: int) -> redis.Redis:
    return redis.Redis(port=port, protocol=version, decode_responses=True, single_connection_client=True)


@both
def test_redis_py_locks(port: int, version: int) -> None:
    """redis-py acquires, waits, releases and is refused, with nothing but execute_command."""
    name = f"py:{version}"
    with connect(port, version) as holder, connect(port, version) as waiter:
        grant = as_map(holder.execute_command("LOCK.ACQUIRE", name, "WAIT", 0))
        assert waiter.execute_command("LOCK.ACQUIRE", name, "WAIT", 0) is None
        granted: list[Any] = []
        waiting = threading.Thread(target=lambda: granted.append(waiter.execute_command("LOCK.ACQUIRE", name)))
        waiting.start()
        while not as_map(holder.execute_command("LOCK.INFO", name))["waiters"]:
            pass
        assert holder.execute_command("LOCK.RELEASE", name, grant["fence"]) == "OK"
        waiting.join(PATIENCE_S)
        assert as_map(granted[0])["fence"] > grant["fence"]
        with pytest.raises(redis.ResponseError, match="RELEASED"):
            holder.execute_command("LOCK.RELEASE", name, grant["fence"])
        with pytest.raises(redis.ResponseError, match="USAGE"):
            holder.execute_command("LOCK.ACQUIRE", name, "WAIT", "soon")


@both
def test_redis_py_opens_a_session_and_comes_back_to_it(port: int, version: int) -> None:
    """A session opened on one connection is resumed on another with all it holds."""
    name = f"py-session:{version}"
    with connect(port, version) as first:
        session = as_map(first.execute_command("SESSION.OPEN", "TTL", 30_000, "GRACE", 10_000))
        fence = as_map(first.execute_command("LOCK.ACQUIRE", name))["fence"]
    with connect(port, version) as second:
        second.execute_command("SESSION.RESUME", session["session"], session["secret"])
        assert second.execute_command("LOCK.RELEASE", name, fence) == "OK"
        assert second.execute_command("SESSION.CLOSE") == "OK"


@both
def test_a_pipeline_of_redis_py_is_answered_in_order(port: int, version: int) -> None:
    """A pipeline without a transaction is just commands in one go."""
    with connect(port, version) as client:
        pipeline = client.pipeline(transaction=False)
        for number in range(200):
            pipeline.execute_command("LOCK.ACQUIRE", f"py-pipe:{version}:{number}", "WAIT", 0)
        replies = [as_map(reply) for reply in pipeline.execute()]
        assert [reply["name"] for reply in replies] == [f"py-pipe:{version}:{number}" for number in range(200)]


@both
def test_a_node_client_locks(port: int, version: int) -> None:
    """The Redis client of Node does the same, its commands in flight at once."""
    node = shutil.which("node")
    assert node, "node is missing: make servers"
    assert (NODE / "node_modules").is_dir(), "its client is missing: make servers"
    done = subprocess.run(
        [node, "client.mjs", str(port), str(version)],
        cwd=NODE,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.stderr, done.returncode) == ("", 0)
    found: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        found |= json.loads(line)
    assert found == {
        "granted": True,
        "own_ttl": 0,
        "tried": None,
        "holders": 1,
        "released": "OK",
        "grew": True,
        "refused": "RELEASED",
        "pong": "PONG",
        "pipelined": 100,
        "ordered": True,
    }
