"""What can go wrong with locks in a SQLite file: other processes, crashes, a file that is gone or not ours."""

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fencehold
from fencehold import HoldLost, PermissionDenied, Unavailable, UsageError, aio
from fencehold.backends.sqlite import boot_clock as machine
from tests.stopwatch import Stopwatch

NOBODY = 65_534

_GRANTING = """
import sys, fencehold
with fencehold.connect(sys.argv[1], ttl=1) as client:
    for number in range(100_000):
        hold = client.lock(f"n{number % 7}", timeout=0).acquire()
        print(number, hold.fence, flush=True)
        if number % 2:
            hold.release()
"""
_OPENING = """
import sys, fencehold
sys.stdin.readline()
with fencehold.connect(sys.argv[1]) as client, client.lock("first", timeout=30) as hold:
    print(hold.fence)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "locks.db"


@contextmanager
def locked_by_another(file: Path) -> Iterator[None]:
    """Somebody else is in the middle of a transaction, and does not end it."""
    other = sqlite3.connect(file, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        yield
    finally:
        other.close()


def test_a_file_that_another_keeps_is_given_up_in_time(file: Path) -> None:
    """Certainly nothing happened: a call ends when the timeout of the URL is over, and nothing is held later."""
    with fencehold.connect(f"sqlite:///{file}?timeout=0.2") as client:
        lock = client.lock("a", timeout=0)
        with locked_by_another(file):
            watch = Stopwatch()
            with pytest.raises(Unavailable, match="locked by another process"):
                lock.acquire()
            assert watch.passed_s < 2
            # Reading is not in anybody's way, and nobody is in its.
            assert not lock.locked()
        assert not lock.locked()
        with lock:
            pass


async def test_what_is_held_is_not_trusted_for_longer_than_its_ttl(file: Path) -> None:
    """The client stops trusting first: if no renewal comes through, its holder is told before the name is free."""
    url = f"sqlite:///{file}?timeout=0.1"
    async with aio.connect(url, ttl=1, grace=0.5) as one, aio.connect(url) as other:
        hold = await one.lock("a").acquire()
        assert hold is not None
        with locked_by_another(file):
            await asyncio.wait_for(hold.lost.wait(), 10)
            assert hold.safe_for() == 0
        async with other.lock("a", timeout=10) as next_one:
            assert next_one.fence > hold.fence


def test_who_only_looks_takes_no_lock(file: Path) -> None:
    """Refusals come while another writes: what is busy is found by reading."""
    with (
        fencehold.connect(f"sqlite:///{file}") as one,
        fencehold.connect(f"sqlite:///{file}") as other,
        one.lock("a"),
        locked_by_another(file),
    ):
        assert other.lock("a", timeout=0).acquire() is None
        assert other.explain("a").holders


def test_a_killed_process_loses_nothing_that_was_granted(file: Path) -> None:
    """`kill -9` amid many grants: fences go on growing, and all names are free after the ttl."""
    url = f"sqlite:///{file}"
    granting = subprocess.Popen([sys.executable, "-c", _GRANTING, url], stdout=subprocess.PIPE, text=True)
    assert granting.stdout is not None
    seen = [granting.stdout.readline() for _ in range(7)]
    granting.kill()
    seen += granting.stdout.readlines()
    granting.wait()
    granting.stdout.close()
    fences = [int(line.split()[1]) for line in seen if line.endswith("\n")]
    assert fences == sorted(set(fences))
    with fencehold.connect(url) as client:
        for number in range(7):
            with client.lock(f"n{number}", timeout=5) as hold:
                assert hold.fence > fences[-1]


def test_a_file_that_is_made_by_eight_at_once_is_one_file(file: Path) -> None:
    """Whoever comes first makes the tables; all are granted, one after the other."""
    command = [sys.executable, "-c", _OPENING, f"sqlite:///{file}?timeout=20"]
    openers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(8)
    ]
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("\n")
        opener.stdin.flush()
    fences = [int(opener.communicate(timeout=60)[0]) for opener in openers]
    assert len(set(fences)) == 8


async def test_a_file_that_is_removed_is_missed(file: Path) -> None:
    """Others would find another file: what was held in the old one is lost, and is told; fences go on growing."""
    url = f"sqlite:///{file}"
    async with aio.connect(url, ttl=1, grace=0.5) as client:
        hold = await client.lock("a").acquire()
        assert hold is not None
        for each in file.parent.iterdir():
            each.unlink()
        with pytest.raises(Unavailable, match="was removed or replaced"):
            await client.lock("b", timeout=0).acquire()
        await asyncio.wait_for(hold.lost.wait(), 20)
        with pytest.raises(HoldLost):
            await hold.release()
        async with client.lock("a", timeout=0) as next_one:
            assert next_one.fence > hold.fence


def test_what_cannot_be_used_is_said_in_words(tmp_path: Path) -> None:
    """A folder, another kind of file, a folder that is not there, one that takes no files."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("this is no database, and never was one\n" * 100)
    for place, kind, words in (
        ("folder", UsageError, "is a folder"),
        ("text", UsageError, "is not a SQLite database"),
        ("missing/locks.db", Unavailable, "make it first"),
    ):
        with pytest.raises(kind, match=words):
            fencehold.connect(f"sqlite:///{tmp_path / place}")


def test_a_file_that_may_not_be_written_is_refused(tmp_path: Path) -> None:
    """Another user's file: not allowed, and nothing is tried again."""
    file = tmp_path / "locks.db"
    fencehold.connect(f"sqlite:///{file}").close()
    for each in (tmp_path, *tmp_path.parents):
        each.chmod(each.stat().st_mode | 0o055)
        if each.name.startswith("pytest-of"):
            break
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setegid(NOBODY)
                os.seteuid(NOBODY)
            else:
                tmp_path.chmod(0o555)
                file.chmod(0o444)
            try:
                with fencehold.connect(f"sqlite:///{file}", connect_timeout=60) as client:
                    client.lock("a", timeout=0).acquire()
            except PermissionDenied:
                code = 0
            except BaseException:
                traceback.print_exc()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_what_an_earlier_start_of_the_machine_left_is_void(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of its processes is left. Its fences are not given again; its times mean nothing now."""
    url = f"sqlite:///{file}"
    with fencehold.connect(url) as client:
        hold = client.lock("a").acquire()
        assert hold is not None
        with sqlite3.connect(file) as db:
            # As if the power had gone: nothing is given back.
            rows = db.execute("SELECT * FROM fencehold_holds").fetchall()
        db.close()
        hold.release()
    with sqlite3.connect(file) as db:
        db.execute("INSERT INTO fencehold_holds VALUES (?, ?, ?, ?, ?, ?, ?)", rows[0])
    db.close()
    monkeypatch.setattr(machine, "life", lambda: "another start")
    with fencehold.connect(url) as client, client.lock("a", timeout=0) as next_one:
        assert next_one.fence > hold.fence


def test_two_machines_are_found_out(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that another machine writes to serves no longer: its clock is another one."""
    url = f"sqlite:///{file}"
    with fencehold.connect(url) as client:
        with client.lock("a"):
            pass
        monkeypatch.setattr(machine, "life", lambda: "another machine")
        with fencehold.connect(url), pytest.raises(Unavailable, match="in use on another machine"):
            client.lock("a", timeout=0).acquire()


def test_a_fork_amid_work_harms_neither(file: Path) -> None:
    """No connection is carried into a child; the parent's threads go on, and all are excluded as before."""
    url = f"sqlite:///{file}"
    done: list[int] = []
    with fencehold.connect(url) as client:

        def work() -> None:
            for _ in range(20):
                with client.lock("a", timeout=30) as hold:
                    done.append(hold.fence)

        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    with fencehold.connect(url) as own, own.lock("a", timeout=30):
                        code = 0
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        for thread in threads:
            thread.join()
    assert len(set(done)) == 40
    assert done == sorted(done)


async def test_no_thread_is_left(file: Path) -> None:
    """Neither by a client that was used, nor by one that never came in."""
    before = threading.active_count()
    async with aio.connect(f"sqlite:///{file}") as client, client.lock("a"):
        assert threading.active_count() == before + 1
    with pytest.raises(Unavailable):
        await aio.connect("sqlite:////nowhere/at/all/locks.db")
    assert threading.active_count() == before
