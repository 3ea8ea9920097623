"""Grants: the one place where names are granted and the fence moves on (G1)."""

from fencehold.core.commands import Acquire, AcquireAtLeast, RaiseFence
from fencehold.core.holds import FRESH_MAX, MASK
from fencehold.core.outcomes import Code, FenceRaised, Granted, Refused
from fencehold.core.state import Hold, Kept, Session, State

FENCE_MAX = (1 << 53) - 1
"""The greatest whole number that every client can tell from the next: JSON and Lua keep numbers as doubles."""


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
    if isinstance(ask, AcquireAtLeast):
        _keep(state, session, ask)
    return Granted(session.id, ask.request, ask.names, fence, now_at, ask.ttl_ms)


def grant_plain(state: State, session: Session, ask: Acquire) -> Granted | None:
    """Give one name on the usual terms (`shape.is_plain`), the same with fewer steps, where there are no quotas.

    None: another session holds it exclusively, and nothing has changed. All other obstacles have been checked.
    """
    fence, now_at, name = state.fence + 1, state.now_at, ask.names[0]
    hold = Hold(name, session.id, ask.owner, fence, now_at)
    # One look-up both finds the holder and grants the name: among half a million, a second one is expensive.
    if state.held.parts[hash(name) & MASK].setdefault(name, hold) is not hold:
        return None
    state.fence = fence
    fresh = session.fresh
    if len(fresh) >= FRESH_MAX:
        session.settle()
    fresh[name] = hold
    return Granted(session.id, ask.request, ask.names, fence, now_at, 0)


def _keep(state: State, session: Session, ask: AcquireAtLeast) -> None:
    """Keep the names from the start, not from the end of the hold: then it does not matter how that ends."""
    now_at = state.now_at
    until_at = now_at + ask.at_least_ms
    for name in ask.names:
        state.keep(Kept(name, state.fence, session.id, ask.owner, now_at, until_at, ask.meta, session.meta))


def raise_fence(state: State, command: RaiseFence) -> FenceRaised | Refused:
    """Let the fences that follow be above a number, unless they are already."""
    if not 0 <= command.at_least <= FENCE_MAX:
        return Refused(Code.USAGE, f"a fence is 0 to {FENCE_MAX}, not {command.at_least}")
    state.fence = max(state.fence, command.at_least)
    return FenceRaised(state.fence)
