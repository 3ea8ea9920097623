"""Rules: which tier a name is for, whatever a caller says.

1. A rule is a name, or a prefix of names with a `*` at its end. Of several that match, the longest counts.
2. A name that is CORRECTNESS by a rule is always that: EFFICIENCY is refused, before anything happens.
   Asking for more than a rule says is never wrong.
"""

from collections.abc import Mapping
from typing import NamedTuple

from fencehold.errors import UsageError
from fencehold.types import Tier


class Rules(NamedTuple):
    """The rules; the longest first."""

    rules: tuple[tuple[str, Tier], ...] = ()

    def tier(self, name: str) -> Tier | None:
        """The tier of a name by the rules; None if no rule matches."""
        for pattern, tier in self.rules:
            if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
                return tier
        return None

    def check(self, names: tuple[str, ...], tier: Tier) -> None:
        """Raise `UsageError` if a name must not be acquired in a tier."""
        if tier is Tier.CORRECTNESS:
            return
        for name in names:
            if self.tier(name) is Tier.CORRECTNESS:
                raise UsageError(
                    f"{name!r} is always CORRECTNESS, by the rules of this client: "
                    "tier=EFFICIENCY would let two work on it at once"
                )


def rules_of(said: Mapping[str, Tier | str] | None) -> Rules:
    """Read rules as they were given: `{"wallet:*": CORRECTNESS}`; a tier may be its name.

    Raises:
        UsageError: a rule makes no sense.
    """
    found = [(_pattern(pattern), _tier(pattern, tier)) for pattern, tier in (said or {}).items()]
    return Rules(tuple(sorted(found, key=lambda rule: (len(rule[0]), rule[0]), reverse=True)))


def _pattern(pattern: str) -> str:
    if not isinstance(pattern, str) or not pattern or "*" in pattern[:-1]:
        raise UsageError(f"a rule is for a name, or for a beginning of names and `*`: {pattern!r}")
    return pattern


def tier_of(given: Tier | str) -> Tier:
    """A tier, as itself or by its name, in upper or lower case.

    Raises:
        UsageError: there is no such tier.
    """
    if isinstance(given, Tier):
        return given
    for tier in Tier:
        if isinstance(given, str) and given.lower() == tier.value:
            return tier
    known = " or ".join(f'fencehold.{tier.name} ("{tier.value}")' for tier in Tier)
    raise UsageError(f"tier is {known}, not {given!r}")


def _tier(pattern: str, tier: Tier | str) -> Tier:
    try:
        return tier_of(tier)
    except UsageError:
        raise UsageError(f"the rule for {pattern!r} says CORRECTNESS or EFFICIENCY, not {tier!r}") from None
