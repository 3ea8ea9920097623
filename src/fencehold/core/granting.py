"""Granting: the one place where names are given away and the fence moves on (G1)."""

from fencehold.core.commands import Acquire
from fencehold.core.outcomes import Granted
from fencehold.core.state import Hold, Session, State


def grant(state: State, session: Session, ask: Acquire) -> Granted:
    """Give all the names to the session, with the next fence."""
    state.fence = fence = state.fence + 1
    now_at = state.now_at
    until_at = now_at + ask.ttl_ms if ask.ttl_ms else 0
    for name in ask.names:
        state.put_in(
            session,
            Hold(
                name,
                session.id,
                ask.owner,
                fence,
                now_at,
                until_at,
                ask.mode,
                ask.limit,
                ask.lock_delay_ms,
                ask.meta,
            ),
        )
    return Granted(session.id, ask.request, ask.names, fence, now_at, ask.ttl_ms)
