"""Leaders spread themselves over the nodes that are alive, and then stay where they are."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fencehold.placement.spread import Membership, Sight, handovers

NODES = ["a", "b", "c", "d", "e"]
SIGHTS = st.sets(st.sampled_from(NODES), min_size=1).flatmap(
    lambda alive: st.builds(
        Sight,
        st.lists(st.sampled_from(sorted(alive)), min_size=1, max_size=24).map(tuple),
        st.just(frozenset(alive)),
    )
)


def after(sight: Sight, node: str) -> Sight:
    """What is seen when a node has handed over what it is to."""
    leaders = list(sight.leaders)
    for shard, taker in handovers(sight, node).items():
        assert leaders[shard] == node
        leaders[shard] = taker
    return sight._replace(leaders=tuple(leaders))


def counts(sight: Sight) -> list[int]:
    led = Counter(sight.leaders)
    return sorted(led[node] for node in sight.alive)


@given(SIGHTS)
def test_when_all_have_acted_nobody_leads_two_more_than_another(sight: Sight) -> None:
    """Each node acts on its own part of the same sight, and together they are spread; then nothing moves."""
    told = {node: handovers(sight, node) for node in sorted(sight.alive)}
    leaders = list(sight.leaders)
    for node, due in told.items():
        for shard, taker in due.items():
            assert leaders[shard] == node
            leaders[shard] = taker
    spread = sight._replace(leaders=tuple(leaders))
    assert counts(spread)[-1] - counts(spread)[0] <= 1
    assert not any(handovers(spread, node) for node in sorted(sight.alive))


@given(SIGHTS, st.lists(st.sampled_from(NODES), max_size=12))
def test_acting_one_after_the_other_never_makes_it_worse(sight: Sight, order: list[str]) -> None:
    """In whatever order nodes act, and however often, the difference only shrinks and no shard goes round."""
    moved: Counter[int] = Counter()
    for node in order:
        if node in sight.alive:
            seen = after(sight, node)
            assert counts(seen)[-1] - counts(seen)[0] <= max(1, counts(sight)[-1] - counts(sight)[0])
            moved.update(shard for shard, leader in enumerate(seen.leaders) if leader != sight.leaders[shard])
            sight = seen
    assert all(times <= len(NODES) for times in moved.values())


@given(SIGHTS, st.sampled_from(NODES))
def test_while_a_leader_is_not_known_nothing_moves(sight: Sight, node: str) -> None:
    """Somebody is about to take that shard: who, would be a guess."""
    unknown = sight._replace(leaders=("", *sight.leaders))
    gone = sight._replace(leaders=("x", *sight.leaders))
    assert handovers(unknown, node) == handovers(gone, node) == {}


def test_a_membership_is_believed_when_it_has_stayed_the_same() -> None:
    """Who comes and goes within the time moves nothing."""
    one, two = Sight(("a",), frozenset("a")), Sight(("a",), frozenset("ab"))
    membership = Membership(3.0)
    seen = [membership.is_settled(sight, now) for now, sight in enumerate([one, two, one, one, one, one, two])]
    assert seen == [False, False, False, False, False, True, False]
