"""The change of a policy, and what it ends: one step (G13).

1. It is made for one revision, and refused if the policy has another by now: its author has seen what it changes.
2. Sessions of principals that are no users any more, or are disabled, end in the same step; so do those that
   were opened with a token that was revoked. That is no clean end:
   their names stay ungranted for the lock-delay that was asked for.
3. Waiters whose principal may not acquire all their names any more are refused in the same step, before anything
   that became free is handed on. So every waiter may have what it waits for, and is not checked again when it is
   granted.
"""

from fencehold.core.commands import ChangePolicy, FollowPolicy
from fencehold.core.outcomes import Code, Ending, PolicyChanged, Refused
from fencehold.core.policy import Policy, Verb, changed
from fencehold.core.queues import end_wait, hand_on
from fencehold.core.quotas import recounted
from fencehold.core.rights import refuse_acquire
from fencehold.core.rulebook import Rulebook, denied
from fencehold.core.sessions import end_session
from fencehold.core.state import State


def change_policy(state: State, command: ChangePolicy) -> PolicyChanged | Refused:
    """Change the policy, if an administrator asks for it that knows the present revision."""
    book = state.rulebook
    if book is not None and Verb.ADMIN not in book.rights_of(command.principal).everywhere:
        return denied(command.principal, Verb.ADMIN, "")
    if command.revision != state.policy.revision:
        detail = f"the policy has revision {state.policy.revision}, not {command.revision}: read it again"
        return Refused(Code.CONFLICT, detail)
    after = changed(state.policy, command.change)
    return after if isinstance(after, Refused) else enact(state, after)


def follow_policy(state: State, command: FollowPolicy) -> PolicyChanged:
    """Take over the policy of the machine beside this one, or of the first shard.

    Leaders of other shards follow the first one's journal, and one of them may be behind the one before it: an
    older policy changes nothing.
    """
    if state.home is not None and command.policy.revision <= state.policy.revision:
        return PolicyChanged(state.policy.revision, 0, 0)
    return enact(state, command.policy)


def enact(state: State, policy: Policy) -> PolicyChanged:
    """Let a policy hold from here on, and end what it does not allow."""
    state.policy = policy
    state.rulebook = book = Rulebook(policy) if policy.revision else None
    if book is None:
        state.usage = None
        return PolicyChanged(policy.revision, 0, 0)
    state.usage = recounted(state, book)
    gone = [each for each in state.sessions.values() if not book.rights_of(each.principal).is_there(each.token)]
    freed = [name for session in gone for name in end_session(state, session, Ending.REVOKED)]
    refused = 0
    for waiter in list(state.waiters.values()):
        refusal = refuse_acquire(state, state.sessions[waiter.ask.session], waiter.ask)
        if refusal is not None:
            end_wait(state, waiter, refusal)
            freed += waiter.ask.names
            refused += 1
    hand_on(state, freed)
    return PolicyChanged(policy.revision, len(gone), refused)
