"""What operators see of a service with several shards: its past, its figures, its events in a file."""

import json
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest

import fencehold
from rig.etcd import EtcdCluster
from rig.nodes import FenceholdNode
from tests.e2e.grpc_client import Client, Compiled, door
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


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled(tmp_path_factory.mktemp("compiled"))


def _streamed(port: int, count: int, last: str = "") -> Generator[dict[str, Any], None, None]:
    """So many events of `/v1/events`, each with its id; first of all, where it begins."""
    url, headers = f"http://127.0.0.1:{port}/v1/events", {"last-event-id": last} if last else {}
    with httpx.stream("GET", url, headers=headers, timeout=60) as stream:
        assert stream.status_code == 200, stream.read()
        id_ = ""
        for line in stream.iter_lines():
            key, _, value = line.partition(": ")
            if not key and value:
                yield {"from": value.removeprefix("from ")}
            elif key == "id":
                id_ = value
            elif key == "data" and id_:
                yield {**json.loads(value), "id": id_}
                count, id_ = count - 1, ""
            if not count:
                return


def test_events_over_http_are_of_all_shards_and_resumed_in_each(served: Served, tmp_path: Path) -> None:
    """The id of any of them has the place of each shard: what comes after it comes once."""
    with door(tmp_path, "http", served.url) as port, fencehold.connect(served.url, name="eve") as client:
        stream = _streamed(port, 12)
        begun = next(stream)["from"]
        assert begun.count(",") == 3
        for name in NAMES:
            with client.lock(name):
                pass
        named = (event for event in stream if event["names"])
        # Acquired and released; a session is opened, too, in those shards that have none yet.
        events = [next(named) for _ in range(2 * len(NAMES))]
        assert {event["shard"] for event in events} == {0, 1, 2, 3}
        first = events[0]
        again = list(islice(_streamed(port, 3, first["id"]), 4))
        assert again[0] == {"from": first["id"]}
        later = [(event["shard"], event["position"], event["index"]) for event in again[1:]]
        assert (first["shard"], first["position"], first["index"]) not in later
        refused = httpx.get(f"http://127.0.0.1:{port}/v1/events", headers={"last-event-id": "17-0"})
        assert (refused.status_code, refused.json()["reason"]) == (400, "USAGE")
        cluster = httpx.get(f"http://127.0.0.1:{port}/v1/cluster").json()["by_shard"]
        assert [(each["shard"], each["away"]) for each in cluster] == [(shard, None) for shard in range(4)]


def _named(watch: Any, count: int) -> list[Any]:
    """So many events of names: a session that is opened has none."""
    found: list[Any] = []
    while len(found) < count:
        event = next(watch).event
        found += [event] if event.names else []
    return found


def test_a_watch_over_grpc_is_of_all_shards_and_resumed_in_each(
    served: Served, compiled: Compiled, tmp_path: Path
) -> None:
    """From a place for each shard; a position alone is refused."""
    with door(tmp_path, "grpc", served.url) as port, fencehold.connect(served.url, name="gil") as worker:
        client = Client(compiled, port)
        m = client.m
        watch = client.watches.Watch(m.WatchRequest(), timeout=60)
        begun = list(next(watch).watching.places)
        assert [each.shard for each in begun] == [0, 1, 2, 3]
        holds = [worker.lock(name).acquire() for name in NAMES]
        events = _named(watch, len(NAMES))
        watch.cancel()
        assert sorted(name for each in events for name in each.names) == sorted(NAMES)
        places = {each.shard: each for each in begun}
        last = events[-1]
        places[last.shard] = m.ShardPlace(shard=last.shard, position=last.position, index=last.index)
        again = client.watches.Watch(m.WatchRequest(from_places=places.values()), timeout=60)
        assert {(each.shard, each.position) for each in next(again).watching.places} == {
            (each.shard, each.position) for each in places.values()
        }
        named = _named(again, len(NAMES) - 1)
        assert sorted(name for each in named for name in each.names) == sorted(
            name for each in events[:-1] for name in each.names
        )
        again.cancel()
        with pytest.raises(grpc.RpcError) as refused:
            next(client.watches.Watch(m.WatchRequest(from_position=1), timeout=60))
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        placed = client.watches.ShardMap(m.ShardMapRequest())
        assert [(each.first, each.shard) for each in placed.ranges] == [(0, 0), (4096, 1), (8192, 2), (12288, 3)]
        assert len(placed.leaders) == placed.shards == 4
        listed = client.locks.List(m.ListRequest())
        assert not listed.next_page_token
        assert sorted(each.name for each in listed.locks) == sorted(NAMES)
        for hold in holds:
            hold.release()
        client.close()


def test_nodes_that_share_shards_each_know_the_past_of_all(tmp_path: Path) -> None:
    """Whoever leads a shard, any node answers; a sink reads each shard where it can, also when a node is gone."""
    etcd = EtcdCluster(tmp_path / "etcd", 1)
    etcd.start()
    with ExitStack() as stack:
        stack.callback(etcd.stop)
        nodes = [_node(name, etcd.url("observed"), tmp_path, stack) for name in ("a", "b")]
        url = "fencehold://" + ",".join(node.address for node in nodes)
        port = stack.enter_context(door(tmp_path, "http", url))
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
            stream = _streamed(port, 1_000)
            stack.callback(stream.close)
            next(stream)
            nodes[0].kill()
            _lock_each(client)
            until(lambda: _acquired(file) == sorted(2 * NAMES))
            told = list[str]()
            # A watch that is open goes on, whoever leads now, and tells each once.
            while sorted(told) != sorted(NAMES):
                event = next(stream)
                told += event["names"] if event["kind"] == "acquired" else []
                assert len(told) <= len(NAMES)
            listed = httpx.get(f"http://127.0.0.1:{port}/v1/sessions", timeout=60).json()["sessions"]
            assert {each["shard"] for each in listed} == {0, 1, 2, 3}
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
