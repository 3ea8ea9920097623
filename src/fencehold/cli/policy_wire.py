"""The policy of a server, as commands read it and change it: read whole, changed in one entry."""

import json
from typing import Any

import msgspec
from msgspec import Struct

from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail
from fencehold.cli.wire import Wire
from fencehold.core.policy import PolicyChange, Quota, Role, Verb
from fencehold.errors import Refused, UsageError

_CHANGE_BYTES_MAX = 63 << 10
"""A frame has 64 KiB."""


class ListedToken(Struct, frozen=True):
    """A token as shown: since when, and until when, in Unix seconds; 0: unknown, and without end."""

    made_s: int = 0
    expires_s: int = 0


class Listed(Struct, frozen=True):
    """A user as shown: how many secrets it has, and the names of its tokens."""

    roles: tuple[str, ...] = ()
    disabled: bool = False
    secrets: int = 0
    tokens: dict[str, ListedToken] = {}


class Current(Struct, frozen=True):
    """The policy that a server has."""

    revision: int
    users: dict[str, Listed]
    roles: dict[str, Role]
    quotas: dict[str, Quota]
    used: dict[str, dict[str, int]]
    exceeded: dict[str, dict[str, int]]


def current(wire: Wire) -> Current:
    """The policy of the leader."""
    told = wire.call("POLICY.GET")
    tables = {**json.loads(told["policy"]), "used": json.loads(told["used"])}
    tables |= {"exceeded": json.loads(told["exceeded"]), "revision": told["revision"]}
    return msgspec.convert(tables, Current)


def apply(wire: Wire, revision: int, change: PolicyChange) -> dict[str, Any]:
    """Change the policy that has this revision.

    Raises: what ends the command, if it has another by now.
    """
    data = msgspec.json.encode(change)
    if len(data) > _CHANGE_BYTES_MAX:
        size = f"{len(data) >> 10} KiB, of at most {_CHANGE_BYTES_MAX >> 10}"
        raise UsageError(f"too large for one step ({size}): apply it in parts, roles before users")
    try:
        told: dict[str, Any] = wire.call("POLICY.APPLY", revision, data.decode())
    except Refused as refused:
        if "read it again" not in str(refused):
            raise
        raise fail(
            Exit.NO, "the policy was changed meanwhile", "check the plan again, and repeat the command"
        ) from None
    return told


def is_admin(roles: dict[str, Role], user: Listed) -> bool:
    """Whether a user may administer the service, as far as roles say so."""
    rules = [rule for role in user.roles if role in roles for rule in roles[role].rules]
    return not user.disabled and any(Verb.ADMIN in rule.allow for rule in rules)
