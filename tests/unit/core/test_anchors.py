"""Anchors: the time of day of what is alive, also across changes of leaders and clocks that are set."""

import pytest

from fencehold.core import anchors
from fencehold.core.anchors import granted_unix_ms, opened_unix_ms, queued_unix_ms, unix_ms_now, will_drift
from fencehold.core.commands import Acquire, AcquireAtLeast, CloseSession, Entry, OpenSession
from fencehold.core.machine import Machine

NOON = 1_767_268_800_000
HOUR = 3_600_000


def feed(machine: Machine, *commands: object, elapsed_ms: int = 0, unix_ms: int = 0) -> None:
    machine.apply(machine.position + 1, Entry(elapsed_ms, commands, unix_ms))  # type: ignore[arg-type]


def since(machine: Machine) -> dict[str, int | None]:
    """When each name was granted."""
    return {name: granted_unix_ms(machine.state, hold) for name, hold in machine.state.held.items()}


def test_since_goes_on_through_the_time_nobody_led() -> None:
    """What was granted before a stop of three hours keeps its time of day, and so does what is granted after."""
    machine = Machine()
    feed(machine, OpenSession(30_000), Acquire(1, ("a",)), unix_ms=NOON)
    feed(machine, Acquire(1, ("b",)), elapsed_ms=500)
    restored = Machine.restore(b"".join(machine.snapshot()))
    feed(restored, Acquire(1, ("c",)), elapsed_ms=1, unix_ms=NOON + 3 * HOUR)
    feed(restored, Acquire(1, ("d",)), elapsed_ms=10)
    later = NOON + 3 * HOUR
    assert since(restored) == {"a": NOON, "b": NOON + 500, "c": later, "d": later + 10}
    assert unix_ms_now(restored.state) == later + 10
    assert opened_unix_ms(restored.state, restored.state.sessions[1]) == NOON


def test_leaders_that_follow_within_a_millisecond_are_told_apart() -> None:
    """No logical time passes between the last entry of one leader and the first of the next."""
    machine = Machine()
    feed(machine, OpenSession(30_000), Acquire(1, ("a",)), Acquire(1, ("a",)), unix_ms=NOON)
    feed(machine, OpenSession(30_000), Acquire(1, ("b",)), Acquire(1, ("b",)), unix_ms=NOON + HOUR)
    state = machine.state
    assert since(machine) == {"a": NOON, "b": NOON + HOUR}
    assert [opened_unix_ms(state, session) for session in state.sessions.values()] == [NOON, NOON + HOUR]
    assert [queued_unix_ms(state, waiter) for waiter in state.waiters.values()] == [NOON, NOON + HOUR]


def test_what_came_before_the_first_anchor_has_no_time_of_day() -> None:
    """A journal from before there were anchors: not known, rather than made up."""
    machine = Machine()
    feed(machine, OpenSession(30_000), Acquire(1, ("old",)))
    assert unix_ms_now(machine.state) is None
    feed(machine, Acquire(1, ("new",)), unix_ms=NOON)
    assert since(machine) == {"old": None, "new": NOON}
    assert opened_unix_ms(machine.state, machine.state.sessions[1]) is None


def test_a_clock_that_is_set_back_changes_nothing_that_was() -> None:
    """Each grant has the time of day that the leader had then."""
    machine = Machine()
    feed(machine, OpenSession(30_000), Acquire(1, ("a",)), unix_ms=NOON)
    feed(machine, Acquire(1, ("b",)), unix_ms=NOON - HOUR)
    feed(machine, Acquire(1, ("c",)), elapsed_ms=7)
    assert since(machine) == {"a": NOON, "b": NOON - HOUR, "c": NOON - HOUR + 7}


def test_drift_is_measured_by_the_newest_anchor() -> None:
    """Up to a second is left as it is, either way; with no anchor, everything is adrift."""
    machine = Machine()
    assert will_drift(machine.state, 0, NOON)
    feed(machine, elapsed_ms=100, unix_ms=NOON)
    assert not will_drift(machine.state, 0, NOON)
    assert not will_drift(machine.state, 1_500, NOON + 2_500)
    assert will_drift(machine.state, 1_500, NOON + 2_501)
    assert will_drift(machine.state, 1_500, NOON + 499)
    # Logical time goes on by no more than two seconds at once.
    assert will_drift(machine.state, 3_001, NOON + 3_001)


def test_anchors_follow_what_is_alive() -> None:
    """Those from before the oldest session are dropped; with nobody there, one is left."""
    machine = Machine()
    for hour in range(3):
        feed(machine, OpenSession(60_000), unix_ms=NOON + hour * HOUR)
    assert len(machine.state.anchors) == 3
    feed(machine, CloseSession(1))
    feed(machine, unix_ms=NOON + 3 * HOUR)
    assert len(machine.state.anchors) == 3
    opened = [opened_unix_ms(machine.state, session) for session in machine.state.sessions.values()]
    assert opened == [NOON + HOUR, NOON + 2 * HOUR]
    feed(machine, CloseSession(2), CloseSession(3))
    feed(machine, unix_ms=NOON + 4 * HOUR)
    assert [anchor.offset_ms for anchor in machine.state.anchors] == [NOON + 4 * HOUR]


def test_a_name_that_is_kept_keeps_its_time_of_day() -> None:
    """Its session is long gone, and the name still kept since then."""
    machine = Machine()
    feed(machine, OpenSession(60_000), AcquireAtLeast(1, ("a",), at_least_ms=50_000), unix_ms=NOON)
    feed(machine, CloseSession(1))
    for hour in range(1, 4):
        feed(machine, OpenSession(60_000), unix_ms=NOON + hour * HOUR)
        feed(machine, CloseSession(1 + hour))
    assert granted_unix_ms(machine.state, machine.state.kept["a"]) == NOON
    for _ in range(25):
        feed(machine, elapsed_ms=2_000)
    feed(machine, unix_ms=NOON)
    assert not machine.state.kept
    assert len(machine.state.anchors) == 1


def test_too_many_anchors_leave_the_oldest_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their number is bounded, whatever leaders and clocks do; who is older has no time of day any more."""
    monkeypatch.setattr(anchors, "ANCHORS_MAX", 4)
    machine = Machine()
    for hour in range(6):
        feed(machine, OpenSession(60_000), unix_ms=NOON + hour * HOUR)
    assert len(machine.state.anchors) == 4
    opened = [opened_unix_ms(machine.state, session) for session in machine.state.sessions.values()]
    assert opened == [None, None, *(NOON + hour * HOUR for hour in range(2, 6))]
