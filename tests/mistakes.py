"""Mistakes in the machine that are planted twice: property tests must find them, and so must the simulation."""

import pytest

from fencehold.core import machine, sessions, snapshot
from fencehold.core.state import NOT_DUE, Session, State

Patch = pytest.MonkeyPatch


def let_waiters_outlive_their_session(patch: Patch) -> None:
    """A session that ends keeps its places in the queues."""

    def let_die(state: State, session: Session) -> None:
        if not session.waiters:
            del state.sessions[session.id]
        del state.sessions_until[session.id]
        if session.due_at != NOT_DUE:
            state.sessions_due.drop(session.due_at, session.id)

    patch.setattr(State, "let_die", let_die)
    patch.setattr(sessions, "leave", lambda _state, _session, _waiter: None)


def guess_the_fence_after_a_restart(patch: Patch) -> None:
    """A snapshot does not keep the counter of fences: it is guessed from what is held."""
    read = snapshot.read

    def forget(data: bytes) -> State:
        state = read(data)
        holds = [hold.fence for session in state.sessions.values() for hold in session.holds()]
        state.fence = max(holds, default=0)
        return state

    patch.setattr(machine, "read", forget)
