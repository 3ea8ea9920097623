"""`fencehold run`: the lock around a command, its signals and exit codes, and what a loss does."""

import json
import os
import shlex
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.served import COMMAND, Said, Served, ended, serving, until

_WAIT = "echo started; while :; do sleep 0.02; done"


def _run(server: Served, *words: str) -> Said:
    return ended(server.start("run", *words))


def _started(process: "subprocess.Popen[str]") -> "subprocess.Popen[str]":
    """Wait until the command itself has written something."""
    assert process.stdout is not None
    assert process.stdout.readline() == "started\n"
    return process


@pytest.fixture
def sleeper(server: Served, request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[str]"]:
    """A command that runs under a lock of the test's own name until it is ended."""
    process = server.start("run", request.node.name, "--", "sh", "-c", _WAIT)
    yield _started(process)
    process.kill()
    ended(process)


def test_the_command_gets_the_fence_and_gives_its_code(server: Served) -> None:
    """Its environment names the fence, the name and the server; its exit code is returned."""
    script = 'echo "$FENCEHOLD_FENCE $FENCEHOLD_NAME $FENCEHOLD_URL"; exit 7'
    said = _run(server, "code", "--", "sh", "-c", script)
    fence, name, url = said.out.split()
    assert said.code == 7
    assert int(fence) > 0
    assert (name, url) == ("code", server.url)
    assert server.call("ls", "code").out == ""


def test_fences_grow_from_run_to_run(server: Served) -> None:
    """The second holder's fence is greater."""
    first, second = (int(_run(server, "grow", "--", "sh", "-c", "echo $FENCEHOLD_FENCE").out) for _ in range(2))
    assert second > first


def test_several_names_are_held_together(server: Served) -> None:
    """While it runs, all names are held with one fence; options may stand after the names."""
    script = f"{shlex.join(COMMAND)} ls multi --json; echo $FENCEHOLD_NAMES"
    said = _run(server, "multi:b", "multi:a", "--ttl", "10s", "--", "sh", "-c", script)
    *names, listed = said.out.splitlines()
    held = [json.loads(line) for line in names]
    assert [name["name"] for name in held] == ["multi:a", "multi:b"]
    assert held[0]["fence"] == held[1]["fence"]
    assert listed == "multi:b multi:a"


def test_options_of_the_command_are_its_own(server: Served) -> None:
    """What follows -- is not read, not even another --."""
    said = _run(server, "own", "--", "echo", "--try", "--", "--ttl")
    assert said.out == "--try -- --ttl\n"


def test_a_busy_lock_is_1_or_what_was_asked_for(server: Served, sleeper: "subprocess.Popen[str]") -> None:
    """Neither --try nor --timeout runs the command, and both say who holds it."""
    name = "test_a_busy_lock_is_1_or_what_was_asked_for"
    tried = _run(server, "--try", name, "--", "echo", "ran")
    assert (tried.code, tried.out) == (1, "")
    assert f"pid {sleeper.pid}" in tried.err
    waited = _run(server, "--timeout", "50ms", "--busy-exit", "9", name, "--", "echo", "ran")
    assert (waited.code, waited.out) == (9, "")


def test_readers_share_and_permits_are_counted(server: Served) -> None:
    """Two readers run at once; of a semaphore of one only one."""
    held = _started(server.start("run", "--shared", "readers", "--", "sh", "-c", _WAIT))
    assert _run(server, "--shared", "--try", "readers", "--", "true").code == 0
    held.terminate()
    ended(held)
    held = _started(server.start("run", "--limit", "1", "permits", "--", "sh", "-c", _WAIT))
    assert _run(server, "--limit", "1", "--try", "permits", "--", "true").code == 1
    held.terminate()
    ended(held)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_signals_are_passed_on(server: Served, number: signal.Signals) -> None:
    """The command gets the signal, and its own way to end is what is returned."""
    script = f"trap 'echo got it; exit 5' {number.name.removeprefix('SIG')}; {_WAIT}"
    process = _started(server.start("run", f"passed-{number.name}", "--", "sh", "-c", script))
    process.send_signal(number)
    said = ended(process)
    assert (said.code, said.out) == (5, "got it\n")


def test_a_command_ended_by_a_signal_is_128_and_its_number(server: Served) -> None:
    """As a shell says it."""
    assert _run(server, "killed", "--", "sh", "-c", "kill -9 $$").code == 137


def test_a_signal_ends_the_wait(server: Served, sleeper: "subprocess.Popen[str]") -> None:
    """A run that waits for its lock leaves the queue, and its command never runs."""
    name = "test_a_signal_ends_the_wait"
    waiting = server.start("run", name, "--", "echo", "ran")
    until(lambda: _waiters(server, name) == 1)
    waiting.send_signal(signal.SIGTERM)
    said = ended(waiting)
    assert (said.code, said.out) == (143, "")
    until(lambda: _waiters(server, name) == 0)


def _waiters(server: Served, name: str) -> int:
    return len(json.loads(server.call("info", name, "--json").out)["waiters"])


def test_a_broken_hold_ends_the_command_with_75(server: Served) -> None:
    """The command gets SIGTERM; who asks why is told."""
    script = f"trap 'echo terminated; exit 0' TERM; {_WAIT}"
    process = _started(server.start("run", "broken", "--", "sh", "-c", script))
    assert server.call("break", "broken", "--yes").code == 0
    said = ended(process)
    assert (said.code, said.out) == (75, "terminated\n")
    assert "is lost" in said.err


@pytest.mark.guarantee("G7")
def test_a_server_that_falls_silent_ends_the_command_with_75(tmp_path: Path) -> None:
    """When no keep-alive is answered the command is ended, even if it ignores SIGTERM."""
    with serving(tmp_path, "--memory") as server:
        script = f"trap '' TERM; {_WAIT}"
        words = ("run", "silent", "--ttl", "600ms", "--kill-after", "50ms", "--", "sh", "-c", script)
        process = _started(server.start(*words))
        server.pause()
        said = ended(process)
    assert said.code == 75
    assert "no keep-alive was answered" in said.err


def test_all_that_it_started_dies_with_a_kill_9(server: Served, tmp_path: Path) -> None:
    """Killed outright, it leaves neither the command nor what that has started."""
    pids = tmp_path / "pids"
    script = f"sleep 60 & echo $$ $! >{pids}; echo started; wait; true"
    process = _started(server.start("run", "killed-9", "--", "sh", "-c", script))
    shell, sleep = map(int, pids.read_text().split())
    process.kill()
    ended(process)
    until(lambda: not _lives(shell) and not _lives(sleep))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_kernel_kills_the_command_when_all_of_ours_are_killed(server: Served) -> None:
    """With the guardian killed as well, the command still dies with its parent."""
    process = _started(server.start("run", "pdeathsig", "--", "sh", "-c", f"{_WAIT}"))
    children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    command, guardian = children
    os.kill(guardian, signal.SIGKILL)
    process.kill()
    ended(process)
    until(lambda: not _lives(command))


def test_what_cannot_be_run_is_126_or_127(server: Served, tmp_path: Path) -> None:
    """As a shell says it; and the lock is free again."""
    file = tmp_path / "file"
    file.write_text("")
    file.chmod(stat.S_IRUSR)
    assert _run(server, "cannot", "--", "no-such-command").code == 127
    said = _run(server, "cannot", "--", str(file))
    assert said.code == 126
    assert said.err == f"fencehold: {file}: cannot be executed\n"
    assert server.call("ls", "cannot").out == ""


@pytest.mark.parametrize(
    "words", [["name"], ["name", "--"], ["--", "true"], ["--limit", "2", "a", "b", "--", "x"]]
)
def test_a_wrong_command_line_is_2(server: Served, words: list[str]) -> None:
    """Nothing runs, and nothing is asked for."""
    assert server.call("run", *words).code == 2
