"""The rulebook: a policy worked out, so that a check costs a table lookup or two.

1. What a principal may do to a name is worked out once and remembered, for so many names; a change of the policy
   makes another rulebook, so nothing remembered outlives it.
2. It is a function of the policy alone. It is in no snapshot, and every replica makes the same.
"""

from collections.abc import Iterable
from typing import NamedTuple

from fencehold.core.outcomes import Code, Refused
from fencehold.core.policy import ANY_NAME, WILD, Policy, Quota, Rule, Token, User, Verb

REMEMBERED_MAX = 65_536
"""Names for which the verbs are cached, of all principals together."""
SHORT = 4
"""With at most so many lengths of prefixes, a search takes no longer than a cache would, and needs none."""
PRINCIPALS_MAX = 16_384
"""Principals that are cached: those without a user of their own have no bound."""

Verbs = frozenset[Verb]
NOTHING: Verbs = frozenset()
_LAST = "\U0010ffff"


class Decided(NamedTuple):
    """What is allowed on a name, and by which rule of which role; for people."""

    verbs: Verbs
    role: str
    rule: Rule | None


class Rights:
    """What one principal may do."""

    __slots__ = (
        "_book",
        "_bounds",
        "_exact",
        "_is_short",
        "_lengths",
        "_prefixes",
        "_remembered",
        "principal",
        "quota",
        "user",
    )

    def __init__(self, book: "Rulebook", principal: str, user: User | None) -> None:
        self._book = book
        self.principal = principal
        self.user = None if user is None or user.disabled else user
        """None: not a user, or disabled; nothing is allowed."""
        self.quota = book.quota_of(principal)
        self._exact: dict[str, Verbs] = {}
        self._prefixes: dict[str, Verbs] = {}
        for rule in book.rules_of(self.user):
            table, text = (self._exact, rule.name) if rule.name is not None else (self._prefixes, rule.prefix)
            verbs, before = frozenset(rule.allow), table.get(text or "")
            # Nothing outranks something: a rule that allows nothing is there to forbid.
            table[text or ""] = verbs if before is None else (before | verbs if before and verbs else NOTHING)
        self._lengths = sorted({len(prefix) for prefix in self._prefixes}, reverse=True)
        self._is_short = len(self._lengths) <= SHORT
        self._remembered: dict[str, Verbs] = {}
        self._bounds: list[str] | None = None

    def is_there(self, token: str) -> bool:
        """Whether it is a user, and still has the token that it authenticated with, if any."""
        return self.user is not None and (not token or token in (self.user.tokens or ()))

    def on(self, name: str) -> Verbs:
        """What is allowed on a name."""
        if self._is_short:
            if self._exact and (verbs := self._exact.get(name)) is not None:
                return verbs
            prefixes = self._prefixes
            for length in self._lengths:
                if (verbs := prefixes.get(name[:length])) is not None and len(name) >= length:
                    return verbs
            return NOTHING
        verbs = self._remembered.get(name)
        return self._work_out(name) if verbs is None else verbs

    def _work_out(self, name: str) -> Verbs:
        verbs = self._exact.get(name)
        if verbs is None:
            verbs = self._by_prefix(name)
        if self._book.remembered >= REMEMBERED_MAX:
            self._book.forget()
        self._book.remembered += 1
        self._remembered[name] = verbs
        return verbs

    def _by_prefix(self, name: str) -> Verbs:
        for length in self._lengths:
            verbs = self._prefixes.get(name[:length])
            if verbs is not None and len(name) >= length:
                return verbs
        return NOTHING

    def forget(self) -> None:
        self._remembered.clear()

    def may(self, verb: Verb, name: str) -> bool:
        return verb in self.on(name)

    def sees(self, name: str) -> bool:
        """Whether it may see who holds a name."""
        return Verb.OBSERVE in self.on(name)

    def hears(self, name: str) -> bool:
        """Whether it may watch what happens to a name: that shows who holds it, too."""
        return {Verb.EVENTS, Verb.OBSERVE} <= self.on(name)

    @property
    def hears_all(self) -> bool:
        """Whether it may watch every name there may be: no rule that is more specific takes that from it."""
        tables = (self._exact, self._prefixes)
        heard = all({Verb.EVENTS, Verb.OBSERVE} <= verbs for table in tables for verbs in table.values())
        return heard and ANY_NAME in self._prefixes

    def seen(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of some names that it may see."""
        return tuple(name for name in names if self.sees(name))

    @property
    def everywhere(self) -> Verbs:
        """What is allowed where no rule is more specific: it decides what is about no name."""
        return self._prefixes.get(ANY_NAME, NOTHING)

    def may_somewhere(self, verb: Verb, prefix: str) -> bool:
        """Whether a verb is allowed on any name that begins with a prefix."""
        if verb in self._by_prefix(prefix):
            return True
        return any(
            verb in verbs and text.startswith(prefix)
            for table in (self._exact, self._prefixes)
            for text, verbs in table.items()
        )

    def next_bound(self, name: str) -> str:
        """A text from which on names may be seen again, when this one may not be; empty: no name after it may.

        It is made of rules alone: it reveals no name that is in use.
        """
        if self._bounds is None:
            texts = [*self._exact, *self._prefixes]
            self._bounds = sorted({*map(_just_before, texts), *(prefix + _LAST for prefix in self._prefixes)})
        return next((bound for bound in self._bounds if bound > name), "")

    def decided(self, name: str) -> Decided:
        """What is allowed on a name and why, for people: slow."""
        rules = list(self._book.rules_with_roles(self.user))
        exact = [(role, rule) for role, rule in rules if rule.name == name]
        fitting = [(r, rule) for r, rule in rules if rule.prefix is not None and name.startswith(rule.prefix)]
        longest = max((len(rule.prefix or "") for _, rule in fitting), default=0)
        found = exact or [(role, rule) for role, rule in fitting if len(rule.prefix or "") == longest]
        role, rule = next(((r, rule) for r, rule in found if not rule.allow), found[0] if found else ("", None))
        return Decided(self.on(name), role, rule)


def _just_before(text: str) -> str:
    """A text before this one, and after nearly all that are."""
    last = ord(text[-1]) if text else 0
    return text[:-1] + (chr(last - 1) + _LAST if last > 1 and not 0xD800 <= last - 1 <= 0xDFFF else "")


class Rulebook:
    """The rights of all principals."""

    __slots__ = ("_patterns", "_quotas", "_rights", "_tokens", "policy", "prefix_quotas", "remembered")

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.remembered = 0
        self.prefix_quotas: tuple[tuple[str, Quota], ...] = tuple(
            (name, quota) for name, quota in policy.quotas.items() if quota.prefix is not None
        )
        """By name, those of prefixes."""
        self._rights: dict[str, Rights] = {}
        self._tokens: dict[str, tuple[str, Token]] | None = None
        """By hash, with their users; made when a client first shows one."""
        self._patterns = sorted((name[:-1] for name in policy.users if name.endswith(WILD)), key=len, reverse=True)
        of_principals = [(name, quota) for name, quota in policy.quotas.items() if quota.principal is not None]
        self._quotas = sorted(of_principals, key=lambda each: _rank(each[1].principal or ""))

    @property
    def revision(self) -> int:
        return self.policy.revision

    def rights_of(self, principal: str) -> Rights:
        """The rights of a principal, known or not."""
        rights = self._rights.get(principal)
        if rights is None:
            if len(self._rights) >= PRINCIPALS_MAX:
                self.forget()
                self._rights.clear()
            rights = self._rights[principal] = Rights(self, principal, self.user_of(principal))
        return rights

    def user_of(self, principal: str) -> User | None:
        """The user that a principal is, by its own name or by how it begins."""
        # A principal whose name is spelled like a pattern is not matched by it.
        if not principal or principal.endswith(WILD):
            return None
        user = self.policy.users.get(principal)
        if user is not None:
            return user
        pattern = next((each for each in self._patterns if principal.startswith(each)), None)
        return None if pattern is None else self.policy.users[pattern + WILD]

    def find_token(self, digest: str) -> tuple[str, Token] | None:
        """Whose token has this hash, and what is kept of it."""
        if self._tokens is None:
            tables = ((name, user.tokens) for name, user in self.policy.users.items() if not user.disabled)
            self._tokens = {token.digest: (name, token) for name, t in tables for token in (t or {}).values()}
        return self._tokens.get(digest)

    def quota_of(self, principal: str) -> tuple[str, Quota] | None:
        """The quota of a principal, with its name: the most specific."""
        return next((each for each in self._quotas if _fits(each[1].principal or "", principal)), None)

    def rules_of(self, user: User | None) -> list[Rule]:
        """The rules of a user on the tier of this machine."""
        return [rule for _, rule in self.rules_with_roles(user)]

    def rules_with_roles(self, user: User | None) -> list[tuple[str, Rule]]:
        if user is None:
            return []
        roles = self.policy.roles
        return [(role, rule) for role in user.roles for rule in roles[role].rules if rule.tier != "efficiency"]

    def forget(self) -> None:
        """Clear the cache: it is full."""
        self.remembered = 0
        for rights in self._rights.values():
            rights.forget()


def _rank(pattern: str) -> tuple[bool, int, str]:
    """Exact ones first, then the longer the earlier."""
    return pattern.endswith(WILD), -len(pattern), pattern


def _fits(pattern: str, principal: str) -> bool:
    return principal.startswith(pattern[:-1]) if pattern.endswith(WILD) else principal == pattern


def denied(principal: str, verb: Verb, name: str) -> Refused:
    """The refusal of a principal without the right; it says nothing of the name beyond what the request said."""
    who = repr(principal) if principal else "a connection that has not said who it is"
    words = {Verb.ADMIN: "administer this service", Verb.EVENTS: f"hear of events of {name!r}"}
    what = words.get(verb, f"{verb.value} {name!r}")
    return Refused(Code.DENIED, f"{who} may not {what}")


def unknown(principal: str) -> Refused:
    """The refusal of an unknown or a disabled user: the same words, so that guessing reveals nothing."""
    if not principal:
        return Refused(Code.DENIED, "this service has a policy, and this connection has not said who it is")
    return Refused(Code.DENIED, f"{principal!r} is not a user here, or is disabled")


def revoked(principal: str) -> Refused:
    """The refusal of a user whose token was revoked."""
    return Refused(Code.DENIED, f"the token that {principal!r} came with was revoked")
