"""The benchmark of rights compares what it says it does, and floods of principals are among the phases."""

import msgspec

from bench import abuse, security, wild_principal
from bench.abuse import PRINCIPALS
from bench.ruled import USERS, policy
from fencehold.core.policy import NO_POLICY, Policy, PolicyChange, changed
from fencehold.security.tokens import digest_of, new_token


def test_every_kind_is_there_with_and_without_a_policy() -> None:
    """In pairs, so that each ratio is of two figures of one run."""
    contest = security.BENCHMARK.build(True)
    names = [contestant.name for contestant in contest.contestants]
    assert names == ["no policy, memory", "a policy, memory", "no policy, synced", "a policy, synced"]
    assert [must.bar for must in contest.musts] == [1.05, 1.05]


def test_the_policy_is_one() -> None:
    """Of a hundred users and more, of whom those with tokens are let in."""
    tokens = {"neighbour": new_token(), "root": new_token()}
    made = changed(NO_POLICY, msgspec.convert(policy(tokens), PolicyChange))
    assert isinstance(made, Policy)
    assert len(made.users) == USERS + 2
    kept = made.users["neighbour"].tokens or {}
    assert [token.digest for token in kept.values()] == [digest_of(tokens["neighbour"])]


def test_floods_of_a_principal_are_phases_of_abuse() -> None:
    """Each of them beside another principal."""
    names = [contestant.name for contestant in abuse.BENCHMARK.build(True).contestants]
    assert {f"{PRINCIPALS}: {kind}" for kind in wild_principal.KINDS} <= set(names)
