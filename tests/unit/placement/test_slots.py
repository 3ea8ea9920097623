"""Slots are those of Redis Cluster, to the last name."""

from hypothesis import example, given
from hypothesis import strategies as st
from redis.crc import key_slot

from fencehold.placement.slots import SLOTS, slot_of, slots_of

NAMES = st.text(st.sampled_from("{}ab:é世") | st.characters(codec="utf-8"), min_size=1, max_size=40)


@given(NAMES)
@example("{user1000}.following")
@example("foo{}{bar}")
@example("foo{{bar}}zap")
@example("foo{bar}{zap}")
@example("}{")
@example("{")
def test_a_slot_is_what_redis_cluster_clients_compute(name: str) -> None:
    """Any text has the slot that redis-py's own function gives it."""
    assert slot_of(name) == key_slot(name.encode(), SLOTS)


def test_names_with_one_tag_share_a_slot() -> None:
    """What is in braces decides alone, so that several names can be locked in one step."""
    assert slots_of(["{order:7}.stock", "{order:7}.payment", "order:7"]) == [slot_of("order:7")]
