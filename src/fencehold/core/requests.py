"""Requests are idempotent: each is acted upon once, however often it comes.

The law of repetition (G9), in one place:

1. A request id that was answered is answered the same again; one that still waits is answered `Queued` again.
2. An id the client has acknowledged (`answered`) is never to be repeated; a repetition is a usage error.
3. Direct answers are forgotten when acknowledged; final answers of requests that had waited, when settled and
   acknowledged. Direct answers arrive in order, so one number acknowledges them; final ones come in any order.
4. A request whose cancellation came first is answered as cancelled: it can no longer be acted upon.
5. So many answers are remembered (`Limits.answers_per_session_max`), and so many names in them. The names are
   checked by the leader alone, before a request is journaled: journals hold sessions that had more.
"""

from collections.abc import Callable
from typing import TypeVar

from fencehold.core.commands import Request, Settle
from fencehold.core.outcomes import Answer, Code, Granted, NoSession, Outcome, Queued, Refused, Released, Settled
from fencehold.core.queues import place_of
from fencehold.core.state import Session, State

NAMES_REMEMBERED_MAX = 16_384
"""Names in a session's remembered answers, at most 4 MiB: beyond it no request about several names is taken."""

Asked = TypeVar("Asked", bound=Request)


def once(
    state: State, request: Asked, act: Callable[[State, Session, Asked], Answer | Queued]
) -> Answer | Queued | NoSession:
    """Act on a request, unless its session has ended or it was acted upon before."""
    session = state.sessions.get(request.session)
    if session is None:
        return no_session(state, request.session)
    if state.saving is not None:
        state.saving.keep_session(session)
    number = request.request
    if not number:
        return act(state, session, request)
    if request.answered > session.answered:
        _forget(session, request.answered)
    if number > session.latest:
        session.latest = number
    elif (known := _recall(state, session, number)) is not None:
        state.repeated.append(len(state.outcomes))
        return known
    if not has_room(state, session):
        return too_many_answers(state)
    answer = act(state, session, request)
    if type(answer) is not Queued:
        session.answers[number] = answer  # type: ignore[assignment]
    return answer


def no_session(state: State, session_id: int) -> NoSession:
    """Say whether the session ended or never was."""
    return NoSession(session_id, 0 < session_id <= state.session_last)


def is_repeated(state: State, request: Request) -> bool:
    """Whether a request was acted upon before: it changes nothing, and is answered as the first time."""
    session, number = state.sessions.get(request.session), request.request
    if session is None or number <= 0:
        return False
    return number in session.waiters or recall(session, number) is not None


def recall(session: Session, number: int) -> Answer | None:
    """The answer remembered for a request."""
    return session.final_answers.get(number) or session.answers.get(number)


def has_room(state: State, session: Session) -> bool:
    """Whether one more answer may be remembered."""
    return len(session.answers) + len(session.final_answers) < state.limits.answers_per_session_max


def too_many_answers(state: State) -> Refused:
    """The refusal when there is no room for one more."""
    limit = state.limits.answers_per_session_max
    return Refused(Code.LIMIT, f"{limit} answers await acknowledgement; say which have arrived")


def names_remembered(session: Session) -> int:
    """How many names a session's remembered answers have."""
    count = 0
    for answers in (session.answers, session.final_answers):
        for answer in answers.values():
            if type(answer) is Granted:
                count += len(answer.names)
            elif type(answer) is Released:
                count += len(answer.refused)
    return count


def too_many_names() -> Refused:
    """The refusal when the remembered answers have too many names."""
    return Refused(
        Code.LIMIT, f"answers with {NAMES_REMEMBERED_MAX} names await acknowledgement; say which have arrived"
    )


def negative(number: int) -> Refused:
    """The refusal of an id that cannot be one: below zero, waits without an id have their keys."""
    return Refused(Code.USAGE, f"a request id is above 0, or 0 for none, not {number}")


def settle(state: State, command: Settle) -> Outcome:
    """Forget final answers that have arrived."""
    session = state.sessions.get(command.session)
    if session is None:
        return no_session(state, command.session)
    state.touch(session)
    for number in command.requests:
        answer = session.final_answers.pop(number, None)
        if answer is not None and number > session.answered:
            # A copy of the request may still be in flight, until the client acknowledges the id itself.
            session.answers[number] = answer
    return Settled(session.id)


def _recall(state: State, session: Session, number: int) -> Answer | Queued | None:
    if number < 0:
        return negative(number)
    waiter = session.waiters.get(number)
    if waiter is not None:
        return Queued(waiter.ticket, place_of(state, waiter))
    answer = recall(session, number)
    if answer is None and number <= session.answered:
        return Refused(Code.USAGE, f"request {number} is not above {session.answered}, which was acknowledged")
    return answer


def _forget(session: Session, answered: int) -> None:
    """Drop acknowledged answers, oldest first; one that came out of order goes with those before it."""
    session.answered = answered
    answers = session.answers
    while answers:
        number = next(iter(answers))
        if number > answered:
            return
        del answers[number]
