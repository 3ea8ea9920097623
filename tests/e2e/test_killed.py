"""Real ends of a real server: asked to stop it answers first, and killed it has lost nothing it acknowledged."""

import signal
import time
from pathlib import Path

import pytest

from tests.e2e.driver import Wire, Worker
from tests.e2e.served import PATIENCE_S, Served, serving


def port_of(served: Served) -> int:
    return int(served.url.rpartition(":")[2])


@pytest.mark.guarantee("G3")
def test_told_to_stop_it_answers_first(tmp_path: Path) -> None:
    """Everything sent before SIGTERM that the server has taken is answered, in order; then it exits with 0."""
    with serving(tmp_path, "--data", str(tmp_path / "data")) as served:
        wire = Wire(port_of(served))
        opened = wire.call("SESSION.OPEN", "TTL", 60_000, "GRACE", 60_000)
        for number in range(2_000):
            wire.send("LOCK.ACQUIRE", f"n{number}", "WAIT", 0)
        fences = [wire.reply()["fence"]]
        served.process.send_signal(signal.SIGTERM)
        # What came after the stop is not taken: it is refused, or the connection ends before it.
        with pytest.raises(Exception, match=r"^UNAVAILABLE|closed"):
            fences.extend(reply["fence"] for reply in iter(wire.reply, None))
        assert fences == list(range(1, len(fences) + 1))
        assert served.process.wait(PATIENCE_S) == 0
        wire.close()
    with serving(tmp_path, "--data", str(tmp_path / "data")) as served:
        wire = Wire(port_of(served))
        wire.call("SESSION.RESUME", opened["session"], opened["secret"])
        for number, fence in enumerate(fences):
            assert wire.call("LOCK.RELEASE", f"n{number}", fence) == "OK"
        assert wire.call("LOCK.LIST")[1] == []
        wire.close()


def test_told_to_stop_it_does_not_wait_for_who_waits(tmp_path: Path) -> None:
    """Clients that block or are idle, and one that never reads, do not keep a server from ending."""
    with serving(tmp_path, "--data", str(tmp_path / "data")) as served:
        holder, plain, idle = (Wire(port_of(served)) for _ in range(3))
        holder.call("SESSION.OPEN", "TTL", 60_000)
        holder.call("LOCK.ACQUIRE", "a")
        plain.send("LOCK.ACQUIRE", "a")
        while not holder.call("LOCK.INFO", "a")["waiters"]:
            pass
        started = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(PATIENCE_S) == 0
        assert time.monotonic() - started < 5
        with pytest.raises(Exception, match=r"NOSESSION|closed"):
            plain.reply()
        for wire in (holder, plain, idle):
            wire.close()


@pytest.mark.slow
@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G3")
def test_killed_twenty_times_it_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """After each kill under load all acknowledged grants are held, all releases done, and no fence comes twice."""
    workers = [Worker(number) for number in range(4)]
    kills, grants = 20, 0
    for kill in range(kills + 1):
        with serving(tmp_path, "--data", str(tmp_path / "data")) as served:
            _check(port_of(served), workers)
            if kill == kills:
                break
            for worker in workers:
                worker.begin(port_of(served))
            before = sum(len(worker.known.fences) for worker in workers)
            give_up_at = time.monotonic() + PATIENCE_S
            while sum(len(worker.known.fences) for worker in workers) < before + 40 + 13 * kill:
                assert time.monotonic() < give_up_at, "no load, no test"
                time.sleep(0.002)
            served.process.kill()
            for worker in workers:
                worker.end()
            assert served.process.wait(PATIENCE_S) == -signal.SIGKILL
        grants = sum(len(worker.known.fences) for worker in workers)
    assert grants > 40 * kills
    fences = [fence for worker in workers for fence in worker.known.fences]
    assert len(set(fences)) == len(fences)
    for worker in workers:
        assert worker.known.fences == sorted(worker.known.fences)


def _check(port: int, workers: list[Worker]) -> None:
    """Compare what the workers were told with what the server has."""
    wire = Wire(port)
    for worker in workers:
        known = worker.known
        for name, fence in known.held.items():
            if name != known.asked:
                [hold] = wire.call("LOCK.INFO", name)["holds"]
                assert (hold["session"], hold["fence"]) == (worker.session, fence)
        for name in known.free:
            if name != known.asked:
                assert wire.call("LOCK.INFO", name)["holds"] == []
    wire.close()
