"""Real ends of a real server: asked to stop it answers first, and killed it has lost nothing it acknowledged."""

import signal
from pathlib import Path

import pytest

from tests.depth import deep
from tests.e2e.driver import Wire
from tests.e2e.kills import kill_and_check, port_of
from tests.e2e.served import PATIENCE_S, serving
from tests.stopwatch import Stopwatch

KILLS = deep(8, 20)


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
        watch = Stopwatch()
        served.process.send_signal(signal.SIGTERM)
        assert served.process.wait(PATIENCE_S) == 0
        assert watch.passed_s < 5
        with pytest.raises(Exception, match=r"NOSESSION|closed"):
            plain.reply()
        for wire in (holder, plain, idle):
            wire.close()


@pytest.mark.slow
@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G3")
def test_killed_again_and_again_it_loses_nothing_acknowledged(tmp_path: Path) -> None:
    """After each kill under load all acknowledged grants are held, all releases done, and no fence comes twice."""
    assert kill_and_check(tmp_path, kills=KILLS).grants > 40 * KILLS
