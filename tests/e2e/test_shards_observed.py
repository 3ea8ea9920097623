"""What operators see of a service with several shards: its past, its figures, its events in a file."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import fencehold
from rig.etcd import EtcdCluster
from rig.nodes import FenceholdNode
from tests.e2e.grpc_client import door
from tests.e2e.served import Served, ended, serving, start, until

NAMES = ("a", "b", "c", "d")
"""One of each of four shards."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a past in each of its shards, and a sink of its own."""
    place = tmp_path_factory.mktemp("observed")
    (place / "fencehold.toml").write_text(
        f'[sinks]\nstatus = "{place / "status"}"\nfile = "jsonl://{place / "events.jsonl"}"\n'
    )
    words = ("--data", str(place / "data"), "--shards", "4", "--config", str(place / "fencehold.toml"))
    with serving(place, *words) as server:
        with fencehold.connect(server.url, name="worker") as client:
            for name in NAMES:
                with client.lock(name):
                    pass
        yield server


def test_the_past_of_a_name_is_told_whatever_its_shard(served: Served) -> None:
    """By the command and the SDK alike: with the shard it was held in, and the position there."""
    with fencehold.connect(served.url) as client:
        for name in NAMES:
            code, out, _ = served.call("history", name, "--json")
            (hold,) = json.loads(out)["holds"]
            assert (code, hold["client"], hold["ended"]) == (0, "worker", "released")
            (same,) = client.history(name).holds
            assert (same.shard, same.position) == (hold["shard"], hold["position"])
    shards = {json.loads(served.call("history", name, "--json").out)["holds"][0]["shard"] for name in NAMES}
    assert shards == {0, 1, 2, 3}


def test_figures_are_of_all_shards(served: Served, tmp_path: Path) -> None:
    """Operations are counted together; who leads, and how long appends take, is told of each."""
    with door(tmp_path, "http", served.url) as port:
        figures = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    for shard in range(4):
        assert f'fencehold_leader{{shard="{shard}"}} 1.0' in figures
        assert f'fencehold_append_seconds_count{{shard="{shard}",tier="correctness"}}' in figures
    for name in NAMES:
        labels = f'listener="resp",op="acquire",outcome="granted",template="{name}",tier="correctness"'
        assert f"fencehold_operations_total{{{labels}}} 1.0" in figures


def test_a_sink_carries_the_events_of_all_shards(served: Served) -> None:
    """Each once, under the source of its shard; it says how far each shard is."""

    def read() -> list[dict[str, str]]:
        file = served.place / "events.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    until(lambda: {event.get("subject") for event in read()} >= set(NAMES))
    acquired = [event for event in read() if event["type"] == "io.fencehold.lock.acquired.v1"]
    assert sorted(event["subject"] for event in acquired) == sorted(NAMES)
    assert {event["source"] for event in acquired} == {f"/fencehold/main/{shard}" for shard in range(4)}

    def status() -> dict[str, Any]:
        told: list[dict[str, Any]] = json.loads(
            served.call("sink", "status", "--status", str(served.place / "status"), "--json").out
        )["sinks"]
        return told[0] if told else {}

    until(lambda: set(status().get("cursors", ())) == {"0", "1", "2", "3"})
    assert status()["shards"] == 4
    out = served.call("sink", "status", "--status", str(served.place / "status")).out
    assert "of 4 shards" in out


def test_nodes_that_share_shards_each_know_the_past_of_all(tmp_path: Path) -> None:
    """Whoever leads a shard, any node answers; a sink reads each shard where it can, also when a node is gone."""
    etcd = EtcdCluster(tmp_path / "etcd", 1)
    etcd.start()
    with ExitStack() as stack:
        stack.callback(etcd.stop)
        nodes = [_node(name, etcd.url("observed"), tmp_path, stack) for name in ("a", "b")]
        url = "fencehold://" + ",".join(node.address for node in nodes)
        file = tmp_path / "events.jsonl"
        sink = start("sink", "run", f"jsonl://{file}", "--status", str(tmp_path / "s"), FENCEHOLD_URL=url)
        stack.callback(ended, sink)
        stack.callback(sink.terminate)
        with fencehold.connect(url, name="worker", connect_timeout=60) as client:
            _lock_each(client)
            for node in nodes:
                with fencehold.connect(f"fencehold://{node.address}", connect_timeout=60) as other:
                    for name in NAMES:
                        until(lambda: len(other.history(name).holds) == 1)  # noqa: B023
            until(lambda: _acquired(file) == sorted(NAMES))
            nodes[0].kill()
            _lock_each(client)
            until(lambda: _acquired(file) == sorted(2 * NAMES))
            assert [len(client.history(name).holds) for name in NAMES] == [2] * 4


def _node(name: str, engine: str, folder: Path, stack: ExitStack) -> FenceholdNode:
    options = ("--shards", "4", "--history-file", str(folder / f"{name}.sqlite"))
    node = FenceholdNode(name, engine, folder / name, options=options)
    node.start()
    stack.callback(node.kill)
    return node


def _lock_each(client: fencehold.Client) -> None:
    for name in NAMES:
        with client.lock(name, timeout=60):
            pass


def _acquired(file: Path) -> list[str]:
    events = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return sorted(event["subject"] for event in events if event["type"] == "io.fencehold.lock.acquired.v1")
