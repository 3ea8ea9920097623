"""Shadows: what Fencehold does, or does not do, never reaches the application."""

import os
import threading
import time
from pathlib import Path

import msgspec
import pytest
import redis
import redis.asyncio
from redis.exceptions import LockError, LockNotOwnedError

from fencehold.compat.redis import Report, Shadow, recorder
from rig.processes import free_port
from tests.e2e.served import serving
from tests.forks import in_a_child
from tests.unit.client.service import until_true
from tests.unit.compat.test_redis_shadow import MEMORY, NOTHING


def test_a_service_that_is_away_costs_nothing(server: redis.Redis, caplog: pytest.LogCaptureFixture) -> None:
    """Locks go on at their usual pace; that nothing was recorded is counted, and logged once."""
    with Shadow(server, f"fencehold://127.0.0.1:{free_port()}") as shadow:
        began_at = time.monotonic()
        for _ in range(20):
            with shadow.lock("away", timeout=5):
                pass
        assert time.monotonic() - began_at < 5
        until_true(lambda: shadow.summary().failures == 20)
        assert (shadow.summary().recorded, shadow.summary().findings) == (0, NOTHING)
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


def test_a_service_that_hangs_costs_nothing(tmp_path: Path, server: redis.Redis) -> None:
    """A server that takes connections and answers nothing does not hold up a lock, nor the end of the shadow."""
    with serving(tmp_path) as served:
        shadow = Shadow(server, served.url)
        with shadow.lock("hanging", timeout=5):
            assert shadow.flush()
        served.pause()
        began_at = time.monotonic()
        for _ in range(20):
            with shadow.lock("hanging", timeout=5):
                pass
        assert time.monotonic() - began_at < 5
        shadow.close(timeout=0.2)
        assert time.monotonic() - began_at < 5
        served.go_on()
        assert shadow.summary().findings == NOTHING
        until_true(lambda: not _threads())


def test_a_sink_that_fails_is_counted(server: redis.Redis) -> None:
    """Whatever an application does with reports, its locks go on."""

    def fail(report: Report) -> None:
        raise ZeroDivisionError

    with Shadow(server, MEMORY, fail) as shadow:
        lock = shadow.lock("failing", timeout=0.05)
        lock.acquire()
        until_true(lambda: shadow.summary().failures == 1)
        assert shadow.summary().findings["expired"] == 1


def test_more_than_is_bearable_is_not_recorded(server: redis.Redis, reports: list[Report]) -> None:
    """What the shadow costs is bounded; what it has not seen it says."""
    with Shadow(server, MEMORY, reports.append, per_second=5) as shadow:
        for _ in range(20):
            with shadow.lock("much", timeout=5):
                pass
        assert shadow.flush()
        summary = shadow.summary()
        assert (summary.recorded + summary.dropped, summary.dropped >= 10) == (20, True)
        assert reports == []


def test_too_many_at_once_are_not_recorded(shadow: Shadow, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a bound on what waits to be recorded, too."""
    monkeypatch.setattr(recorder, "RECORDS_MAX", 2)
    locks = [shadow.lock(f"many-{number}", timeout=5) for number in range(4)]
    for lock in locks:
        lock.acquire()
    for lock in locks:
        lock.release()
    assert shadow.summary().dropped >= 2


def test_a_closed_shadow_follows_nothing(server: redis.Redis) -> None:
    """Its locks are redis-py's still."""
    before = _threads()
    with Shadow(server, MEMORY) as shadow:
        lock = shadow.lock("after", timeout=5)
        lock.acquire()
    assert _threads() <= before
    lock.release()
    with shadow.lock("after", timeout=5):
        pass
    with pytest.raises(LockError):
        lock.release()
    assert _threads() <= before


def _threads() -> set[threading.Thread]:
    """Those of shadows and clients. One that was closed while its service hung ends when that is over."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("fencehold")}


def test_a_forked_child_has_a_shadow_of_its_own(tmp_path: Path, server: redis.Redis) -> None:
    """The thread is not in the child: another one is started, with the child's own counts."""
    file = tmp_path / "forked.jsonl"
    with serving(tmp_path) as served, Shadow(server, served.url, file, name="forked") as shadow:
        with shadow.lock("parent", timeout=5):
            assert shadow.flush()

            def child() -> None:
                lock = shadow.lock("child", timeout=0.05)
                lock.acquire()
                until_true(lambda: shadow.summary().findings["expired"] == 1)
                with pytest.raises(LockNotOwnedError):
                    lock.release()
                shadow.close()

            assert in_a_child(child) == 0
        assert shadow.flush()
        assert shadow.summary().findings == NOTHING
    found = [msgspec.json.decode(line, type=Report) for line in file.read_bytes().splitlines()]
    assert {report.name for report in found} == {"child"}
    assert os.getpid() not in {report.ours.pid for report in found}
