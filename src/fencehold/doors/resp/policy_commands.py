"""The policy on the wire: POLICY.GET, POLICY.APPLY, WHOAMI and CAN.

Hashes of secrets and tokens go in and never come out. What is about names is answered for the tier of the
connection.
"""

import json
from functools import partial
from typing import Any

import msgspec

from fencehold.core.commands import ChangePolicy
from fencehold.core.outcomes import Outcome, PolicyChanged
from fencehold.core.policy import Policy, PolicyChange, QuotaMode, Verb
from fencehold.core.rulebook import Rights, Rulebook, denied
from fencehold.core.state import State
from fencehold.doors.resp.answers import refuse, tell_found
from fencehold.doors.resp.arguments import exactly, number, shown, text
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.guard import Denied, rights_of
from fencehold.doors.resp.usage_errors import Wrong
from fencehold.errors import FenceholdError

_decode_change = msgspec.json.Decoder(PolicyChange).decode


def get(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """POLICY.GET: the policy as JSON, how much of the quotas is used, and how often they were exceeded."""
    exactly(words, 0)
    connection.door.node.ask(partial(_shown, connection.door.node.rates.exceeded), partial(tell_found, slot))


def _shown(too_fast: dict[str, int], state: State) -> dict[str, object]:
    policy = state.policy
    exceeded = {name: {"commands_per_s": count} for name, count in too_fast.items()}
    for (name, what), count in sorted(state.usage.exceeded.items()) if state.usage is not None else ():
        exceeded.setdefault(name, {})[what] = count
    used: dict[str, dict[str, int]] = {}
    for session in state.sessions.values():
        had = used.setdefault(session.principal, {"sessions": 0, "holds": 0, "waiters": 0})
        had["sessions"] += 1
        had["holds"] += session.size()
        had["waiters"] += len(session.waiters)
    return {
        "revision": policy.revision,
        "policy": json.dumps(plain(policy), ensure_ascii=False),
        "used": json.dumps(used, ensure_ascii=False),
        "exceeded": json.dumps(exceeded, ensure_ascii=False),
    }


def plain(policy: Policy) -> dict[str, Any]:
    """A policy as it is shown: how many secrets a user has, the names of its tokens, and none of the secrets or
    tokens."""
    users = {
        name: {
            "roles": list(user.roles),
            "disabled": user.disabled,
            "secrets": len(user.secrets or ()),
            "tokens": {
                key: {"made_s": token.made_s, "expires_s": token.expires_s}
                for key, token in (user.tokens or {}).items()
            },
        }
        for name, user in policy.users.items()
    }
    return {
        "users": users,
        "roles": msgspec.to_builtins(policy.roles),
        "quotas": msgspec.to_builtins(policy.quotas),
    }


def apply(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """POLICY.APPLY revision change: change the policy that has this revision, in one entry."""
    exactly(words, 2)
    revision = number(words[1], "the revision")
    try:
        change = _decode_change(words[2])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Wrong(f"the change is not one of a policy: {error}") from None
    command = ChangePolicy(revision, change, connection.principal)
    connection.door.node.submit(
        command, partial(_applied, slot), connection.lane if _is_there(connection) else None
    )


def _is_there(connection: Connection) -> bool:
    """Whether its lane is at the machine of the journal, whose policy it is."""
    return connection.node is connection.door.node


def _applied(slot: Slot, outcome: Outcome | FenceholdError, at_ms: int) -> None:
    if isinstance(outcome, PolicyChanged):
        slot.reply(
            {
                "revision": outcome.revision,
                "sessions_ended": outcome.sessions,
                "waiters_refused": outcome.waiters,
            }
        )
    else:
        refuse(slot, outcome, at_ms)


def who_am_i(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """WHOAMI: the principal of this connection, and what it is in the policy."""
    exactly(words, 0)
    book = connection.door.node.rulebook
    user = None if book is None else book.rights_of(connection.principal).user
    slot.reply(
        {
            "principal": connection.principal,
            "revision": 0 if book is None else book.revision,
            "known": int(book is None or user is not None),
            "roles": [] if user is None else list(user.roles),
            "admin": int(book is None or Verb.ADMIN in book.rights_of(connection.principal).everywhere),
            "ttl_ms_max": ttl_ms_max(book, connection.principal),
        }
    )


def ttl_ms_max(book: Rulebook | None, principal: str) -> int:
    """The longest ttl that the quota of a principal allows; 0: any."""
    quota = None if book is None else book.rights_of(principal).quota
    return 0 if quota is None or quota[1].mode is QuotaMode.COUNT else quota[1].ttl_ms


def can(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """CAN principal verb name: whether a principal may, and by which rule. Only an administrator may ask of
    others."""
    exactly(words, 3)
    principal, name = text(words[1], "the principal"), text(words[3], "the name")
    try:
        verb = Verb(text(words[2], "the verb").lower())
    except ValueError:
        verbs = ", ".join(each.value for each in Verb)
        raise Wrong(f"a verb is one of {verbs}, not {shown(words[2])}") from None
    own = rights_of(connection)
    if own is None:
        slot.reply({"allowed": 1, "known": 1, "role": "", "rule": "", "revision": 0})
        return
    if principal != connection.principal and not is_admin(connection):
        raise Denied(denied(connection.principal, Verb.ADMIN, "").detail)
    book: Rulebook = connection.node.rulebook or connection.door.node.rulebook  # type: ignore[assignment]
    slot.reply(_told(book.rights_of(principal), verb, name) | {"revision": book.revision})


def is_admin(connection: Connection) -> bool:
    """Whether the caller may administer the service."""
    book = connection.door.node.rulebook
    return book is None or Verb.ADMIN in book.rights_of(connection.principal).everywhere


def _told(rights: Rights, verb: Verb, name: str) -> dict[str, object]:
    decided = rights.decided("" if verb is Verb.ADMIN else name)
    verbs = rights.everywhere if verb is Verb.ADMIN else decided.verbs
    return {
        "allowed": int(verb in verbs),
        "known": int(rights.user is not None),
        "role": decided.role,
        "rule": "" if decided.rule is None else msgspec.json.encode(decided.rule).decode(),
    }


HANDLERS: dict[bytes, Handler] = {
    b"POLICY.GET": get,
    b"POLICY.APPLY": apply,
    b"WHOAMI": who_am_i,
    b"CAN": can,
}
