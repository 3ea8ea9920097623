"""The breaker: when it opens, how long it stays so, and that one at a time asks whether that is still right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencehold.client.circuit import Circuit, CircuitBreaker, Pace, Permit

PACE = Pace(failures_max=3, window_s=10, pause_s=1, pause_s_max=8, probe_s_max=5)


def breaker(draw: float = 0.0) -> CircuitBreaker:
    return CircuitBreaker(lambda: draw, PACE)


def permit(of: CircuitBreaker, now: float) -> Permit:
    given = of.ask(now)
    assert given is not None
    return given


def opened(of: CircuitBreaker, now: float = 0.0) -> CircuitBreaker:
    for _ in range(PACE.failures_max):
        of.on_unreached(permit(of, now), now)
    assert of.circuit is Circuit.OPEN
    return of


def test_it_opens_after_so_many_failures_one_after_the_other() -> None:
    """Two are not enough, the third is; and it says so once."""
    tried = breaker()
    assert [tried.on_unreached(permit(tried, now), now) for now in (0.0, 1.0, 2.0)] == [False, False, True]
    assert tried.circuit is Circuit.OPEN
    assert tried.ask(2.5) is None


def test_anything_heard_between_two_failures_ends_the_count() -> None:
    """A backend that answers now and then is there."""
    tried = breaker()
    for now in range(20):
        tried.on_unreached(permit(tried, now), now)
        tried.on_unreached(permit(tried, now), now)
        tried.on_reached(permit(tried, now))
    assert tried.circuit is Circuit.CLOSED


def test_failures_long_apart_do_not_add_up() -> None:
    """The count begins anew when the first of them is longer ago than the window."""
    tried = breaker()
    opens = [tried.on_unreached(permit(tried, now), now) for now in (0.0, 9.0, 11.0, 12.0, 13.0)]
    assert opens == [False, False, False, False, True]


def test_one_probes_when_the_pause_is_over() -> None:
    """Nobody before, one then, and nobody beside it."""
    tried = opened(breaker())
    assert tried.next_try_in(0.25) == 0.75
    assert tried.ask(0.99) is None
    assert permit(tried, 1.0).is_probe
    assert tried.circuit is Circuit.HALF_OPEN
    assert tried.ask(1.0) is None


def test_a_probe_that_is_answered_closes_it() -> None:
    """Everybody may ask again, and the next failure is the first one."""
    tried = opened(breaker())
    assert tried.on_reached(permit(tried, 1.0))
    assert tried.circuit is Circuit.CLOSED
    assert not tried.on_unreached(permit(tried, 1.0), 1.0)
    assert not permit(tried, 1.0).is_probe


def test_pauses_grow_up_to_a_bound() -> None:
    """Each failed probe doubles the pause; one success makes the next one short again."""
    tried, now, pauses = opened(breaker()), 0.0, []
    for _ in range(6):
        pauses.append(tried.next_try_in(now))
        now += pauses[-1]
        assert tried.on_unreached(permit(tried, now), now)
    assert pauses == [1, 2, 4, 8, 8, 8]
    now += tried.next_try_in(now)
    tried.on_reached(permit(tried, now))
    assert opened(tried, now).next_try_in(now) == 1


@pytest.mark.parametrize(("drawn", "pause"), [(0.0, 1.0), (0.5, 0.75), (1.0, 0.5)])
def test_pauses_are_drawn_by_lot(drawn: float, pause: float) -> None:
    """Clients that saw the same failure come back one by one."""
    assert opened(breaker(drawn)).next_try_in(0.0) == pause


def test_a_probe_that_was_given_up_leaves_its_place() -> None:
    """The next one who asks probes, at once."""
    tried = opened(breaker())
    tried.on_withdrawn(permit(tried, 1.0))
    assert permit(tried, 1.0).is_probe


def test_a_probe_that_never_ends_is_replaced() -> None:
    """And what it has to say, should it say something after all, counts no longer."""
    tried = opened(breaker())
    lost = permit(tried, 1.0)
    assert tried.ask(5.9) is None
    assert permit(tried, 6.0).is_probe
    assert not tried.on_reached(lost)
    assert tried.circuit is Circuit.HALF_OPEN


def test_what_began_before_it_opened_says_nothing_after() -> None:
    """Neither does a late failure make the pause longer, nor a late success end it."""
    tried = breaker()
    late = [permit(tried, 0.0) for _ in range(3)]
    opened(tried)
    assert not tried.on_unreached(late[0], 0.5)
    assert not tried.on_reached(late[1])
    tried.on_withdrawn(late[2])
    assert tried.next_try_in(0.0) == 1.0


def test_a_withdrawn_call_says_nothing() -> None:
    """It ends no count of failures, and is none."""
    tried = breaker()
    for now in (0.0, 1.0):
        tried.on_unreached(permit(tried, now), now)
        tried.on_withdrawn(permit(tried, now))
    assert tried.on_unreached(permit(tried, 2.0), 2.0)


STEPS = st.lists(
    st.tuples(
        st.floats(0, 3),
        st.sampled_from(["ask", "reached", "unreached", "withdrawn"]),
        st.integers(0, 5),
        st.floats(0, 1),
    ),
    max_size=60,
)


@given(STEPS)
def test_whatever_happens_it_is_asked_again_in_bounded_time_by_one(
    steps: list[tuple[float, str, int, float]],
) -> None:
    """It is never open for longer than the longest pause, and never are there two probes that count."""
    drawn = [0.0]
    tried, now = CircuitBreaker(lambda: drawn[0], PACE), 0.0
    open_permits: list[Permit] = []
    for elapsed, step, which, drawn[0] in steps:
        now += elapsed
        if step == "ask" or not open_permits:
            asked = tried.ask(now)
            if asked is None:
                assert tried.circuit is not Circuit.CLOSED
                continue
            open_permits.append(asked)
        else:
            ended = open_permits.pop(which % len(open_permits))
            if step == "unreached":
                tried.on_unreached(ended, now)
            elif step == "reached":
                tried.on_reached(ended)
            else:
                tried.on_withdrawn(ended)
        assert 0 <= tried.next_try_in(now) <= max(PACE.pause_s_max, PACE.probe_s_max)
        assert (tried.circuit is Circuit.CLOSED) <= (tried.next_try_in(now) == 0)
        probes = [each for each in open_permits if each.is_probe]
        assert len({each.term for each in probes}) == len(probes)
    now += max(PACE.pause_s_max, PACE.probe_s_max)
    assert tried.ask(now) is not None


@given(st.lists(st.booleans(), max_size=40))
def test_it_is_open_after_the_last_of_enough_failures_and_closed_before(outcomes: list[bool]) -> None:
    """While it is closed, it opens with the third failure in a row and with nothing else."""
    tried, in_a_row = breaker(), 0
    for was_reached in outcomes:
        given = permit(tried, 0.0)
        in_a_row = 0 if was_reached else in_a_row + 1
        if was_reached:
            tried.on_reached(given)
        else:
            tried.on_unreached(given, 0.0)
        assert (tried.circuit is Circuit.OPEN) == (in_a_row == PACE.failures_max)
        if in_a_row == PACE.failures_max:
            return
