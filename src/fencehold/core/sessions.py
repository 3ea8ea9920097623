"""Sessions: how they begin, are renewed and end, and what the passing of time ends.

1. A session lives `ttl_ms` after its last renewal; after its connection was lost, `grace_ms` unless renewed.
2. It ends whole: in one step all it held is free and all it waited for is withdrawn (G6).
3. Time passes first in an entry. All that is due ends before anything is granted, so nothing is granted to what
   ends in the same entry: sessions, then holds, then waits, then lock-delays, then what was kept for a least time.
"""

from itertools import pairwise

from fencehold.core.anchors import drop_anchor
from fencehold.core.commands import CloseSession, OpenSession, Renew, Suspend
from fencehold.core.outcomes import (
    Closed,
    Code,
    Ending,
    NoSession,
    Opened,
    Refused,
    Renewed,
    SessionEnded,
    Suspended,
    TimedOut,
)
from fencehold.core.queues import end_wait, hand_on, leave
from fencehold.core.quotas import refuse_opening
from fencehold.core.release import end_uncleanly
from fencehold.core.requests import no_session
from fencehold.core.rights import principal_of, refuse_opener, token_of
from fencehold.core.shape import refuse_session
from fencehold.core.state import NOT_DUE, Session, State


def open_session(state: State, command: OpenSession) -> Opened | Refused:
    """Begin a session under the next id."""
    limits = state.limits
    if state.rulebook is not None:
        denial = refuse_opener(state, command) or refuse_opening(state, principal_of(command), command)
        if denial is not None:
            return denial
    if len(state.sessions) >= limits.sessions_max:
        return Refused(Code.LIMIT, f"{limits.sessions_max} sessions are open already")
    refusal = refuse_session(limits, command)
    if refusal is not None:
        return refusal
    session = _begin(state, command)
    return Opened(session.id, state.now_at, session.ttl_ms, session.grace_ms)


def _begin(state: State, command: OpenSession) -> Session:
    state.session_last += 1
    session = Session(
        state.session_last,
        command.ttl_ms,
        command.grace_ms,
        command.secret,
        command.meta,
        state.now_at,
        state.fence,
        principal=principal_of(command),
        token=token_of(command),
    )
    state.let_live(session, state.now_at + command.ttl_ms)
    if session.principal:
        state.owned += 1
    if state.usage is not None:
        state.usage.add_session(session.principal, 1)
    return session


def close_session(state: State, command: CloseSession) -> Closed | NoSession:
    """End a session cleanly."""
    session = state.sessions.get(command.session)
    if session is None:
        return no_session(state, command.session)
    hand_on(state, end_session(state, session, Ending.CLOSED))
    return Closed(session.id)


def renew(state: State, command: Renew) -> Renewed:
    """Renew sessions, those that have not ended."""
    ended = []
    for session_id in command.sessions:
        session = state.sessions.get(session_id)
        if session is None:
            ended.append(session_id)
        else:
            # The deadline entered for it stays where it is: when that is due, this is checked.
            state.sessions_until[session_id] = state.now_at + session.ttl_ms
    return Renewed(state.now_at, tuple(ended))


def suspend(state: State, command: Suspend) -> Suspended | NoSession:
    """Leave a session only its grace, unless it has less."""
    session = state.sessions.get(command.session)
    if session is None:
        return no_session(state, command.session)
    until_at = min(state.sessions_until[session.id], state.now_at + session.grace_ms)
    state.sessions_due.drop(session.due_at, session.id)
    state.let_live(session, until_at)
    return Suspended(session.id, until_at)


def end_session(state: State, session: Session, ending: Ending) -> list[str]:
    """End it whole. The caller hands on the names returned: they became free, or a place in their queue did."""
    state.touch(session)
    waiters = sorted(session.waiters.values(), key=lambda waiter: waiter.ticket)
    for waiter in waiters:
        leave(state, session, waiter)
    holds = session.holds()
    for hold in holds:
        state.take_out(session, hold)
        if ending is not Ending.CLOSED:
            state.delay(hold)
    state.let_die(session)
    freed = tuple((hold.name, hold.fence) for hold in holds)
    tickets = tuple(waiter.ticket for waiter in waiters)
    owners = tuple(hold.owner for hold in holds)
    delays_ms = () if ending is Ending.CLOSED else tuple(hold.lock_delay_ms for hold in holds)
    told = (freed, tickets, session.meta, session.principal, owners, delays_ms)
    state.tell(SessionEnded(session.id, ending, *told))
    return [name for name, _ in freed] + [name for waiter in waiters for name in waiter.ask.names]


def pass_time(state: State, elapsed_ms: int, unix_ms: int = 0) -> None:
    """Advance logical time, end all that is due, then hand on what that freed."""
    if elapsed_ms:
        state.now_at += max(0, min(elapsed_ms, state.limits.elapsed_ms_max))
    if unix_ms:
        drop_anchor(state, unix_ms)
    if state.is_any_due():
        _end_due(state, state.now_at)


def passable_ms(state: State, elapsed_ms: int, names_max: int) -> int:
    """How much of it may pass in one entry, so that sessions with no more than so many names end in it.

    At the least, what passes until the first of them ends: each ends whole, and with all that end at that instant.
    """
    until_at, until = state.now_at + elapsed_ms, state.sessions_until
    ending: dict[int, int] = {}
    for key in state.sessions_due.coming(until_at):
        if until[key] <= until_at:
            ending[until[key]] = ending.get(until[key], 0) + state.sessions[key].size()
    instants = sorted(ending)
    names = 0
    for before, at in pairwise(instants):
        names += ending[before]
        if names + ending[at] > names_max:
            return max(0, before - state.now_at)
    return elapsed_ms


def _end_due(state: State, now_at: int) -> None:
    freed: list[str] = []
    for session in _sessions_to_end(state):
        freed += end_session(state, session, Ending.EXPIRED)
    for fence, name in state.holds_due.due(now_at):
        hold = state.find(name, fence)
        if hold is not None:
            end_uncleanly(state, hold, Ending.EXPIRED)
            freed.append(name)
    for ticket in state.waiters_due.due(now_at):
        if waiter := state.waiters.get(ticket):
            end_wait(state, waiter, TimedOut(waiter.ask.names, now_at - waiter.since_at))
            freed += waiter.ask.names
    for name in state.delays_due.due(now_at):
        del state.delays[name]
        freed.append(name)
    for name in state.kept_due.due(now_at):
        del state.kept[name]
        freed.append(name)
    if freed:
        hand_on(state, freed)


def _sessions_to_end(state: State) -> list[Session]:
    """Those not renewed in time, by the instant they ran out. A renewed one gets its deadline entered anew."""
    due = state.sessions_due.due(state.now_at)
    if not due:
        return []
    sessions = [state.sessions[session_id] for session_id in due]
    until = state.sessions_until
    for session in sessions:
        session.due_at = NOT_DUE
        if until[session.id] > state.now_at:
            state.let_live(session, until[session.id])
    return sorted((s for s in sessions if s.due_at == NOT_DUE), key=lambda s: (until[s.id], s.id))
