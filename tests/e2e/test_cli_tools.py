"""`doctor`, `bench`, `demo`, the version; and what is said when no server is there."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fencehold import __version__, build
from tests.e2e.served import Served, ended, start


@pytest.fixture
def nowhere() -> str:
    """The address of no server."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"fencehold://127.0.0.1:{taken.getsockname()[1]}"


def test_doctor_checks_server_clock_disk_and_packages(server: Served, tmp_path: Path) -> None:
    """Each check is ok, warn or fail; nothing stays behind on a disk that is tried."""
    said = server.call("doctor", "--data", str(tmp_path / "not" / "there"), "--json")
    found = json.loads(said.out)
    checks = {check["check"]: check for check in found["checks"]}
    assert said.code == 0
    assert found["result"] == "ok"
    assert {"server", "role", "engine", "round trip", "clock", "file system", "room", "fdatasync"} <= set(checks)
    assert {"open files", "python", "uvloop", "hiredis"} <= set(checks)
    assert all(check["level"] in ("ok", "warn") for check in checks.values())
    assert list(tmp_path.iterdir()) == []
    line = server.call("doctor", "--data", str(tmp_path)).out.splitlines()[0]
    assert line.split("\t")[:2] == ["ok", "server"]


def test_doctor_looks_at_the_servers_disk_and_not_at_the_one_it_is_called_on(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the journal is, as the server sees it, whatever the current directory; how long its appends take."""
    server.call("acquire", "doctor", "--ttl", "1s")
    monkeypatch.chdir("/proc")
    checks = {check["check"]: check for check in json.loads(server.call("doctor", "--json").out)["checks"]}
    for check in ("file system", "room"):
        assert checks[check]["said"].endswith(f" {server.place}/data")
    assert checks["append"]["said"].startswith("p50 ")
    assert "fdatasync" not in checks


def test_doctor_fails_without_a_server(nowhere: str, tmp_path: Path) -> None:
    """Exit code 1, and what to do."""
    said = ended(start("doctor", "--url", nowhere, "--data", str(tmp_path)))
    assert said.code == 1
    assert said.out.startswith("fail\tserver\t")
    assert "fencehold serve" in said.out


@pytest.mark.parametrize(
    "words", [["ls"], ["ping"], ["acquire", "a"], ["watch"], ["bench"], ["break", "a", "--yes"]]
)
def test_no_server_is_69_and_says_how_to_start_one(nowhere: str, words: list[str]) -> None:
    """One sentence with the address, one with what to do."""
    said = ended(start(*words, "--url", nowhere))
    assert said.code == 69
    assert nowhere.removeprefix("fencehold://") in said.err
    assert "fencehold serve" in said.err
    assert "Traceback" not in said.err


def test_bench_measures(server: Served) -> None:
    """Figures with their units, for one name or for many."""
    figures = json.loads(server.call("bench", "--clients", "3", "--seconds", "200ms", "--json").out)
    assert figures["clients"] == 3
    assert figures["ops_per_s"] > 0
    assert 0 < figures["acquire_p50_s"] <= figures["acquire_p99_s"]
    assert (
        "ops/s with 2 clients" in server.call("bench", "--clients", "2", "--seconds", "100ms", "--same-name").out
    )
    assert server.call("ls", "fencehold-bench").out == ""


def test_the_demo_loses_money_without_a_fence_and_none_with_it() -> None:
    """The paused holder's write is taken by the wallet that checks nothing, and refused by the one that does."""
    said = ended(start("demo", "--fast", "--json"))
    without, with_fence = map(json.loads, said.out.splitlines())
    assert said.code == 0
    assert (without["refused"], without["lost"]) == (False, 70)
    assert (with_fence["refused"], with_fence["lost"]) == (True, 0)
    assert with_fence["first_fence"] < with_fence["second_fence"]


def test_the_demo_tells_its_story() -> None:
    """For people, in words."""
    said = ended(start("demo", "--fast"))
    assert said.code == 0
    assert "70 are lost, though both held the lock" in said.out
    assert "refuses it" in said.out


def test_the_version_comes_at_once() -> None:
    """Without loading what commands need."""
    kind = ", compiled" if build.is_compiled() else ""
    assert ended(start("--version")).out == f"fencehold {__version__}{kind}\n"
    code = "import sys; sys.argv = ['fencehold', '--version']; from fencehold.cli.main import main; main(); "
    loaded = _python(code + "print(sorted({'typer', 'rich', 'asyncio', 'hiredis'} & set(sys.modules)))")
    assert loaded.splitlines()[-1] == "[]"


def _python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout


def test_output_into_a_closed_pipe_is_no_error(server: Served) -> None:
    """`fencehold ls | head -0` says nothing on stderr."""
    server.call("acquire", "piped", "--ttl", "10s")
    process = server.start("ls")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(20) in (0, 141)
