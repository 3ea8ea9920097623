"""Acquiring: grant at once, queue, or refuse; and withdraw.

1. A request is granted at once only if none of its names has a waiter and all of them admit it (G4).
2. A try never queues; a request that would close a circle of waiting owners is refused (see `deadlock`). One that
   was found to be in a circle through several shards is refused while it waits (see `wait_graph`).
3. What is refused changes nothing.
4. What is withdrawn was never granted: its names are not kept, either. Nothing was done under a grant that its
   client does not know of.
"""

from fencehold.core.cells import refuse_away
from fencehold.core.commands import Acquire, AcquireAtLeast, Cancel, RefuseWait
from fencehold.core.deadlock import find_circle
from fencehold.core.grants import grant, grant_plain
from fencehold.core.outcomes import (
    Answer,
    Busy,
    Cancelled,
    Code,
    Deadlock,
    Ending,
    Extended,
    Granted,
    HoldEnded,
    NoSession,
    Queued,
    Refused,
    Released,
    WaitRefused,
)
from fencehold.core.queues import ahead, end_wait, hand_on, join, limit_awaited
from fencehold.core.quotas import refuse_asking, refuse_waiting
from fencehold.core.requests import has_room, negative, no_session, recall, too_many_answers
from fencehold.core.rights import may_see, refuse_acquire
from fencehold.core.shape import is_plain, refuse_names, refuse_terms, refuse_texts
from fencehold.core.shards import is_early, refuse_elsewhere
from fencehold.core.state import Session, State

KEPT_MAX = 100_000
"""How many names may be kept for a least time: they count towards no session, and outlive theirs."""


def acquire(state: State, session: Session, ask: Acquire) -> Answer | Queued:
    """Grant, queue or refuse a new request."""
    early = False
    if state.cells is not None:
        away = refuse_away(state.cells, ask.names)
        if away is not None:
            return away
    if state.home is not None:
        elsewhere = refuse_elsewhere(state, state.home, ask)
        if elsewhere is not None:
            return elsewhere
        early = bool(state.arriving) and is_early(state, ask.names)
    # First of all: what else is wrong with it may say something about the names.
    if state.rulebook is not None:
        refusal = refuse_acquire(state, session, ask)
        if refusal is not None:
            return refusal
    limits = state.limits
    if (
        state.usage is None
        and is_plain(limits, ask)
        # As `Session.size`, without two calls.
        and len(session.fresh) + len(session.settled) + len(session.shares) + session.names_awaited
        < limits.holds_per_session_max
    ):
        # Nearly all: one name, on the usual terms, while there are no quotas.
        name = ask.names[0]
        is_barred = (
            name in state.queues or name in state.delays or name in state.kept or name in state.crowds or early
        )
        granted = None if is_barred else grant_plain(state, session, ask)
        return _wait(state, session, ask, name) if granted is None else granted
    refusal = _refusal(state, session, ask)
    if refusal is None and state.usage is not None:
        refusal = refuse_asking(state, session, ask)
    if refusal is not None:
        return refusal
    queues = state.queues
    for name in ask.names:
        if early or name in queues or not state.admits(name, ask.mode):
            return _wait(state, session, ask, name)
    return grant(state, session, ask)


def cancel(state: State, command: Cancel) -> Cancelled | Refused | NoSession:
    """Withdraw a request: from now on it holds nothing and never will, even if it is yet to come."""
    session = state.sessions.get(command.session)
    if session is None:
        return no_session(state, command.session)
    state.touch(session)
    number = command.request
    if number <= 0:
        return negative(number)
    if waiter := session.waiters.get(number):
        end_wait(state, waiter, Cancelled(number))
        hand_on(state, waiter.ask.names)
        return Cancelled(number)
    if number <= session.answered and number not in session.final_answers:
        return Refused(Code.USAGE, f"request {number} was acknowledged: release what it was granted")
    return _withdraw(state, session, number)


def refuse_wait(state: State, command: RefuseWait) -> WaitRefused:
    """End a wait that is part of a circle through several shards, if it still waits."""
    waiter = state.waiters.get(command.ticket)
    if waiter is None:
        return WaitRefused(command.ticket, False)
    end_wait(state, waiter, command.answer)
    hand_on(state, waiter.ask.names)
    return WaitRefused(command.ticket, True)


def _withdraw(state: State, session: Session, number: int) -> Cancelled | Refused:
    """Undo a grant the client may not know of, or shut out a request that is still on its way."""
    answer = recall(session, number)
    if isinstance(answer, Released | Extended):
        return Refused(Code.USAGE, f"request {number} was no acquire: there is nothing to withdraw")
    if answer is None and not has_room(state, session):
        return too_many_answers(state)
    session.latest = max(session.latest, number)
    if answer is None:
        session.answers[number] = Cancelled(number)
    elif isinstance(answer, Granted):
        _undo(state, session, answer)
    return Cancelled(number)


def _undo(state: State, session: Session, granted: Granted) -> None:
    answers = session.final_answers if granted.request in session.final_answers else session.answers
    answers[granted.request] = Cancelled(granted.request)
    for name in granted.names:
        state.keep_no_longer(name, granted.fence)
        hold = state.find(name, granted.fence)
        if hold is not None:
            state.take_out(session, hold)
            state.tell(HoldEnded(session.id, hold.owner, name, hold.fence, Ending.RELEASED))
    hand_on(state, granted.names)


def _wait(state: State, session: Session, ask: Acquire, name: str) -> Answer | Queued:
    if ask.wait_ms == 0:
        return Busy(name)
    place = ahead(state, ask.names)
    if place >= state.limits.waiters_per_name_max:
        longest = max(ask.names, key=lambda each: len(state.queues.get(each, ())))
        many = place if may_see(state, session, longest) else "too many"
        return Refused(Code.QUEUE_FULL, f"{many} requests wait for {longest!r} already")
    if state.usage is not None:
        refusal = refuse_waiting(state, session, ask)
        if refusal is not None:
            return refusal
    circle = find_circle(state, ask)
    if circle:
        return Deadlock(circle)
    return Queued(join(state, session, ask).ticket, place)


def _refusal(state: State, session: Session, ask: Acquire) -> Refused | None:
    """Why the request is refused as it stands, if so."""
    limits = state.limits
    is_certain = is_plain(limits, ask)
    refusal = None if is_certain else refuse_names(limits, ask.names)
    if refusal is not None:
        return refusal
    if session.size() + len(ask.names) > limits.holds_per_session_max:
        return Refused(Code.LIMIT, f"a session holds and awaits {limits.holds_per_session_max} names at the most")
    if is_certain:
        return None
    return refuse_terms(limits, ask) or _refuse_in_state(state, session, ask) or refuse_texts(limits, ask)


def _refuse_in_state(state: State, session: Session, ask: Acquire) -> Refused | None:
    """Why its terms do not agree with what is kept or in use already, if so."""
    if isinstance(ask, AcquireAtLeast) and len(state.kept) + len(ask.names) > KEPT_MAX:
        return Refused(Code.LIMIT, f"{len(state.kept)} names are kept by at_least, of {KEPT_MAX} at the most")
    if ask.limit:
        other = _limit_in_use(state, ask.names[0])
        if other not in (0, ask.limit):
            seen = f"a limit of {other}" if may_see(state, session, ask.names[0]) else "another limit"
            return Refused(Code.USAGE, f"{ask.names[0]!r} is in use with {seen}, not {ask.limit}")
    return None


def _limit_in_use(state: State, name: str) -> int:
    """The limit under which permits of a name are held or awaited; 0 if none are."""
    crowd = state.crowds.get(name)
    if crowd is not None and crowd.limit:
        return crowd.limit
    return limit_awaited(state, name)
