"""Standing: what proves that a session is kept, and for how long."""

import pytest

from fencehold.backends.zookeeper.session import SessionTrust
from fencehold.locks.trust import NEVER, margin

T = 8.0
LESS = margin(T)


@pytest.fixture
def standing() -> SessionTrust:
    """Of a session that was asked for at 100."""
    made = SessionTrust()
    assert made.end == NEVER
    made.on_begun(100.0, T)
    return made


def test_a_session_is_trusted_from_when_it_was_asked_for(standing: SessionTrust) -> None:
    """Less a margin."""
    assert standing.end == 100 + T - LESS


def test_answered_reads_prove_nothing(standing: SessionTrust) -> None:
    """A member that is cut off answers them, too."""
    for at in range(101, 201):
        standing.on_answer(at, at + 0.1, is_write=False)
    assert standing.end == 100 + T - LESS
    assert len(standing._touches) <= T + 1


def test_a_write_proves_what_was_told_before_it_was_sent(standing: SessionTrust) -> None:
    """Not itself: the member may be cut off before it tells of it."""
    standing.on_answer(101, 101.1, is_write=False)
    standing.on_answer(102, 102.1, is_write=False)
    standing.on_answer(103.5, 103.6, is_write=True)
    assert standing.end == 101 + T - LESS
    standing.on_answer(104.2, 104.3, is_write=True)
    assert standing.end == 102 + T - LESS


def test_what_was_sent_last_counts_when_several_are_proved(standing: SessionTrust) -> None:
    """In whatever order they were answered."""
    for at in (101, 102, 103):
        standing.on_answer(at, at + 0.1, is_write=True)
    standing.on_answer(110, 110.1, is_write=True)
    assert standing.end == 103 + T - LESS


def test_a_lost_connection_takes_with_it_what_was_not_proved(standing: SessionTrust) -> None:
    """A write by another member says nothing about what the first one told."""
    standing.on_answer(101, 101.1, is_write=False)
    standing.on_disconnected()
    standing.on_answer(104, 104.1, is_write=True)
    assert standing.end == 100 + T - LESS


def test_a_session_that_was_resumed_is_proved_by_the_next_write(standing: SessionTrust) -> None:
    """The leader itself heard of it, if it was the leader still: which the write proves."""
    standing.on_disconnected()
    standing.on_resumed(104, 104.5, T)
    assert standing.end == 100 + T - LESS
    standing.on_answer(104.6, 104.7, is_write=True)
    assert standing.end == 104 + T - LESS


def test_a_shorter_timeout_counts_at_once(standing: SessionTrust) -> None:
    """The member that took the session over may be set up in another way."""
    standing.on_disconnected()
    standing.on_resumed(101, 101.5, 2.0)
    assert standing.end == 101 + 2.0 - margin(2.0)


@pytest.mark.parametrize("step", [T / 8, T / 1000])
def test_a_session_keeps_nearly_half_of_its_timeout_in_trust(standing: SessionTrust, step: float) -> None:
    """Whether it is only kept alive, by eight writes a timeout, or busy; and it remembers only so much."""
    now = 100.0
    while now < 100 + 3 * T:
        standing.on_answer(now, now + 0.01, is_write=True)
        now += step
        assert standing.end - now > T * 0.45
    assert len(standing._touches) <= 9
