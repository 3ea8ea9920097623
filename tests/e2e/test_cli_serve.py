"""`fencehold serve`: how it starts, what it says, how it ends, and what keeps it from serving."""

import json
import re
import signal
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest

from fencehold.cli.tokens import decode
from tests.e2e.served import Served, ended, serving, start, until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_with_code_0(tmp_path: Path, number: signal.Signals) -> None:
    """It drains, says so, and leaves no port file."""
    port_file = tmp_path / "port"
    process = start("serve", "--memory", "--port", "0", "--port-file", str(port_file))
    until(port_file.exists)
    process.send_signal(number)
    said = ended(process)
    assert said.code == 0
    assert said.out == ""
    assert re.search(r"event=listening host=127\.0\.0\.1 port=\d+ data=memory", said.err)
    assert f"event=stopping signal={number.name}" in said.err
    assert "event=stopped" in said.err
    assert not port_file.exists()


def test_it_is_configured_by_the_environment_and_logs_json(tmp_path: Path) -> None:
    """Every option has a variable; with JSON each line of the log is an object."""
    variables = {"FENCEHOLD_JSON": "1", "FENCEHOLD_DATA": str(tmp_path / "deep" / "data")}
    with serving(tmp_path, **variables) as server:
        server.process.terminate()
        lines = [json.loads(line) for line in ended(server.process).err.splitlines()]
    assert [line["event"] for line in lines] == ["listening", "stopping", "stopped"]
    assert lines[0]["data"] == str(tmp_path / "deep" / "data")
    assert lines[0]["level"] == "info"


def test_what_was_granted_is_there_after_a_restart(tmp_path: Path) -> None:
    """A hold taken before is held after, since then and not since the restart, and can be given back."""
    with serving(tmp_path, "--data", str(tmp_path / "data")) as server:
        token = server.call("acquire", "kept", "--ttl", "5m").out.strip()
        before = json.loads(server.call("ls", "--json").out)
    with serving(tmp_path, "--data", str(tmp_path / "data")) as server:
        after = json.loads(server.call("ls", "--json").out)
        assert after["name"] == "kept"
        assert after["hold"]["since"] == before["hold"]["since"]
        held_for = datetime.now(UTC) - datetime.fromisoformat(after["hold"]["since"])
        assert 0 < after["hold"]["for_s"] <= held_for.total_seconds() + 1
        assert server.call("release", token).code == 0
        assert server.call("ls").out == ""


@pytest.mark.parametrize("tier", ["correctness", "efficiency"])
def test_the_log_tells_who_broke_whose_hold(tmp_path: Path, tier: str) -> None:
    """Of either tier: the name, its fence, who had it, and who took it away."""
    with serving(tmp_path, "--memory", "--json") as server:
        token = server.call("acquire", "kept", "--tier", tier).out.strip()
        assert server.call("break", "kept", "--yes", "--tier", tier).code == 0
        server.process.terminate()
        lines = [json.loads(line) for line in ended(server.process).err.splitlines()]
    (broken,) = [line for line in lines if line["event"] == "broken"]
    assert (broken["level"], broken["name"], broken["fence"]) == ("warning", "kept", decode(token).fence)
    host = socket.gethostname()
    assert broken["holder"].endswith(f"@{host} (fencehold acquire)")
    assert broken["by"].endswith(f"@{host} (fencehold break)")


def test_a_port_in_use_is_69(tmp_path: Path) -> None:
    """One sentence, and what to do."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        said = ended(start("serve", "--memory", "--port", str(port)))
    assert said.code == 69
    assert said.err.startswith(f"fencehold: 127.0.0.1:{port} is in use\n")
    assert "--port" in said.err
    assert "Traceback" not in said.err


def test_data_of_another_process_is_69(server: Served, tmp_path: Path) -> None:
    """It names the process that owns it."""
    with serving(tmp_path, "--data", str(tmp_path / "data")) as owner:
        said = ended(start("serve", "--port", "0", "--data", str(tmp_path / "data")))
    assert said.code == 69
    assert f"is owned by process {owner.process.pid}" in said.err
    assert "Traceback" not in said.err


def test_damage_is_65_and_nothing_is_changed(tmp_path: Path) -> None:
    """It refuses to start on what is not what was written."""
    with serving(tmp_path, "--data", str(tmp_path / "data")) as server:
        for number in range(5):
            server.call("acquire", f"n{number}", "--ttl", "5m")
    segment = sorted((tmp_path / "data").glob("*.log"))[0]
    damaged = bytearray(segment.read_bytes())
    damaged[100] ^= 0xFF
    segment.write_bytes(damaged)
    said = ended(start("serve", "--port", "0", "--data", str(tmp_path / "data")))
    assert said.code == 65
    assert "damaged" in said.err
    assert "Traceback" not in said.err
    assert segment.read_bytes() == damaged


def test_what_was_repaired_is_told(tmp_path: Path) -> None:
    """A torn tail, as a power loss leaves it, is cut, and the log says so; what was granted is there."""
    with serving(tmp_path, "--data", str(tmp_path / "data")) as server:
        server.call("acquire", "kept", "--ttl", "5m")
    segment = sorted((tmp_path / "data").glob("*.log"))[-1]
    with segment.open("r+b") as file:
        # Where the last record ends, or a little before: its own last bytes may be zero.
        file.seek(len(file.read().rstrip(b"\0")))
        file.write(b"\0\0\0\x20half")
    with serving(tmp_path, "--data", str(tmp_path / "data")) as server:
        assert server.call("info", "kept").code == 0
        server.process.terminate()
        said = ended(server.process)
    assert re.search(r"level=warning event=repaired note=.*cut [5-8] bytes", said.err)


def test_an_address_others_can_reach_needs_insecure() -> None:
    """It is a usage error to say 0.0.0.0 without --insecure."""
    said = ended(start("serve", "--memory", "--host", "0.0.0.0", "--port", "0"))
    assert said.code == 2
    assert "--insecure" in said.err


def test_a_data_directory_that_cannot_be_made_is_69(tmp_path: Path) -> None:
    """A file where a directory should be is told in one sentence."""
    (tmp_path / "file").write_text("")
    said = ended(start("serve", "--port", "0", "--data", str(tmp_path / "file" / "data")))
    assert said.code == 69
    assert "Traceback" not in said.err
