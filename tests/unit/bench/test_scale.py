"""The model at scale: what it says follows from what was measured, and its memory is checked against a machine."""

import pytest

from bench.scale import (
    Shape,
    Units,
    answers,
    failover_s,
    keep_alives_per_s,
    leader_cpu_per_shard,
    machine_bytes,
    nodes_needed,
    state_bytes_per_shard,
)

UNITS = Units(340.0, 930.0, 3_600.0, 25.0, 45.0, 120.0, 2.6, 1_500.0)


def test_the_model_says_of_the_known_shape_what_the_page_says() -> None:
    """The figures of the page follow from the unit costs it names."""
    shape = Shape()
    assert keep_alives_per_s(shape) == 400_000
    assert leader_cpu_per_shard(UNITS, shape) == pytest.approx(0.08, rel=0.05)
    assert state_bytes_per_shard(UNITS, shape) == pytest.approx(190e6, rel=0.05)
    assert nodes_needed(UNITS, shape)["connections"] == 250
    assert failover_s(UNITS, shape, 40, 2, 800_000) == pytest.approx(
        {"until others lead": 2.0, "until all are back": 48.0}
    )
    assert {each.what for each in answers(UNITS, shape)} >= {"keep-alives", "state of a shard", "nodes"}


def test_fewer_shards_for_each_client_cost_less() -> None:
    """A tag that keeps a client at one shard is worth what the model says: a quarter of all sessions."""
    one = Shape(shards_per_client=1.0)
    assert keep_alives_per_s(one) == keep_alives_per_s(Shape()) / 4
    assert nodes_needed(UNITS, one)["connections"] == nodes_needed(UNITS, Shape())["connections"] / 4


def test_the_memory_of_a_machine_is_what_its_names_cost() -> None:
    """Measured at one size it says what another takes."""
    small, large = machine_bytes(10_000, 100), machine_bytes(30_000, 100)
    assert 150 < (large - small) / 20_000 < 700
