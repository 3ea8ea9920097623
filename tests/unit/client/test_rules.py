"""Rules: which names are for which tier, whatever a caller says."""

from typing import Any

import pytest

from fencehold import CORRECTNESS, EFFICIENCY, UsageError
from fencehold.client.rules import Rules, rules_of
from fencehold.types import Tier


@pytest.mark.parametrize(
    ("name", "tier"),
    [
        ("wallet:7", CORRECTNESS),
        ("wallet:", CORRECTNESS),
        ("wallet", None),
        ("wallet:cache:7", EFFICIENCY),
        ("wallet:cache:total", CORRECTNESS),
        ("report", EFFICIENCY),
        ("report:2", None),
    ],
)
def test_the_longest_rule_that_matches_says(name: str, tier: Tier | None) -> None:
    """A rule is a whole name, or a beginning with a star; order does not matter."""
    said: dict[str, Tier | str] = {
        "wallet:*": CORRECTNESS,
        "wallet:cache:total": CORRECTNESS,
        "report": "efficiency",
        "wallet:cache:*": "EFFICIENCY",
    }
    assert rules_of(said).tier(name) is tier
    assert rules_of(dict(reversed(list(said.items())))).tier(name) is tier


def test_a_star_alone_is_for_all_names() -> None:
    """Whatever nothing else is said of."""
    rules = rules_of({"*": CORRECTNESS, "cache:*": EFFICIENCY})
    assert (rules.tier("a"), rules.tier("cache:a")) == (CORRECTNESS, EFFICIENCY)


def test_a_name_for_correctness_is_not_had_for_efficiency() -> None:
    """Neither alone nor among others; the message names it."""
    rules = rules_of({"wallet:*": CORRECTNESS, "cache:*": EFFICIENCY})
    rules.check(("cache:1", "other"), EFFICIENCY)
    with pytest.raises(UsageError, match="'wallet:7' is always CORRECTNESS, by the rules"):
        rules.check(("cache:1", "wallet:7"), EFFICIENCY)


def test_asking_for_more_than_a_rule_says_is_never_wrong() -> None:
    """A rule for EFFICIENCY permits, and lowers nothing."""
    rules_of({"cache:*": EFFICIENCY}).check(("cache:1",), CORRECTNESS)


def test_without_rules_everything_goes() -> None:
    """None, and nothing, are the same."""
    assert rules_of(None) == rules_of({}) == Rules()
    Rules().check(("anything",), EFFICIENCY)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"a*b": CORRECTNESS}, "a beginning of names and `\\*`: 'a\\*b'"),
        ({"": CORRECTNESS}, "a rule is for a name"),
        ({7: CORRECTNESS}, "a rule is for a name"),
        ({"a": "safety"}, "the rule for 'a' says CORRECTNESS or EFFICIENCY, not 'safety'"),
        ({"a": 1}, "the rule for 'a' says CORRECTNESS or EFFICIENCY, not 1"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(said: dict[Any, Any], words: str) -> None:
    """With what was said, and what can be."""
    with pytest.raises(UsageError, match=words):
        rules_of(said)
