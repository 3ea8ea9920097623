"""Two clients cross in shards that different nodes lead: the service tells them, whoever of the nodes dies."""

from pathlib import Path

import pytest

from tests.robustness.crossing import crossed

GENEROUS_S = 15.0


@pytest.mark.slow
@pytest.mark.guarantee("G9")
async def test_a_deadlock_across_nodes_is_told_to_one_and_the_other_goes_on(tmp_path: Path) -> None:
    """Exactly one is refused, with the whole circle, also when a leader was killed before they waited."""
    rounds = await crossed(tmp_path, 2)
    assert [each.wrong for each in rounds] == [(), ()]
    assert [bool(each.killed) for each in rounds] == [False, True]
    assert max(each.refused_s for each in rounds) < GENEROUS_S
