"""Which seeds soon show each planted bug: `python -m tests.property.seeds` prints the table of `test_mutations`.

For the day on which the rules of the conversation have changed, and what was found soon takes long.
"""

import argparse
import sys
import time
from collections.abc import Callable

import pytest

from fencehold.errors import InvariantViolated
from tests.property.conversation import Conversation, make_small
from tests.property.draws import by_the_seed_alone
from tests.property.test_mutations import BUGS, NAMED, Patch, Unmodelled, talk_from

SOON_S = 0.35
"""Quick enough to look no further: of processor time, for both judges."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=80, help="how many to try for each bug")
    arguments = parser.parse_args()
    for bug in BUGS:
        took_s, number = _quickest(bug, arguments.seeds)
        sys.stdout.write(f"    {bug.__name__}: {number},  # {took_s:.2f} s\n")
        sys.stdout.flush()


def _quickest(bug: Callable[[Patch], None], seeds: int) -> tuple[float, int]:
    """The quickest of the seeds up to the first that is quick enough."""
    best = float("inf"), 0
    for number in range(1, seeds + 1):
        best = min(best, (cost_s(bug, number), number))
        if best[0] < SOON_S:
            break
    return best


def cost_s(bug: Callable[[Patch], None], number: int) -> float:
    """What it costs to find a bug from a seed on, by each that judges it; endless, if one does not find it."""
    began_at = time.process_time()
    for kind in (Conversation, Unmodelled) if bug in NAMED else (Conversation,):
        with pytest.MonkeyPatch.context() as patch, by_the_seed_alone():
            make_small(patch)
            bug(patch)
            try:
                talk_from(kind, number)
            except (AssertionError, InvariantViolated, KeyError) as error:
                if kind is Conversation or str(error).startswith("G"):
                    continue
        return float("inf")
    return time.process_time() - began_at


if __name__ == "__main__":
    main()
