"""Sinks as a user starts them: beside a server, by its file; and alone, from where it was stopped."""

import json
import signal
from pathlib import Path

from rig.processes import await_true
from tests.e2e.served import ended, serving

_PATIENCE_S = 60.0


def _subjects(path: Path) -> list[str]:
    events = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [event["subject"] for event in events if event["type"] == "io.fencehold.lock.acquired.v1"]


def test_a_sink_runs_beside_its_server_and_ends_with_it(tmp_path: Path) -> None:
    """What happens is in its file; `sink status` says so; a second one goes on where the file ends."""
    path, status = tmp_path / "events.jsonl", tmp_path / "status"
    file = tmp_path / "fencehold.toml"
    file.write_text(f'[sinks]\nstatus = "{status}"\nlog = "jsonl://{path}"\n')
    with serving(tmp_path, "--data", str(tmp_path / "data"), "--config", str(file)) as server:
        assert ended(server.start("run", "a", "--", "true")).code == 0
        await_true(lambda: _subjects(path) == ["a"], "an event in the file", _PATIENCE_S)
        await_true(lambda: '"delivered": 4' in _status(status), "four events delivered", _PATIENCE_S)
        [told] = json.loads(server.call("sink", "status", "--status", str(status), "--json").out)["sinks"]
        assert (told["name"], told["state"], told["delivery"], told["gaps"]) == ("log", "well", "exactly once", 0)
    await_true(lambda: '"running": false' in _status(status), "the sink ended with its server", _PATIENCE_S)
    with serving(tmp_path, "--data", str(tmp_path / "data")) as server:
        assert ended(server.start("run", "b", "--", "true")).code == 0
        sink = server.start("sink", "run", f"jsonl://{path}", "--status", str(status))
        await_true(lambda: _subjects(path) == ["a", "b"], "the next event in the file", _PATIENCE_S)
        sink.send_signal(signal.SIGTERM)
        assert ended(sink).code == 0
        wrong = ended(server.start("sink", "run", "jsonl:///nowhere/at/all", "--status", str(status)))
        assert (wrong.code, "cannot be written" in wrong.err) == (2, True)


def _status(folder: Path) -> str:
    path = folder / "log.json"
    return path.read_text() if path.exists() else ""
