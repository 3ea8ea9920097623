"""`fencehold backup`: a server that runs, in one file, while others work with it; and what is restored of it."""

import json
import os
import shlex
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import fencehold
from fencehold.cli.tokens import decode
from fencehold.doors.resp.replies import reply
from tests.e2e.served import COMMAND, PATIENCE_S, Served, ended, serving, start, until
from tests.e2e.terminal import Terminal


def _restored(backup: Path, place: Path) -> dict[str, Any]:
    """Let an empty directory begin with the backup; what that says."""
    said = ended(start("journal", "import", str(backup), "--engine", str(place), "--json"))
    assert said.code == 0, said
    found: dict[str, Any] = json.loads(said.out)
    return found


class Load:
    """Threads that take and release names of their own, and the greatest fence that was granted to any."""

    def __init__(self, url: str) -> None:
        self.fence = 0
        self.count = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(url, number)) for number in range(4)]

    def _work(self, url: str, number: int) -> None:
        with fencehold.connect(url, name=f"load-{number}") as client:
            lock = client.lock(f"load:{number}")
            while not self._stop.is_set():
                with lock as hold:
                    self.fence = max(self.fence, hold.fence)
                self.count += 1

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)


@contextmanager
def loaded(server: Served) -> Iterator[Load]:
    load = Load(server.url)
    load.start()
    try:
        until(lambda: load.count > 20)
        yield load
    finally:
        load.stop()


@pytest.mark.guarantee("G1")
def test_a_backup_under_load_restores_what_was_held_with_fences_above_all(tmp_path: Path) -> None:
    """Clients go on meanwhile; what was held then is held again, and its token releases it."""
    with serving(tmp_path, "--data", str(tmp_path / "data")) as server:
        token = server.call("acquire", "held", "--ttl", "10m").out.strip()
        with loaded(server) as load:
            before = load.count
            said = [server.call("backup", str(tmp_path / f"backup-{number}"), "--json") for number in range(3)]
            until(lambda: load.count > before)
        assert [one.code for one in said] == [0, 0, 0], said
    told = [json.loads(one.out) for one in said]
    assert told[0]["position"] < told[1]["position"] < told[2]["position"]
    assert all(one["position"] == one["snapshot_position"] and one["hold_count"] >= 1 for one in told)
    restored = _restored(tmp_path / "backup-0", tmp_path / "new")
    assert restored["fence"] > load.fence
    with serving(tmp_path, "--data", str(tmp_path / "new")) as server:
        (hold,) = json.loads(server.call("info", "held", "--json").out)["holds"]
        assert hold["fence"] == decode(token).fence
        assert server.call("release", token).code == 0
        assert json.loads(server.call("acquire", "held", "--json").out)["fence"] > load.fence


def test_a_server_that_keeps_nothing_can_be_backed_up_too(tmp_path: Path) -> None:
    """It is the one way to keep what it knows."""
    with serving(tmp_path, "--memory") as server:
        server.call("acquire", "kept", "--ttl", "10m")
        assert server.call("backup", str(tmp_path / "backup")).code == 0
    restored = _restored(tmp_path / "backup", tmp_path / "new")
    assert restored["backup"]["engine"] == "memory"
    assert restored["backup"]["hold_count"] == 1


def test_the_file_is_whole_in_its_place_and_for_its_owner_alone(server: Served, tmp_path: Path) -> None:
    """One that is there stays unless forced; what is written is what `journal info` shows."""
    file = tmp_path / "backup"
    said = server.call("backup", str(file))
    assert said.out.startswith("backed up position ")
    assert said.out.endswith(f" to {file}\n")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert server.call("backup", str(file)).code == 2
    told = json.loads(server.call("backup", str(file), "--force", "--json").out)
    info = json.loads(server.call("journal", "info", str(file), "--json").out)
    assert told.pop("bytes") == file.stat().st_size
    assert {key: info[key] for key in told} == told
    assert os.listdir(tmp_path) == ["backup"]


def test_a_backup_goes_through_a_pipe(server: Served, tmp_path: Path) -> None:
    """What is said goes to stderr; on a terminal bytes help nobody."""
    command = f"{shlex.join(COMMAND)} backup - > {tmp_path}/backup"
    with Terminal("sh", "-c", command, shell=True, FENCEHOLD_URL=server.url) as screen:
        assert screen.code() == 0
    assert "backed up position" in screen.seen
    assert server.call("journal", "info", str(tmp_path / "backup")).code == 0
    with Terminal("backup", "-", FENCEHOLD_URL=server.url) as screen:
        assert screen.code() == 2
    assert server.call("backup", "-", "--json").code == 2


def test_a_server_that_is_lost_meanwhile_leaves_no_file(tmp_path: Path) -> None:
    """Half a backup is none: exit code 69, and nothing in its place."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"fencehold://127.0.0.1:{listening.getsockname()[1]}"
        asking = start("backup", str(tmp_path / "backup"), "--url", url)
        _hang_up_after_a_piece(listening)
        said = ended(asking)
    assert said.code == 69
    assert "NODE.BACKUP" in said.err
    assert os.listdir(tmp_path) == []


def _hang_up_after_a_piece(listening: socket.socket) -> None:
    """Be a server that leads, begins a backup, gives a piece of it and is gone."""
    listening.settimeout(PATIENCE_S)
    begun = {"engine": "file", "epoch": 1, "position": 7, "fence": 3, "logical_ms": 5}
    connection, _ = listening.accept()
    with connection:
        for value in ({"role": "leader", "version": "1"}, begun, b"FENCEHOLD"):
            assert connection.recv(4_096)
            connection.sendall(reply(value, 3))
        assert connection.recv(4_096)
