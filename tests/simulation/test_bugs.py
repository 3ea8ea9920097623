"""That the simulation can fail: every planted bug is found near the seed noted for it, and called by its name.

At a push short runs come first, in which bugs are found as well, at an eighth of the price; with `LONG=1` all are
whole.
"""

from itertools import islice, product

import pytest

from tests.depth import deep
from tests.simulation.bugs import BUGS, Bug
from tests.simulation.runs import run, seeds_from
from tests.simulation.world import CHAOS_S

pytestmark = pytest.mark.slow

TRIES = 20
LENGTHS_S = deep((40.0, CHAOS_S), (CHAOS_S,))


def seeds_of(bug: Bug) -> list[int]:
    """The one noted for it, and some more."""
    return list(islice(seeds_from(bug.seed, of_moves=bug.of_moves), TRIES))


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    """The checker names a guarantee that the bug breaks."""
    named: set[str] = set()
    for length_s, seed in product(LENGTHS_S, seeds_of(bug)):
        named |= {violation.guarantee for violation in run(seed, bug.name, chaos_s=length_s).violations}
        if named & set(bug.guarantees):
            return
    pytest.fail(f"{TRIES} seeds from {bug.seed} on show only {named}")
