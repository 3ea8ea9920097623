"""Which seeds soon show each planted bug: `python -m tests.simulation.bug_seeds` prints them, for `bugs.BUGS`.

For the day on which the traffic of the simulation has changed, and what was found soon takes long.
"""

import argparse
import sys
import time
from itertools import islice

from tests.simulation.bugs import BUGS, Bug
from tests.simulation.runs import run, seeds_from
from tests.simulation.test_bugs import LENGTHS_S

SOON_S = 1.0
"""Quick enough to look no further: of processor time."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many to try for each bug")
    parser.add_argument("--only", default="", help="the bugs whose name has this in it")
    arguments = parser.parse_args()
    for bug in BUGS:
        if arguments.only in bug.name:
            took_s, seed, shown = _quickest(bug, arguments.seeds)
            sys.stdout.write(f"{bug.name}: seed {seed}, {took_s:.2f} s; of those tried {shown:.0%} show it\n")
            sys.stdout.flush()


def _quickest(bug: Bug, seeds: int) -> tuple[float, int, float]:
    """The quickest of the seeds up to the first that is quick enough, and how many of them show the bug."""
    best, shown, tried = (float("inf"), 0), 0, 0
    for seed in islice(seeds_from(1, of_moves=bug.of_moves), seeds):
        begun = time.process_time()
        found = {violation.guarantee for violation in run(seed, bug.name, chaos_s=LENGTHS_S[0]).violations}
        tried += 1
        if found & set(bug.guarantees):
            shown += 1
            best = min(best, (time.process_time() - begun, seed))
            if best[0] < SOON_S:
                break
    return *best, shown / tried


if __name__ == "__main__":
    main()
