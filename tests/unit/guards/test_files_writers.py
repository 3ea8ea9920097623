"""Many processes at one guarded file, and processes that are killed in the middle."""

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fencehold.errors import StaleFence
from fencehold.guards import Offer
from fencehold.guards.files import Guard
from tests.threads import at_once

PROCESSES, THREADS, WRITES = 4, 8, 10_000
KILLS = 150


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where that can be: what is killed is the process, not the machine, and a sync takes no time."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as made:
        yield Path(made)


def write(folder: Path, seed: int) -> None:
    """One process of several: its threads take its share of the fences, nearly in order."""
    chance = random.Random(seed)
    fences = iter(sorted(range(seed + 1, WRITES + 1, PROCESSES), key=lambda fence: fence + chance.uniform(0, 64)))
    turn, accepted, guard = threading.Lock(), list[int](), Guard(timeout=60)

    def work() -> None:
        while True:
            with turn:
                fence = next(fences, None)
            if fence is None:
                return
            try:
                guard.append(folder / "log", f"{fence}\n".encode(), Offer("log", fence))
            except StaleFence as refused:
                assert refused.mark > fence  # noqa: PT017
            else:
                accepted.append(fence)

    at_once(THREADS, work)
    print(json.dumps(accepted))  # noqa: T201


def be_killed(folder: Path, seed: int) -> None:
    """Fork writers, kill each at a moment drawn by lot, and look at what it left.

    Not in the process of the tests, which may have threads.
    """
    chance, acknowledged = random.Random(seed), list[str]()
    for fence in range(1, KILLS + 1):
        acknowledged += _killed(folder, fence, chance.uniform(0, 0.004))
        _look(folder, fence, acknowledged)
    print(len(acknowledged))  # noqa: T201


def _killed(folder: Path, fence: int, after_s: float) -> list[str]:
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _write_until_killed(folder, fence, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        first = pipe.readline()
        threading.Event().wait(after_s)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        return [line.strip().decode() for line in [first, *pipe] if line.endswith(b"\n")]


def _write_until_killed(folder: Path, fence: int, writing: int) -> None:
    guard, count = Guard(), 0
    while True:
        count += 1
        # Of several pages, so that a kill can tear it.
        record = f"{fence}.{count}".encode()
        guard.append(folder / "log", record + b" " + b"x" * 20_000 + b"\n", Offer("log", fence))
        guard.replace(folder / "state", record * 5_000, Offer("state", fence))
        os.write(writing, record + b"\n")


def _look(folder: Path, fence: int, acknowledged: list[str]) -> None:
    guard = Guard()
    lines = guard.read(folder / "log", Offer("log", fence)).decode().split("\n")
    assert lines.pop() == ""
    records = [line.partition(" ")[0] for line in lines]
    assert all(line.endswith(" " + "x" * 20_000) for line in lines)
    assert [record for record in records if record in set(acknowledged)] == acknowledged
    fences = [int(record.partition(".")[0]) for record in records]
    assert fences == sorted(fences)
    state = guard.read(folder / "state", Offer("state", fence)).decode()
    last = state[: len(state) // 5_000]
    assert state == last * 5_000
    # What was acknowledged last is there, or the one after it, whose answer the kill prevented.
    order = [tuple(map(int, each.split("."))) for each in (acknowledged[-1], last)]
    assert order[0] <= order[1]
    for name in ("log", "state"):
        # Its own fence it has in the note: one below is refused.
        try:
            guard.check(folder / name, Offer(name, fence - 1 or 1))
        except StaleFence as refused:
            assert refused.mark == fence  # noqa: PT017
        else:
            assert fence == 1
    # It would be quadratic otherwise.
    if len(lines) > 50:
        guard.replace(folder / "log", b"", Offer("log", fence))
        acknowledged.clear()
        acknowledged.append(f"{fence}.0")
        guard.append(folder / "log", f"{fence}.0 {'x' * 20_000}\n".encode(), Offer("log", fence))


def _processes(folder: Path, verb: str, count: int) -> list[str]:
    call = f"import pathlib; from tests.unit.guards import test_files_writers as t; t.{verb}"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", f"{call}(pathlib.Path({str(folder)!r}), {seed})"],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        for seed in range(count)
    ]
    said = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0] * count
    return said


def test_of_many_writers_the_accepted_never_go_back_and_none_is_lost(folder: Path) -> None:
    """4 processes of 8 threads, 10 000 writes: the file is sorted, and has just what was accepted."""
    accepted = [fence for said in _processes(folder, "write", PROCESSES) for fence in json.loads(said)]
    log = [int(line) for line in (folder / "log").read_text().split()]
    assert log == sorted(log)
    assert log == sorted(accepted)
    assert 100 < len(log) < WRITES
    with pytest.raises(StaleFence) as refused:
        Guard().enter(folder / "log", Offer("log", WRITES - 1))
    assert refused.value.mark == WRITES
    assert sorted(os.listdir(folder)) == [".log.fence", "log"]


def test_whoever_is_killed_the_file_is_whole_and_the_mark_stays(folder: Path) -> None:
    """150 writers, killed in the middle: nothing torn, nothing acknowledged lost, no fence accepted again."""
    [said] = _processes(folder, "be_killed", 1)
    assert int(said) > 0
    assert len(os.listdir(folder)) <= 6
