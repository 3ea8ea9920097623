"""What there is to see, in words: who a client is, since when something is held, and what is not known."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fencehold.locks.views import WHOLE, Holder, Missing, event, explanation, gap, party, time_of

SDK = {"client": "billing", "host": "h1", "pid": 7}
CLI = {"client": "fencehold run", "user": "alice", "host": "h1", "pid": 7}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (SDK, "billing on h1 (pid 7), task-1"),
        (CLI, "alice@h1 (fencehold run, pid 7), task-1"),
        ({"client": "fencehold acquire", "user": "alice", "host": "h1"}, "alice@h1 (fencehold acquire), task-1"),
        ({"user": "alice"}, "alice, task-1"),
        ({"client": "redis client", "peer": "10.0.0.1:5000"}, "redis client from 10.0.0.1:5000, task-1"),
        ("worker 9", "worker 9, task-1"),
        ({}, "session 3, task-1"),
        (7, "session 3, task-1"),
        ("", "session 3, task-1"),
        ({"client": "a", "pid": "x", "host": ["h"]}, "a on ['h'], task-1"),
    ],
)
def test_a_client_is_told_by_what_it_said_of_itself(said: Any, words: str) -> None:
    """By name, user and place before anything else; whatever it said is no trouble."""
    assert str(party(3, "task-1", said)) == words


HOLD: dict[bytes, Any] = {
    b"session": 3,
    b"owner": b"t",
    b"fence": 9,
    b"mode": b"X",
    b"limit": 0,
    b"held_ms": 2_000,
    b"left_ms": -1,
    b"meta": b"",
    b"session_meta": b'{"client":"billing"}',
}


def holder(**more: Any) -> Holder:
    hold = HOLD | {key.encode(): value for key, value in more.items()}
    return explanation({b"name": b"a", b"holds": [hold], b"waiters": [], b"delayed_ms": 0}).holders[0]


def test_since_is_told_with_the_time_the_service_was_away() -> None:
    """The age is by the time of day; what the service has counted stays what it is."""
    seen = holder(since_unix_ms=1_767_268_800_000, age_ms=3_602_000)
    assert seen.since == datetime(2026, 1, 1, 12, tzinfo=UTC)
    assert (seen.held_for, seen.age) == (2.0, 3_602.0)


def test_what_is_not_known_is_not_made_up() -> None:
    """A grant from before the service kept the time of day, or a service that does not."""
    for seen in (holder(since_unix_ms=None, age_ms=2_000), holder()):
        assert (seen.since, seen.age) == (None, 2.0)
    told = explanation({b"name": b"a", b"holds": [HOLD], b"waiters": [], b"delayed_ms": 0})
    assert str(told) == "'a' is held by billing, t for 2.0 s with fence 9; no waiters"


def test_old_holds_are_told_with_their_date() -> None:
    """An hour of the day alone would not say which day."""
    since = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for age, form in ((timedelta(hours=23), "%H:%M:%S"), (timedelta(days=2), "%Y-%m-%d %H:%M:%S")):
        age_ms = int(age.total_seconds() * 1000)
        hold = HOLD | {b"since_unix_ms": 1_767_268_800_000, b"age_ms": age_ms}
        told = explanation({b"name": b"a", b"holds": [hold], b"waiters": [], b"delayed_ms": 0})
        assert f"(since {since.astimezone():{form}})" in str(told)


@pytest.mark.parametrize("unix_ms", [10**18, -(10**18), None])
def test_a_clock_out_of_all_bounds_is_no_trouble(unix_ms: int | None) -> None:
    """A time of day that no calendar has is not known."""
    assert time_of(unix_ms) is None


def test_an_older_server_tells_less() -> None:
    """Its events have no names and no time of day; a gap has nobody."""
    told = event({b"kind": b"acquired", b"position": 4, b"at": 7, b"session": 3, b"owner": b"t", b"names": [b"a"]})
    assert (str(told.party), told.time, told.by) == ("session 3, t", None, None)
    assert event({b"kind": b"gap", b"position": 4}).party is None


def test_a_gap_stands_for_what_was_dropped() -> None:
    """From the first of the events on, or what that had missed itself, to the last."""
    told = [event({b"kind": b"acquired", b"position": 4 + at, b"index": 3}) for at in range(3)]
    missed = gap(told, "fell behind")
    assert (missed.missing, missed.place) == (Missing(4, 6, 2), (6, WHOLE))
    again = gap([missed, event({b"kind": b"released", b"position": 9, b"index": 1})], "fell behind")
    assert again.missing == Missing(4, 9, 2)
    pushed = {b"kind": b"gap", b"position": 9, b"index": 0, b"from": 5, b"from_index": 1, b"to": 9}
    assert event(pushed).missing == Missing(5, 9, 1)
