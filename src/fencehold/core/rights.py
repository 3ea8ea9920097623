"""Rights: what the policy says to a command, at the position at which it is applied (G13).

1. What is granted, extended or broken is checked where it is decided. There is no gap between check and act: both
   are at one position, on every replica.
2. What is held stays held when only `acquire` is taken away, until it is released or runs out: it is not extended.
3. A refusal says nothing of a name beyond what the request said. To a principal that may neither acquire nor
   observe a name, a release that fails does not say why.
"""

from fencehold.core.commands import Acquire, Break, Extend, OpenSession, Release
from fencehold.core.outcomes import Refused
from fencehold.core.policy import Verb
from fencehold.core.rulebook import denied, revoked, unknown
from fencehold.core.state import Session, State

_ACQUIRE = Verb.ACQUIRE
_OF_ITS_OWN = {Verb.ACQUIRE, Verb.OBSERVE}


def principal_of(command: OpenSession | Break) -> str:
    """The principal that asks; empty if it is not known."""
    principal: str = getattr(command, "principal", "")
    return principal


def token_of(command: OpenSession) -> str:
    """The token of the policy that the client authenticated with; empty if none."""
    token: str = getattr(command, "token", "")
    return token


def refuse_opener(state: State, command: OpenSession) -> Refused | None:
    """Why a principal gets no session, if so."""
    principal = principal_of(command)
    rights = None if state.rulebook is None else state.rulebook.rights_of(principal)
    if rights is None or rights.is_there(token_of(command)):
        return None
    return unknown(principal) if rights.user is None else revoked(principal)


def refuse_acquire(state: State, session: Session, command: Acquire | Extend) -> Refused | None:
    """Why the principal of a session may not have these names, or not for longer, if so."""
    if state.rulebook is None:
        return None
    allowed = state.rulebook.rights_of(session.principal).on
    for name in command.names:
        if _ACQUIRE not in allowed(name):
            return denied(session.principal, _ACQUIRE, name)
    return None


def refuse_release(state: State, session: Session, command: Release) -> Refused | None:
    """Why a release is not considered, if so. A session may always name what is its own, or was taken from it."""
    if state.rulebook is None:
        return None
    for name in command.names:
        hold = state.find(name, command.fence)
        if (hold is not None and hold.session == session.id) or (command.fence, name) in session.lapsed:
            continue
        if not _OF_ITS_OWN & state.rulebook.rights_of(session.principal).on(name):
            return denied(session.principal, Verb.ACQUIRE, name)
    return None


def refuse_break(state: State, command: Break) -> Refused | None:
    """Why a principal may not break the holds of others, if so."""
    principal = principal_of(command)
    if state.rulebook is None or state.rulebook.rights_of(principal).may(Verb.BREAK, command.name):
        return None
    return denied(principal, Verb.BREAK, command.name)


def refuse_placing(state: State, principal: str) -> Refused | None:
    """Why a principal may not move slots, if so."""
    if state.rulebook is None or Verb.ADMIN in state.rulebook.rights_of(principal).everywhere:
        return None
    return denied(principal, Verb.ADMIN, "")


def may_see(state: State, session: Session, name: str) -> bool:
    """Whether the principal of a session may see who holds a name, and how many wait for it."""
    return state.rulebook is None or state.rulebook.rights_of(session.principal).sees(name)
