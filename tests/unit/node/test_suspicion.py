"""Suspicion: when a standby takes the leader for gone, and when it does not."""

import pytest

from fencehold.node.suspicion import Patience, Suspicion

PATIENCE = Patience(leader_timeout_s=1.0, stuck_factor=3, confirm_s=0.5, stagger_s=0.25, asleep_s=0.5)


def heard(now: float = 0.0, rank: int = 0) -> Suspicion:
    """A standby whose leader has answered on the line."""
    suspicion = Suspicion(PATIENCE, now)
    suspicion.on_heard(now, rank)
    return suspicion


def test_a_leader_that_says_goodbye_is_replaced_at_once() -> None:
    """A clean stop costs no waiting, and entries still on their way change nothing about it."""
    suspicion = heard()
    suspicion.on_goodbye(5.0)
    suspicion.on_entry(5.1)
    assert suspicion.due_at() == 5.0


def test_a_broken_line_counts_at_once_if_it_was_had_before() -> None:
    """A leader that took the line and takes it no more is gone."""
    suspicion = heard()
    suspicion.on_broken(0.3)
    assert suspicion.due_at() == 0.3


def test_a_line_that_was_never_had_counts_only_with_a_silent_journal() -> None:
    """A wrong address must not bring down a leader that writes."""
    suspicion = Suspicion(PATIENCE, 0.0, rank=0)
    suspicion.on_broken(0.1)
    assert suspicion.due_at() == 0.5
    suspicion.on_entry(0.2)
    suspicion.on_broken(0.3)
    assert suspicion.due_at() == pytest.approx(0.7)


def test_an_entry_outweighs_a_broken_line() -> None:
    """Who writes lives, whatever became of the line."""
    suspicion = heard()
    suspicion.on_broken(0.3)
    suspicion.on_entry(0.4)
    assert suspicion.due_at() == 1.4


def test_silence_on_both_ways_counts_after_the_leader_timeout() -> None:
    """Neither an entry nor an answer: after the timeout, counted from the later of the two."""
    suspicion = heard()
    suspicion.on_entry(2.0)
    suspicion.on_heard(2.5, 0)
    assert suspicion.due_at() == 3.5


def test_a_leader_that_answers_but_writes_nothing_gets_longer_but_not_for_ever() -> None:
    """It may be the engine that is slow; but a leader that cannot write is none."""
    suspicion = heard()
    suspicion.on_entry(1.0)
    for tenths in range(10, 60):
        suspicion.on_heard(tenths / 10, 0)
    assert suspicion.due_at() == 4.0


@pytest.mark.parametrize("rank", [0, 1, 2, 5])
def test_standbys_take_turns_by_rank(rank: int) -> None:
    """The first goes at once, each of the others a little later."""
    suspicion = heard(rank=rank)
    suspicion.on_goodbye(1.0)
    assert suspicion.due_at() == 1.0 + rank * 0.25


def test_another_leader_starts_with_a_clean_sheet() -> None:
    """What was held against the last one is not held against the next."""
    suspicion = heard()
    suspicion.on_goodbye(1.0)
    suspicion.on_broken(1.0)
    suspicion.start_over(2.0)
    assert suspicion.due_at() == 3.0


def test_who_was_asleep_itself_knows() -> None:
    """A look that comes far too late says more of this node than of the leader."""
    suspicion = heard()
    due_at = suspicion.due_at()
    assert not suspicion.was_asleep(due_at, due_at + 0.4)
    assert suspicion.was_asleep(due_at, due_at + 10)


def test_who_has_taken_an_epoch_gets_its_time_to_write() -> None:
    """Whatever is seen of the leader before it says nothing of the one that takes over."""
    suspicion = Suspicion(PATIENCE, 10.0, rank=0, vain_epochs=1)
    suspicion.on_broken(10.0)
    suspicion.on_goodbye(10.0)
    assert suspicion.awaits_taker
    assert suspicion.due_at() == 11.0


def test_after_epochs_taken_in_vain_the_next_one_gets_longer_but_not_for_ever() -> None:
    """Where taking over takes longer than the leader timeout, somebody comes to write all the same."""
    waits = [Suspicion(PATIENCE, 0.0, rank=0, vain_epochs=vain).due_at() for vain in range(1, 7)]
    assert waits == [1.0, 2.0, 4.0, 4.0, 4.0, 4.0]


def test_who_wrote_under_its_epoch_is_a_leader_like_any_other() -> None:
    """From its first entry on the usual reasons count."""
    suspicion = Suspicion(PATIENCE, 0.0, rank=0, vain_epochs=3)
    suspicion.start_over(2.0)
    assert not suspicion.awaits_taker
    assert suspicion.due_at() == 3.0
    suspicion.on_goodbye(2.5)
    assert suspicion.due_at() == 2.5


def test_who_was_asleep_itself_still_waits_for_the_one_that_takes_over() -> None:
    """It missed the time that the other had, so it gives it anew."""
    suspicion = Suspicion(PATIENCE, 0.0, rank=0, vain_epochs=2)
    suspicion.count_anew(100.0)
    assert suspicion.due_at() == 102.0


def test_clients_are_sent_to_a_leader_that_was_just_heard_of() -> None:
    """By an entry, or by an answer: one that waits for its journal answers still, and is the one to ask."""
    suspicion = heard()
    suspicion.on_entry(1.0)
    assert suspicion.vouches(1.4)
    assert not suspicion.vouches(1.5)
    suspicion.on_heard(1.8, 0)
    assert suspicion.vouches(2.2)


def test_nobody_is_sent_to_a_leader_that_has_gone_or_is_to_come() -> None:
    """It said goodbye, or another takes over, and who that is will be known when it has written."""
    suspicion = heard(1.0)
    suspicion.on_goodbye(1.1)
    assert not suspicion.vouches(1.2)
    assert not Suspicion(PATIENCE, 1.0, vain_epochs=1).vouches(1.1)
