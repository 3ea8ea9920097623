"""The leader's machine is cut off from the others, in network namespaces."""

from pathlib import Path

import pytest

from tests.robustness.load import Shape
from tests.robustness.partition import cut_off

GENEROUS_S = 15.0
"""The real bars are those of `partition`."""


@pytest.mark.slow
@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G7")
@pytest.mark.guarantee("G10")
def test_the_minority_side_grants_nothing_and_the_majority_goes_on(tmp_path: Path) -> None:
    """Cut off with etcd's leader: errors on its side, no failed request on the other; then all agree again."""
    partitions, wrong = cut_off(tmp_path, rounds=1, shape=Shape(ttl_s=30.0, connect_timeout_s=8.0))
    assert wrong == []
    (partition,) = partitions
    assert partition.had_etcd_leader
    assert partition.refused_inside > 0
    assert max(partition.refusal_s_max, *partition.each_client_s) < GENEROUS_S
