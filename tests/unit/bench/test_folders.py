"""What a benchmark leaves behind when it is interrupted or killed: no server, and no folder for long."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench import folders
from rig.processes import await_true

ROOT = Path(__file__).parents[3]
_GONE = 4_194_304
"""A process id that no process has: one more than the greatest there can be."""
_ENDLESS = """
import asyncio
from bench.__main__ import _contest, interruptible, surroundings
from bench.contest import Contestant, Benchmark, Contest
from bench.servers import Fencehold

class Endless(Contestant):
    async def round(self):
        print(server.pid, server.folder, flush=True)
        await asyncio.sleep(3600)

server = Fencehold(memory=True)
contest = Contest([Endless("endless")], rounds=1, fixtures=[server])
interruptible(lambda: _contest(Benchmark("endless", "", lambda _: contest), True, surroundings()))
"""


@contextmanager
def endless(where: Path) -> Iterator[tuple["subprocess.Popen[str]", int, Path]]:
    """A benchmark that never ends: its process, and its server's process id and folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", _ENDLESS],
        cwd=ROOT,
        env={**os.environ, "BENCH_FOLDER": str(where)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            pid, folder = line.split()
            yield process, int(pid), Path(folder)
        finally:
            process.kill()


def is_gone(pid: int) -> bool:
    """Whether no such process runs, or only its exit status is left of it."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_benchmark_that_is_interrupted_leaves_neither_folders_nor_servers(
    number: signal.Signals, tmp_path: Path
) -> None:
    """Its server has ended and its folder is removed when the command has ended."""
    with endless(tmp_path) as (process, server, folder):
        assert folder.parent == tmp_path
        process.send_signal(number)
        assert process.wait(60) == 130
        assert is_gone(server)
        assert list(tmp_path.iterdir()) == []


def test_a_benchmark_that_is_killed_leaves_no_server_and_the_next_one_removes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel ends the server; the folder is there until somebody makes one."""
    with endless(tmp_path) as (process, server, folder):
        process.kill()
        process.wait(60)
        await_true(lambda: is_gone(server), "the server ended")
        assert folder.exists()
        monkeypatch.setenv("BENCH_FOLDER", str(tmp_path))
        assert list(tmp_path.iterdir()) == [folder]
        mine = folders.new_folder()
        assert list(tmp_path.iterdir()) == [mine]


def test_only_folders_whose_maker_is_gone_are_swept(tmp_path: Path) -> None:
    """Another benchmark that runs keeps its folders, and nothing else is touched."""
    (left := tmp_path / f"fencehold-bench-{_GONE}-x").mkdir()
    for name in (f"fencehold-bench-{os.getpid()}-x", "results", f"bench-{_GONE}-x"):
        (tmp_path / name).mkdir()
    assert folders.sweep(tmp_path) == [left]
    assert not left.exists()
    assert len(list(tmp_path.iterdir())) == 3


def test_git_ignores_the_folders_of_benchmarks() -> None:
    """A benchmark that was killed leaves the checkout clean."""
    assert ".bench/" in (ROOT / ".gitignore").read_text().splitlines()
