"""Policy: who may do what, and how much of it, as replicated data. What it means is worked out in `rulebook`.

1. *Deny by default.* While there is no policy (revision 0) every client may do everything. From the first change
   on, a principal that is no user, or a disabled one, may do nothing.
2. A user has roles, a role has rules, a rule allows verbs on one name or on all names with a prefix, on one tier
   or on both. *The most specific rule decides*: an exact name beats every prefix, a longer prefix a shorter one.
   Of rules equally specific, of several roles, the verbs add up; but one that allows nothing forbids all of them.
3. `admin` is about the service, not about names: it is allowed on the prefix "" or not at all.
4. A user whose name ends with ``*`` stands for all principals that begin with the rest, each by itself, unless a
   longer one matches. It has no secret: certificates say who such principals are.
5. It is changed by one command, whole or not at all, and only by a caller that knows the revision it changes. A
   change never leaves the service without an administrator, so no slip can lock all of them out.
6. Secrets are here as salted hashes only, tokens as hashes. They are opaque to the machine, but for this: a
   session that was opened with a token ends with it. When a token expires is a matter of the time of day, which
   the machine does not know: that is checked at login.
"""

import re
from enum import Enum
from operator import itemgetter
from typing import Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from fencehold.core.outcomes import Code, Refused

Named = TypeVar("Named")

ANY_NAME = ""
USERS_MAX, ROLES_MAX, QUOTAS_MAX = 10_000, 1_000, 1_000
RULES_PER_ROLE_MAX, ROLES_PER_USER_MAX, SECRETS_PER_USER_MAX = 256, 32, 8
TEXT_BYTES_MAX = 256
"""Of the name of a user, a role or a quota, and of a name or a prefix in a rule."""
SECRET_BYTES_MAX = 512
"""Of the hash of one."""
TOKENS_MAX, TOKENS_PER_USER_MAX = 10_000, 64
TOKEN_ID_LENGTH = 16
"""The id of a token is so many digits of its hash: of a token that leaked, anyone can work out which it is."""

WILD = "*"
_DIGEST = re.compile("[0-9a-f]{64}")
_SECONDS_MAX = 1 << 40


class Verb(Enum):
    """What a right is about."""

    # By identity: an Enum's own is a call in Python, for every name of every request.
    __hash__ = object.__hash__

    ACQUIRE = "acquire"
    """Ask for a name, wait for it, extend a hold on it."""
    OBSERVE = "observe"
    """See who holds a name and who waits for it."""
    BREAK = "break"
    """End the holds of others on it."""
    EVENTS = "events"
    """Watch, with `observe` as well, what happens to it as it happens."""
    ADMIN = "admin"
    """Change the policy; back up; speak as a node."""


class QuotaMode(Enum):
    """What happens to a request beyond a quota."""

    ENFORCE = "enforce"
    COUNT = "count"
    """It is allowed, and counted: to see what a quota would refuse, before it does."""


class Rule(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Verbs on a name, or on all names with a prefix. Either `name` or `prefix` is given."""

    allow: tuple[Verb, ...]
    name: str | None = None
    prefix: str | None = None
    tier: Literal["any", "correctness", "efficiency"] = "any"


class Role(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Rules under a name."""

    rules: tuple[Rule, ...] = ()


class Token(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A token of a service, as far as it is kept."""

    digest: str
    """Its SHA-256, in hexadecimal: it has 256 random bits, so there is nothing to be guessed."""
    made_s: int = 0
    """In Unix seconds, as is the next; for people."""
    expires_s: int = 0
    """From when on it is no longer accepted; 0: never."""


class User(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A principal, or all that begin alike."""

    roles: tuple[str, ...] = ()
    disabled: bool = False
    secrets: tuple[str, ...] | None = None
    """Salted hashes, any of which admits. In a change, None leaves those that are there."""
    tokens: dict[str, Token] | None = None
    """By id, any of which admits; None: none. In a change, None leaves those that are there."""


class Quota(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How much each of some principals may have, or all of them together on names with a prefix. 0: no bound.

    Either `principal` or `prefix` is given. A principal's own quota beats one with ``*``, and a longer one a
    shorter; of prefixes all that match count.
    """

    principal: str | None = None
    """A user, or a beginning and ``*``: each principal that begins so, by itself."""
    prefix: str | None = None
    sessions: int = 0
    """Of principals only, as are commands."""
    holds: int = 0
    """Names held and awaited, so that a grant to a waiter never exceeds it."""
    waiters: int = 0
    """Requests that wait."""
    commands_per_s: int = 0
    ttl_ms: int = 0
    """The longest of a hold; of a session, too, for a hold may live as long as that."""
    wait_ms: int = 0
    mode: QuotaMode = QuotaMode.ENFORCE


class Policy(Struct, frozen=True):
    """All of it. The tables are sorted by name, so that equal policies have equal bytes."""

    revision: int = 0
    users: dict[str, User] = {}
    roles: dict[str, Role] = {}
    quotas: dict[str, Quota] = {}


NO_POLICY = Policy()


class PolicyChange(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is put in the place of what has that name, if anything has; None: what is removed."""

    users: dict[str, User | None] = {}
    roles: dict[str, Role | None] = {}
    quotas: dict[str, Quota | None] = {}
    tokens: dict[str, dict[str, Token | None]] = {}
    """By user and id; those that are not named stay."""


def token_id(digest: str) -> str:
    """The id of a token, by its hash."""
    return digest[:TOKEN_ID_LENGTH]


def changed(policy: Policy, change: PolicyChange) -> Policy | Refused:
    """The policy after a change, or why the change is refused."""
    users = dict(policy.users)
    for name, user in change.users.items():
        if user is None:
            users.pop(name, None)
        else:
            before = users.get(name) or User()
            secrets = before.secrets or () if user.secrets is None else user.secrets
            tokens = before.tokens if user.tokens is None else user.tokens
            users[name] = replace(user, secrets=secrets, tokens=tokens or None)
    for name, tokens_of in change.tokens.items():
        if name not in users:
            return Refused(Code.USAGE, f"a token belongs to a user, and there is no user {name!r}")
        # None, and not an empty table: a user without tokens has the bytes it always had.
        users[name] = replace(users[name], tokens=_merged(users[name].tokens or {}, tokens_of) or None)
    after = Policy(
        policy.revision + 1,
        dict(sorted(users.items())),
        _merged(policy.roles, change.roles),
        _merged(policy.quotas, change.quotas),
    )
    wrong = _wrong_users(after) or _wrong_roles(after) or _wrong_quotas(after) or _wrong_whole(after)
    return Refused(Code.USAGE, wrong) if wrong else after


def _merged(table: dict[str, Named], change: dict[str, Named | None]) -> dict[str, Named]:
    both = {**table, **change}
    return {name: each for name, each in sorted(both.items(), key=itemgetter(0)) if each is not None}


def _wrong_text(what: str, text: str) -> str:
    size = len(text.encode("utf-8", "surrogatepass"))
    if not 0 < size <= TEXT_BYTES_MAX:
        return f"{what} has 1 to {TEXT_BYTES_MAX} bytes, not {size}"
    if not text.isprintable():
        return f"{what} has only printable characters, not as {text[:40]!a}"
    return ""


def _wrong_users(policy: Policy) -> str:
    for name, user in policy.users.items():
        if wrong := _wrong_text("the name of a user", name):
            return wrong
        unknown = [role for role in user.roles if role not in policy.roles]
        if unknown:
            return f"user {name!r} has the role {unknown[0]!r}, which does not exist"
        secrets = user.secrets or ()
        if name.endswith(WILD) and secrets:
            return f"user {name!r} is a pattern: it has no secret"
        if len(secrets) > SECRETS_PER_USER_MAX or any(not 0 < len(each) <= SECRET_BYTES_MAX for each in secrets):
            return (
                f"user {name!r} has at most {SECRETS_PER_USER_MAX} secrets, as hashes of {SECRET_BYTES_MAX} bytes"
            )
        if user.tokens and (wrong := _wrong_tokens(name, user.tokens)):
            return wrong
        if len(user.roles) > ROLES_PER_USER_MAX:
            return f"user {name!r} has at most {ROLES_PER_USER_MAX} roles, not {len(user.roles)}"
    return ""


def _wrong_tokens(name: str, tokens: dict[str, Token]) -> str:
    if name.endswith(WILD):
        return f"user {name!r} is a pattern: it has no token"
    if len(tokens) > TOKENS_PER_USER_MAX:
        return f"user {name!r} has at most {TOKENS_PER_USER_MAX} tokens, not {len(tokens)}"
    for key, token in tokens.items():
        if _DIGEST.fullmatch(token.digest) is None or key != token_id(token.digest):
            return f"a token is kept as its SHA-256 in hexadecimal, and called by {TOKEN_ID_LENGTH} digits of it"
        if min(token.made_s, token.expires_s) < 0 or max(token.made_s, token.expires_s) > _SECONDS_MAX:
            return "the times of a token are Unix seconds"
    return ""


def _wrong_roles(policy: Policy) -> str:
    for name, role in policy.roles.items():
        if wrong := _wrong_text("the name of a role", name):
            return wrong
        if len(role.rules) > RULES_PER_ROLE_MAX:
            return f"role {name!r} has at most {RULES_PER_ROLE_MAX} rules, not {len(role.rules)}"
        for rule in role.rules:
            if wrong := _wrong_rule(rule):
                return f"role {name!r}: {wrong}"
    return ""


def _wrong_rule(rule: Rule) -> str:
    if (rule.name is None) == (rule.prefix is None):
        return "a rule has either a name or a prefix"
    if rule.name == "":
        return "a name is not empty; the prefix '' begins every name"
    if len((rule.name or rule.prefix or "").encode("utf-8", "surrogatepass")) > TEXT_BYTES_MAX:
        return f"a name or a prefix has at most {TEXT_BYTES_MAX} bytes"
    if Verb.ADMIN in rule.allow and rule.prefix != ANY_NAME:
        return "admin is about the service, not about names: allow it on the prefix ''"
    return ""


def _wrong_quotas(policy: Policy) -> str:
    for name, quota in policy.quotas.items():
        if wrong := _wrong_text("the name of a quota", name) or _wrong_quota(quota):
            return wrong if wrong.startswith("the name") else f"quota {name!r}: {wrong}"
    return ""


def _wrong_quota(quota: Quota) -> str:
    if (quota.principal is None) == (quota.prefix is None):
        return "a quota is of a principal or of a prefix"
    numbers = (quota.sessions, quota.holds, quota.waiters, quota.commands_per_s, quota.ttl_ms, quota.wait_ms)
    if any(number < 0 for number in numbers) or not any(numbers):
        return "it bounds something, by whole numbers above 0"
    if quota.prefix is not None and (quota.sessions or quota.commands_per_s):
        return "sessions and commands are a principal's, not a prefix's"
    if len((quota.principal or quota.prefix or "").encode("utf-8", "surrogatepass")) > TEXT_BYTES_MAX:
        return f"a principal or a prefix has at most {TEXT_BYTES_MAX} bytes"
    return ""


def _wrong_whole(policy: Policy) -> str:
    tokens = [key for user in policy.users.values() for key in user.tokens or ()]
    if len(set(tokens)) < len(tokens):
        return "two users have the same token: make one for each"
    for what, count, most in (
        ("tokens", len(tokens), TOKENS_MAX),
        ("users", len(policy.users), USERS_MAX),
        ("roles", len(policy.roles), ROLES_MAX),
        ("quotas", len(policy.quotas), QUOTAS_MAX),
    ):
        if count > most:
            return f"a policy has at most {most} {what}, not {count}"
    if not any(is_admin(policy, user) for user in policy.users.values()):
        return "a policy has at least one enabled user with the right admin: without one it could never change"
    return ""


def is_admin(policy: Policy, user: User) -> bool:
    """Whether a user may administer the service."""
    rules = [rule for role in user.roles for rule in policy.roles[role].rules if rule.prefix == ANY_NAME]
    rules = [rule for rule in rules if rule.tier != "efficiency"]
    return not user.disabled and all(rule.allow for rule in rules) and any(Verb.ADMIN in r.allow for r in rules)


def for_efficiency(policy: Policy) -> Policy:
    """The part of a policy that is about the tier without a journal, as its machine gets it: it knows one tier."""
    roles = {
        name: Role(tuple(replace(rule, tier="any") for rule in role.rules if rule.tier != "correctness"))
        for name, role in policy.roles.items()
    }
    users = {name: replace(user, secrets=()) for name, user in policy.users.items()}
    return replace(policy, users=users, roles=roles)
