"""Shadows: redis-py's locks stay as they are, and what goes wrong with them is reported, and nothing else."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis
import redis.asyncio
import redis.lock
from redis.exceptions import LockNotOwnedError

import fencehold
from fencehold.compat import shadow as shadows
from fencehold.compat.redis import Report, Shadow, ShadowLock
from fencehold.errors import UsageError
from tests.e2e.served import ended, serving
from tests.threads import at_once
from tests.unit.client.service import PATIENCE_S, until_true
from tests.unit.compat.redises import RedisServer
from tests.unit.compat.scenarios import SCENARIOS, Scenario, Stage, play

MEMORY = "memory://shadow"
NOTHING = dict.fromkeys(shadows.KINDS, 0)


def kinds(reports: list[Report]) -> list[str]:
    return [report.kind for report in reports]


def heard(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: "subprocess.Popen[str]") -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def until_expired(lock: Any) -> None:
    until_true(lambda: not lock.locked())


# What an application sees.


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.title.replace(" ", "-"))
def test_an_application_sees_redis_py_only(scenario: Scenario, server: redis.Redis, shadow: Shadow) -> None:
    """Every call has the result, or the error, that it has without a shadow."""

    def left() -> float | None:
        ms = int(server.pttl("seen"))
        return None if ms < 0 else ms / 1000

    expected = asyncio.run(play(scenario, Stage(lambda **made: redis.lock.Lock(server, "seen", **made), left)))
    server.delete("seen")
    assert asyncio.run(play(scenario, Stage(lambda **made: shadow.lock("seen", **made), left))) == expected


def test_a_shadow_works_as_a_lock_class(server: redis.Redis, shadow: Shadow) -> None:
    """`Redis.lock` makes locks that are followed."""
    lock = server.lock("by-class", timeout=5, lock_class=shadow.lock_class)
    assert isinstance(lock, ShadowLock | redis.lock.Lock)
    with lock:
        pass
    assert shadow.flush()
    assert shadow.summary().recorded == 1


# What is found.


def test_normal_use_is_not_reported(shadow: Shadow, reports: list[Report]) -> None:
    """Threads that take turns, and extend in time, give no reason for a report."""

    def work() -> None:
        for _ in range(20):
            with shadow.lock("turns", timeout=10, sleep=0.001) as lock:
                lock.extend(5)
                lock.reacquire()

    at_once(4, work)
    assert shadow.flush()
    assert reports == []
    summary = shadow.summary()
    assert (summary.findings, summary.recorded > 0, summary.failures, summary.dropped) == (NOTHING, True, 0, 0)


def test_an_extended_lock_is_not_reported(shadow: Shadow, reports: list[Report]) -> None:
    """A holder that keeps its lock alive holds it for longer than its timeout, and rightly."""
    with shadow.lock("kept", timeout=0.5) as lock:
        until = time.monotonic() + 0.6
        lock.extend(10, replace_ttl=True)
        lock.extend(10)
        until_true(lambda: time.monotonic() > until)
    assert shadow.flush()
    assert reports == []


def test_an_overlap_is_reported_with_both_parties(shadow: Shadow, reports: list[Report]) -> None:
    """One works on after its timeout, another gets the lock: both are named, and how long it went on."""
    first, second = shadow.lock("shared", timeout=0.1), shadow.lock("shared", timeout=30, sleep=0.005)
    assert first.acquire()

    is_seen = threading.Event()

    def take() -> None:
        second.acquire()
        is_seen.wait(PATIENCE_S)
        second.release()

    other = threading.Thread(target=take, name="the other one")
    other.start()
    until_true(lambda: "overlap" in kinds(reports))
    with pytest.raises(LockNotOwnedError):
        first.release()
    until_true(lambda: "overlap_over" in kinds(reports))
    is_seen.set()
    other.join()
    assert shadow.flush()
    assert sorted(kinds(reports)) == ["expired", "late_release", "overlap", "overlap_over", "retaken"]
    by_kind = {report.kind: report for report in reports}
    overlap = by_kind["overlap"]
    assert overlap.other is not None
    assert (overlap.name, overlap.ours.owner, overlap.ours.client) == ("shared", "the other one", "worker")
    assert overlap.other.owner.startswith("MainThread")
    assert (overlap.other.pid, overlap.other.timeout, overlap.ours.timeout) == (os.getpid(), 0.1, 30)
    assert overlap.other.fence > 0
    assert overlap.ours.since > overlap.other.since
    assert (by_kind["overlap_over"].id, by_kind["overlap_over"].seconds >= overlap.seconds) == (overlap.id, True)
    retaken = by_kind["retaken"]
    assert retaken.other is not None
    assert (retaken.ours.owner, retaken.other.owner.startswith("the other one")) == ("MainThread", True)
    assert shadow.summary().worst_overlap_s == by_kind["overlap_over"].seconds
    assert shadow.summary().names[0].name == "shared"


def test_what_is_held_too_long_is_reported_while_it_is_held(shadow: Shadow, reports: list[Report]) -> None:
    """Also if nobody else wants it; and its release, which comes too late, once more."""
    lock = shadow.lock("long", timeout=0.1)
    lock.acquire()
    until_true(lambda: kinds(reports) == ["expired"])
    assert reports[0].seconds >= 0.1
    with pytest.raises(LockNotOwnedError):
        lock.release()
    assert shadow.flush()
    assert kinds(reports) == ["expired", "late_release"]
    assert 0 < reports[1].seconds < reports[0].seconds + 10


def test_what_redis_loses_is_reported(shadow: Shadow, server: redis.Redis, reports: list[Report]) -> None:
    """A key that is gone before its time was evicted, deleted, or lost in a failover."""
    lock = shadow.lock("evicted", timeout=60)
    lock.acquire()
    server.delete("evicted")
    with pytest.raises(LockNotOwnedError):
        lock.release()
    assert shadow.flush()
    assert kinds(reports) == ["lost"]


def test_two_holders_after_a_loss_are_an_overlap(
    shadow: Shadow, server: redis.Redis, reports: list[Report]
) -> None:
    """No timeout has run out, and two have it all the same: as after a failover."""
    first, second = shadow.lock("failover", timeout=60), shadow.lock("failover", timeout=60)
    first.acquire()
    server.delete("failover")
    second.acquire()
    until_true(lambda: kinds(reports) == ["overlap"])
    assert reports[0].detail.startswith("the timeout of the other had not run out")
    second.release()
    with pytest.raises(LockNotOwnedError):
        first.release()


def test_a_lock_taken_again_after_a_gap_is_reported(shadow: Shadow, reports: list[Report]) -> None:
    """Nobody told the holder that it had lost it in between."""
    lock = shadow.lock("gap", timeout=0.3)
    lock.acquire()
    until_expired(lock)
    lock.acquire()
    lock.extend(20)
    lock.release()
    assert shadow.flush()
    assert set(kinds(reports)) - {"expired"} == {"retaken"}


def test_a_lock_that_is_thrown_away_is_forgotten(shadow: Shadow, reports: list[Report]) -> None:
    """Its timeout was to end it: whoever has it next overlaps with nobody."""
    shadow.lock("thrown-away", timeout=0.1).acquire()
    with shadow.lock("thrown-away", timeout=10, sleep=0.01):
        assert shadow.flush()
    assert shadow.flush()
    assert reports == []


def test_processes_that_overlap_are_reported(tmp_path: Path, redis_at: RedisServer) -> None:
    """A timeout of 0.3 s and work that takes longer, in two processes: the file names both."""
    file = tmp_path / "shadow.jsonl"

    def work(who: str, url: str) -> "subprocess.Popen[str]":
        words = [str(redis_at.port), url, str(file), who, "crossed", "0.3"]
        command = [sys.executable, "-W", "error", "-m", "tests.unit.compat.working", *words]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)

    with serving(tmp_path) as served:
        first, second = work("first", served.url), work("second", served.url)
        for each in (first, second):
            assert heard(each) == "ready"
        for each in (first, second):
            tell(each)
            assert heard(each) == "locked"
        until_true(lambda: file.exists() and b'"overlap"' in file.read_bytes())
        for each in (first, second):
            tell(each)
        assert [(ended(each).code, each.returncode) for each in (first, second)] == [(0, 0)] * 2
    found = [msgspec.json.decode(line, type=Report) for line in file.read_bytes().splitlines()]
    overlap = next(report for report in found if report.kind == "overlap")
    assert overlap.other is not None
    assert {overlap.ours.client, overlap.other.client} == {"first", "second"}
    assert {overlap.ours.pid, overlap.other.pid} == {first.pid, second.pid}
    assert {"expired", "late_release", "overlap_over"} <= set(kinds(found))
    said = subprocess.run(
        [sys.executable, "-m", "fencehold.compat.shadow", file], capture_output=True, text=True, check=False
    )
    assert (said.returncode, said.stderr) == (1, "")
    assert "crossed" in said.stdout


# How it is made.


def test_a_shadow_records_where_a_client_does(server: redis.Redis) -> None:
    """A client says where; the shadow has a session of its own."""
    with fencehold.connect(MEMORY, name="mine") as client, Shadow(server, client) as shadow:
        with shadow.lock("where", timeout=5):
            assert shadow.flush()
            assert client.explain("where").holders[0].meta["timeout"] == 5
        assert shadow.flush()
        assert not client.explain("where").holders


@pytest.mark.parametrize("where", [7, None, "ftp://x"])
def test_a_shadow_that_cannot_be_is_refused(where: Any, server: redis.Redis) -> None:
    """Before anything is locked."""
    with pytest.raises(UsageError):
        Shadow(server, where)
