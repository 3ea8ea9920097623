"""The command line with several shards: one server of a directory, and nodes that share an etcd."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

import fencehold
from fencehold.cli.tokens import decode
from fencehold.placement.slots import slot_of
from rig.etcd import EtcdCluster
from rig.nodes import NodeGroup
from tests.e2e.served import Served, ended, serving, start, until

NAMES = ("a", "b", "c", "d")
"""One of each of four shards."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("shards"), "--shards", "4") as server:
        yield server


def test_what_is_shown_is_of_all_shards(served: Served) -> None:
    """Lists, sessions and counts span all of them; a name is found, extended and released where it is at home."""
    tokens = [served.call("acquire", name).out.strip() for name in NAMES]
    listed = [line.split("\t")[0] for line in served.call("ls").out.splitlines()]
    assert listed == list(NAMES)
    homes = {each["name"]: each["shard"] for each in map(json.loads, served.call("ls", "--json").out.splitlines())}
    assert sorted(homes.values()) == [0, 1, 2, 3]
    sessions = [json.loads(line) for line in served.call("sessions", "--json").out.splitlines()]
    assert {each["shard"] for each in sessions} == {0, 1, 2, 3}
    status = json.loads(served.call("status", "--json").out)
    assert status["held_name_count"] == 4
    # Positions and fences are each shard's own: no sum of them is one.
    assert [status[key] for key in ("epoch", "position", "logical_s", "fence")] == [None] * 4
    assert not {"position", "fence"} & {line.split("\t")[0] for line in served.call("status").out.splitlines()}
    shown = json.loads(served.call("shards", "show", "--json").out)["shards"]
    assert [each["slots"][0][0] for each in shown] == [0, 4096, 8192, 12288]
    assert [each["names_held"] for each in shown] == [1, 1, 1, 1]
    assert served.call("top", "--once").out.count("exclusive") == 4
    for name, token in zip(NAMES, tokens, strict=True):
        seen = json.loads(served.call("info", name, "--json").out)
        assert seen["holds"][0]["fence"]
        # Sessions are numbered in each shard.
        assert seen["shard"] == homes[name]
        assert served.call("extend", token).code == 0
        assert served.call("release", token).code == 0
    assert served.call("ls").out == ""


def test_a_watch_shows_events_of_all_shards(served: Served) -> None:
    """Whatever the shard, what happens is shown as it happens."""
    watching = served.start("watch", "--json", "--count", "8", "")
    with fencehold.connect(served.url) as client:
        while watching.poll() is None:
            for name in NAMES:
                with client.lock(name):
                    pass
    said = ended(watching)
    assert {name for line in said.out.splitlines() for name in json.loads(line)["names"]} <= set(NAMES)
    assert served.call("watch", "--from", "1").code == 2


def test_a_watch_after_what_has_not_happened_ends_at_once(served: Served) -> None:
    """It says which shard the place is of and where that is, and names no place to go on from."""
    said = served.call("watch", "--after", ",,999999,")
    assert said.code == 2
    assert "position 999999 of shard 2 has not happened yet: the newest is " in said.err
    assert "to go on" not in said.err


def test_a_deadlock_through_two_shards_is_refused(served: Served) -> None:
    """Two programs that take two names in opposite order do not wait for their timeouts."""
    both_have_one = Barrier(2)

    def take(names: tuple[str, str]) -> tuple[fencehold.Link, ...]:
        with fencehold.connect(served.url) as client, client.lock(names[0], timeout=60):
            both_have_one.wait(60)
            try:
                with client.lock(names[1], timeout=60):
                    return ()
            except fencehold.Deadlock as deadlock:
                return deadlock.circle

    with ThreadPoolExecutor() as threads:
        kept, against = threads.map(take, (("b", "a"), ("a", "b")))
    assert not kept
    assert [(link.name, link.shard) for link in against] == [("b", 0), ("a", 3)]
    assert served.call("ls").out == ""


def test_each_shard_has_its_backup(served: Served, tmp_path: Path) -> None:
    """A file for each, which goes where that shard has its journal; a stream cannot have several."""
    assert served.call("backup", str(tmp_path / "all.fh")).code == 0
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == [f"all.shard-000{shard}.fh" for shard in range(4)]
    for file in files:
        assert served.call("journal", "import", str(file), "--engine", str(tmp_path / "new")).code == 0
    info = served.call("journal", "info", "--engine", str(tmp_path / "new"), "--shard", "3", "--json")
    assert json.loads(info.out)["position"] > 0
    assert served.call("backup", "-").code == 2


def test_shards_are_led_by_the_nodes_that_are_there(tmp_path: Path) -> None:
    """Two nodes on an etcd lead two shards each; when one is killed, the other has all, and holds go on."""
    etcd = EtcdCluster(tmp_path / "etcd", 1)
    etcd.start()
    try:
        with NodeGroup(etcd.url("shards"), tmp_path / "nodes", 2, options=("--shards", "4")) as nodes:
            until(lambda: sorted(_led(nodes.url)) == ["a", "a", "b", "b"])
            with fencehold.connect(nodes.url, ttl=60, connect_timeout=60) as client:
                holds = [client.lock(name).acquire() for name in NAMES]
                nodes.nodes[0].kill()
                until(lambda: _led(nodes.url) == ["b"] * 4)
                for name, hold in zip(NAMES, holds, strict=True):
                    hold.release()
                    with client.lock(name, timeout=60) as again:
                        assert again.fence > hold.fence
    finally:
        etcd.stop()


def _led(url: str) -> list[str]:
    said = ended(start("shards", "show", "--json", FENCEHOLD_URL=url))
    shards = json.loads(said.out)["shards"] if said.code == 0 else []
    return [str(each["leader"]) if each["epoch"] is not None else "-" for each in shards]


def test_slots_move_while_names_of_them_are_held(tmp_path: Path) -> None:
    """Moved, split, merged and evened out again; a hold is waited for, or broken; each is done once."""
    with serving(tmp_path, "--shards", "4") as server:
        assert server.call("shards", "move", "0-99", "--to", "1").code == 2, "nobody can be asked here"
        told = json.loads(server.call("shards", "move", "0-99", "--to", "1", "--yes", "--json").out)
        moves = [{"from": 0, "to": 1, "slots": "0-99"}]
        assert told == {"version": 2, "slots": 100, "moves": moves, "settled": True}
        again = server.call("shards", "move", "0-99", "--to", "1", "--yes")
        assert (again.code, again.out.strip()) == (0, "done: 0 slots moved, by version 2 of the map")
        token = server.call("acquire", "a").out.strip()
        shard = next(each["shard"] for each in shown(server) if each["names_held"])
        to = str((shard + 1) % 4)
        merging = server.start("shards", "merge", str(shard), "--to", to, "--yes")
        until(lambda: json.loads(server.call("shards", "moves", "--json").out)["shards"][shard]["names"] == 1)
        assert server.call("shards", "split", to, "--to", "3", "--yes").code != 0, "one after the other"
        assert "a" in server.call("shards", "moves").out
        assert server.call("release", token).code == 0
        assert ended(merging).code == 0
        server.call("acquire", "a")
        forced = server.call("shards", "rebalance", "--yes", "--force")
        assert (forced.code, "done: " in forced.out) == (0, True), forced
        assert server.call("shards", "resume").code == 0
        sizes = [sum(last - first + 1 for first, last in each["slots"]) for each in shown(server)]
        assert sizes == [4096] * 4
        with fencehold.connect(server.url) as client:
            for name in NAMES:
                with client.lock(name, timeout=30):
                    pass


def test_who_waits_for_a_name_that_moves_away_is_granted_where_it_goes(served: Served) -> None:
    """With a token of that shard: its wait is turned away where it was, and it asks where the name is now."""
    served.call("acquire", "a", "--ttl", "60s")
    shard = next(each["shard"] for each in shown(served) if each["names_held"])
    waiting = served.start("acquire", "a", "--timeout", "60s")
    until(lambda: any(each["waiters"] for each in shown(served)))
    moved = served.call("shards", "move", str(slot_of("a")), "--to", str((shard + 1) % 4), "--yes", "--force")
    assert moved.code == 0, moved
    said = ended(waiting)
    assert said.code == 0, said
    assert decode(said.out.strip()).shard == (shard + 1) % 4
    assert served.call("release", said.out.strip()).code == 0


def shown(server: Served) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(server.call("shards", "show", "--json").out)["shards"]
    return found
