"""That the search for deadlocks cannot be wrong unseen: bugs are planted in it, one at a time, and each is found.

As in `test_mutations`, a bug is a function that patches the machine, and its name says what goes wrong.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, example, given, settings

from fencehold.core import deadlock, queues
from fencehold.core import snapshot as core_snapshot
from fencehold.core.commands import Acquire, Mode
from fencehold.core.deadlock import _Backward, _Forward, _Search
from fencehold.core.state import Hold, OwnerKey, Queue, Session, State, Waiter
from tests.depth import deep
from tests.property.test_deadlock import (
    A_WRITER_AMONG_READERS,
    EITHER_OF_TWO_READERS,
    FURTHER_UP_A_QUEUE,
    Step,
    converse,
    steps,
)
from tests.property.test_mutations import EXAMPLES, Patch

pytestmark = pytest.mark.slow


def who_was_handed_a_name_is_not_in_the_index(patch: Patch) -> None:
    note = queues._note_holder
    patch.setattr(queues, "_note_holder", lambda state, name, queue: None if queue else note(state, name, queue))


def who_released_a_name_stays_in_the_index(patch: Patch) -> None:
    def note(state: State, name: str, queue: Queue) -> None:
        if name in state.held:
            real(state, name, queue)

    real = queues._note_holder
    patch.setattr(queues, "_note_holder", note)


def a_name_nobody_waits_for_stays_in_the_index(patch: Patch) -> None:
    def enter(state: State, name: str, queue: Queue, holder: OwnerKey | None) -> None:
        if name in state.queues:
            real(state, name, queue, holder)

    real = queues._enter_holder
    patch.setattr(queues, "_enter_holder", enter)


def who_stands_behind_is_forgotten(patch: Patch) -> None:
    patch.setattr(_Backward, "_edges_after", lambda *_: ())


def who_stands_before_is_forgotten(patch: Patch) -> None:
    patch.setattr(_Forward, "_edges_before", lambda *_: ())


def who_stands_behind_is_looked_at_for_the_first_only(patch: Patch) -> None:
    """A queue that was gone through to some place is not gone through any further."""

    def edges(search: _Backward, owner: OwnerKey, waiter: Waiter) -> Any:
        yield from real(search, owner, waiter)
        for name in waiter.ask.names:
            search._places[name].current = None

    real = _Backward._edges_to_place
    patch.setattr(_Backward, "_edges_to_place", edges)


def the_place_of_the_request_itself_is_forgotten(patch: Patch) -> None:
    def begin(search: _Backward, state: State, start: OwnerKey, ask: Acquire) -> None:
        real(search, state, start, ask)
        search._asked = frozenset()

    real = _Backward.__init__
    patch.setattr(_Backward, "__init__", begin)


def a_name_that_nobody_waits_for_yet_is_forgotten(patch: Patch) -> None:
    def begin(search: _Backward, state: State, start: OwnerKey, ask: Acquire) -> None:
        real(search, state, start, ask)
        search._held_free = {}

    real = _Backward.__init__
    patch.setattr(_Backward, "__init__", begin)


def what_is_held_in_a_crowd_is_forgotten(patch: Patch) -> None:
    def look(search: _Backward, session: int) -> Any:
        search._shared[session] = {}
        return ()

    patch.setattr(_Backward, "_look_at_shares", look)


def a_permit_counts_as_certain(patch: Patch) -> None:
    def sharing(state: State, name: str) -> Mode | None:
        mode = real(state, name)
        return None if mode is Mode.PERMIT else mode

    real = deadlock.sharing_mode
    patch.setattr(deadlock, "sharing_mode", sharing)


def a_reader_waits_for_readers(patch: Patch) -> None:
    def sharing(state: State, name: str) -> Mode | None:
        mode = real(state, name)
        return None if mode is Mode.SHARED else mode

    real = deadlock.sharing_mode
    patch.setattr(deadlock, "sharing_mode", sharing)


def the_only_permit_counts_as_one_of_several(patch: Patch) -> None:
    def sharing(state: State, name: str) -> Mode | None:
        return state.crowds[name].mode if name in state.crowds else None

    patch.setattr(deadlock, "sharing_mode", sharing)


def who_waits_twice_counts_as_one_task(patch: Patch) -> None:
    def edge(_search: _Backward, other: Waiter, *rest: Any) -> Any:
        return ((other.ask.session, other.ask.owner), *rest) if other.ask.owner else None

    patch.setattr(_Backward, "_edge", edge)


def of_two_waits_the_first_counts(patch: Patch) -> None:
    def only_wait(state: State, owner: OwnerKey) -> Waiter | None:
        return next(iter(state.waiting.get(owner, {}).values()), None)

    patch.setattr(deadlock, "_only_wait", only_wait)


def who_waits_for_the_same_in_another_mode_counts_as_known(patch: Patch) -> None:
    patch.setattr(deadlock, "_wanted", lambda waiter: (Mode.EXCLUSIVE, waiter.ask.names))


def the_first_circle_met_is_told(patch: Patch) -> None:
    def meet(search: _Search, edge: Any, _length: int) -> None:
        search._best = search._best or edge

    patch.setattr(_Search, "_meet", meet)


def a_restored_crowd_is_in_the_order_of_the_sessions(patch: Patch) -> None:
    patch.setattr(core_snapshot, "_put_in_order", lambda _crowd: None)


def who_extends_a_share_goes_to_the_end_of_the_crowd(patch: Patch) -> None:
    def move_end(state: State, session: Session, hold: Hold, until_at: int) -> None:
        real(state, session, hold, until_at)
        if hold.mode is not Mode.EXCLUSIVE:
            holds = state.crowds[hold.name].holds
            holds[hold.fence] = holds.pop(hold.fence)

    real = State.move_end
    patch.setattr(State, "move_end", move_end)


BUGS = (
    who_was_handed_a_name_is_not_in_the_index,
    who_released_a_name_stays_in_the_index,
    a_name_nobody_waits_for_stays_in_the_index,
    who_stands_behind_is_forgotten,
    who_stands_before_is_forgotten,
    who_stands_behind_is_looked_at_for_the_first_only,
    the_place_of_the_request_itself_is_forgotten,
    a_name_that_nobody_waits_for_yet_is_forgotten,
    what_is_held_in_a_crowd_is_forgotten,
    a_permit_counts_as_certain,
    a_reader_waits_for_readers,
    the_only_permit_counts_as_one_of_several,
    who_waits_twice_counts_as_one_task,
    of_two_waits_the_first_counts,
    who_waits_for_the_same_in_another_mode_counts_as_known,
    the_first_circle_met_is_told,
    a_restored_crowd_is_in_the_order_of_the_sessions,
    who_extends_a_share_goes_to_the_end_of_the_crowd,
)


@pytest.mark.parametrize("bug", deep(BUGS[::2], BUGS), ids=lambda bug: bug.__name__)
def test_a_bug_planted_in_the_search_is_found(bug: Callable[[Patch], None], monkeypatch: Patch) -> None:
    """A search with this bug does not agree with the one it is compared with."""

    @settings(EXAMPLES, phases=[Phase.explicit, Phase.generate])
    @example(FURTHER_UP_A_QUEUE)
    @example(A_WRITER_AMONG_READERS)
    @example(EITHER_OF_TWO_READERS)
    @given(steps)
    def search(taken: list[Step]) -> None:
        converse(taken)

    bug(monkeypatch)
    with pytest.raises((AssertionError, KeyError, IndexError)):
        search()
