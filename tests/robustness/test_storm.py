"""The parts of a storm that need no servers: gaps between grants, what is recorded, what is wrong with a fault."""

import threading
import time

from tests.robustness.grants import Gap, Grants, distribution
from tests.robustness.history import Loss
from tests.robustness.recorder import Recorder
from tests.robustness.storm import Fault, figures, wrong_with

WAIT_S = 30.0


def fault(what: str = "kill the leader", seconds: float = 1.0, excess_s: float = 1.0, *losses: Loss) -> Fault:
    return Fault(what, 10.0, 12.0, Gap(10.0, 10.0 + seconds), excess_s, 0.0, 0, losses)


def test_the_longest_gap_is_found() -> None:
    """Between two instants, the longest time without a grant; also before the first and after the last."""
    grants = Grants([1.0, 2.0, 5.0])
    assert grants.longest_gap(0.5, 5.5) == Gap(2.0, 5.0)
    assert grants.longest_gap(2.5, 9.0) == Gap(5.0, 9.0)
    assert grants.longest_gap(6.0, 6.0) == Gap(6.0, 6.0)


def test_gaps_over_a_bar_are_told_in_order() -> None:
    """Each with its ends; grants that are added later are seen."""
    grants = Grants([1.0, 4.0])
    grants.add(4.5)
    grants.add(8.0)
    assert grants.gaps(1.0, 8.0, over_s=2.0) == [Gap(1.0, 4.0), Gap(4.5, 8.0)]
    assert grants.since(4.0) == [4.5, 8.0]
    assert len(grants) == 4


def test_a_distribution_has_every_gap_once() -> None:
    """A gap is counted by the longest edge that it passes."""
    counts = distribution([0.1, 0.5, 0.6, 2.5, 17.7])
    assert {length: count for length, count in counts.items() if count} == {
        "up to 0.5 s": 2,
        "over 0.5 s": 1,
        "over 2 s": 1,
        "over 10 s": 1,
    }


def test_a_gap_over_the_bar_and_every_loss_is_wrong() -> None:
    """What an outage costs by itself is not; a session that was lost is, however short the gap."""
    assert wrong_with(fault(seconds=9.0, excess_s=4.0), 5.0) == []
    assert wrong_with(fault(seconds=9.0, excess_s=9.0), 5.0) == ["kill the leader: nothing was granted for 9.0 s"]
    lost = Loss(11.0, "c0", "session 4, and has 7 now")
    assert wrong_with(fault("pause a standby", 1.0, 1.0, lost), 5.0) == ["c0 lost session 4, and has 7 now"]


def test_figures_are_told_by_the_kind_of_fault() -> None:
    """How often, the median gap and the longest."""
    faults = [fault(seconds=1.0), fault("kill a member", 0.5), fault(seconds=2.0), fault(seconds=9.0)]
    assert figures(faults) == {"kill a member": (1, 0.5, 0.5), "kill the leader": (3, 2.0, 9.0)}


def test_what_changes_is_recorded_and_what_hangs_keeps_nobody_waiting() -> None:
    """A source is written down when it says another thing; what was so before a time is told with it."""
    hanging, said = threading.Event(), ["standby", "standby", "leader"]
    asked = threading.Event()

    def hang() -> str:
        hanging.wait(WAIT_S)
        return "awake"

    def tell() -> str:
        if len(said) > 1:
            return said.pop(0)
        asked.set()
        return said[0]

    with Recorder({"node a": tell, "node b": hang}, every_s=0.001) as recorder:
        assert asked.wait(WAIT_S)
        hanging.set()
        now = time.monotonic()
        recorder.note("storm", "mended")
        told = [(line.who, line.what) for line in recorder.between(0.0, now + WAIT_S) if line.who != "machine"]
    assert told[:2] == [("node a", "standby"), ("node a", "leader")]
    assert ("storm", "mended") in told
    before = [line.what for line in recorder.between(now, now) if line.who == "node a"]
    assert before == ["leader"]


def test_a_machine_that_lets_nobody_run_is_told_apart() -> None:
    """Only what touches a time counts for it, by its beginning or its end."""
    recorder = Recorder({})
    recorder._lates.extend([(10.0, 2.0), (30.0, 0.4)])
    assert recorder.late_s(9.0, 12.0) == 2.0
    assert recorder.late_s(5.0, 8.5) == 2.0
    assert recorder.late_s(11.0, 20.0) == 0.0
    assert recorder.late_s(29.0, 29.8) == 0.4
