"""Release: how a hold ends or is extended, and the reply to a stale fence (G5).

A clean end (release, close, cancel) frees a name at once. After an unclean one (expiry, break) the name stays
ungranted for the hold's lock-delay, for resources that cannot check fences. A name that is kept for a least time
stays ungranted until then after either; a break alone ends that.
"""

from fencehold.core.cells import refuse_unknown_here
from fencehold.core.commands import Break, Extend, Release
from fencehold.core.holds import MASK
from fencehold.core.outcomes import RELEASED, Broken, Ending, Extended, HoldEnded, Reason, Refused, Released
from fencehold.core.queues import hand_on
from fencehold.core.quotas import refuse_extending
from fencehold.core.rights import refuse_acquire, refuse_break, refuse_release
from fencehold.core.shape import out_of_range, refuse_breaker, wrong_count
from fencehold.core.shards import refuse_unknown
from fencehold.core.state import Hold, Session, State

LAPSED_MAX = 64
"""How many holds that were taken from it a session remembers, to tell `expired` from `already_released`."""


def release(state: State, session: Session, command: Release) -> Released | Refused:
    """Free the names that carry the fence, and say of the others why not."""
    if not command.names:
        return wrong_count(state.limits, command.names)
    names, fence = command.names, command.fence
    if len(names) == 1 and state.saving is None and state.usage is None:
        # Nearly all: one name that is held exclusively, with nothing else to keep up.
        name = names[0]
        part = state.held.parts[hash(name) & MASK]
        # Taken out as it is found: among half a million names, to look twice costs more than the rest.
        hold = part.pop(name, None)
        if hold is not None:
            if hold.fence == fence and hold.session == session.id and not (hold.until_at or hold.meta):
                if session.fresh.pop(name, None) is None:
                    del session.settled[name]
                if state.queues:
                    hand_on(state, names)
                return RELEASED
            part[name] = hold
    # Not before: what is its own a session may always release, whatever the policy says.
    if state.rulebook is not None:
        refusal = refuse_release(state, session, command)
        if refusal is not None:
            return refusal
    return _release(state, session, names if len(names) == 1 else tuple(dict.fromkeys(names)), fence)


def _release(state: State, session: Session, names: tuple[str, ...], fence: int) -> Released:
    refused: tuple[str, ...] = ()
    for name in names:
        hold = state.find(name, fence)
        if hold is None or hold.session != session.id:
            refused += (name,)
        else:
            state.take_out(session, hold)
    if state.queues:
        hand_on(state, names)
    return Released(why_not(state, session, refused[0], fence), refused) if refused else RELEASED


def extend(state: State, session: Session, command: Extend) -> Extended | Refused:
    """Move the end of all the holds named, or of none."""
    if not command.names:
        return wrong_count(state.limits, command.names)
    if not 0 <= command.ttl_ms <= state.limits.ttl_ms_max:
        return out_of_range("ttl", command.ttl_ms, 0, state.limits.ttl_ms_max)
    if state.rulebook is not None:
        refusal = refuse_acquire(state, session, command) or refuse_extending(state, session, command)
        if refusal is not None:
            return refusal
    holds: list[Hold] = []
    for name in dict.fromkeys(command.names):
        hold = state.find(name, command.fence)
        if hold is None or hold.session != session.id:
            return Extended(why_not(state, session, name, command.fence))
        holds.append(hold)
    until_at = state.now_at + command.ttl_ms if command.ttl_ms else 0
    for hold in holds:
        state.move_end(session, hold, until_at)
    return Extended(Reason.OK, until_at)


def why_not(state: State, session: Session, name: str, fence: int) -> Reason:
    """Why the session does not have the name with this fence, as far as the state can tell."""
    if not session.opened_fence < fence <= state.fence or state.find(name, fence) is not None:
        return Reason.NOT_OWNER
    if (fence, name) in session.lapsed:
        return Reason.EXPIRED
    return Reason.ALREADY_RELEASED


def break_holds(state: State, command: Break) -> Broken | Refused:
    """Force-release holds, for an operator. The fence moves on in any case: the new one outranks every holder."""
    refusal = refuse_break(state, command) or refuse_breaker(state.limits, command)
    if state.cells is not None:
        refusal = refusal or refuse_unknown_here(state.cells, command.name)
    if state.home is not None:
        refusal = refusal or refuse_unknown(state, state.home, command.name)
    if refusal is not None:
        return refusal
    state.fence = fence = state.fence + 1
    fence_max = command.fence or fence
    holds = [hold for hold in state.holders(command.name) if hold.fence <= fence_max]
    ended = [hold.fence for hold in holds]
    kept = state.keep_no_longer(command.name, fence_max)
    if kept is not None and kept.fence not in ended:
        # The hold has ended before, and the name with it now.
        ended.append(kept.fence)
    for hold in holds:
        end_uncleanly(state, hold, Ending.BROKEN, command.by)
    hand_on(state, [command.name])
    return Broken(command.name, fence, tuple(ended))


def end_uncleanly(state: State, hold: Hold, ending: Ending, by: str = "") -> None:
    """Take a hold from a session that lives on, and remember that it was taken."""
    session = state.sessions[hold.session]
    state.touch(session)
    state.take_out(session, hold)
    state.delay(hold)
    session.lapsed[hold.fence, hold.name] = None
    if len(session.lapsed) > LAPSED_MAX:
        del session.lapsed[next(iter(session.lapsed))]
    state.tell(HoldEnded(session.id, hold.owner, hold.name, hold.fence, ending, by, hold.lock_delay_ms))
