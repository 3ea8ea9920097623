"""That the simulation can fail: every planted bug is found near the seed noted for it, and called by its name."""

import pytest

from tests.simulation.bugs import BUGS, Bug
from tests.simulation.runs import run

pytestmark = pytest.mark.slow


TRIES = 20


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    """The checker names a guarantee that the bug breaks."""
    named: set[str] = set()
    for seed in range(bug.seed, bug.seed + TRIES):
        named |= {violation.guarantee for violation in run(seed, bug.name).violations}
        if named & set(bug.guarantees):
            return
    pytest.fail(f"{TRIES} seeds from {bug.seed} on show only {named}")
