"""What counts as unfair among waiters that each ask again after their turn."""

from bench.hot import _unfair

WAITERS, TURNS = 20, 5
FAIR = list(range(WAITERS)) * TURNS


def test_turns_in_order_are_fair() -> None:
    """Whatever the order they began in."""
    assert _unfair(FAIR, WAITERS, TURNS) == 0
    assert _unfair(FAIR[::-1], WAITERS, TURNS) == 0


def test_two_that_ask_at_the_same_moment_may_change_places() -> None:
    """Also the last and the first of a round."""
    for place in (25, 2 * WAITERS - 1):
        swapped = FAIR.copy()
        swapped[place], swapped[place + 1] = swapped[place + 1], swapped[place]
        assert _unfair(swapped, WAITERS, TURNS) == 0


def test_who_overtakes_several_or_waits_for_several_more_is_counted() -> None:
    """Once for each turn that came too early or too late."""
    jumped = FAIR.copy()
    jumped.insert(WAITERS + 2, jumped.pop(WAITERS + 9))
    # Too early, and then its next turn is too late.
    assert _unfair(jumped, WAITERS, TURNS) == 2
    late = FAIR.copy()
    late.insert(WAITERS + 9, late.pop(WAITERS + 2))
    assert _unfair(late, WAITERS, TURNS) == 2


def test_a_turn_that_never_came_is_counted() -> None:
    """A waiter that starved misses all of them."""
    starved = [waiter for waiter in FAIR if waiter != 7]
    assert _unfair(starved, WAITERS, TURNS) >= TURNS
    assert _unfair(FAIR[:-1], WAITERS, TURNS) == 1
