"""Tuning: what a serving process changes of the interpreter, and nobody else."""

import subprocess
import sys

PROBE = """
import gc, sys
import fencehold, fencehold.server
before = (sys.getswitchinterval(), gc.get_threshold())
from fencehold.runtime.tuning import tune_for_serving
assert (sys.getswitchinterval(), gc.get_threshold()) == before, "importing changes nothing"
tune_for_serving()
assert sys.getswitchinterval() < before[0] / 10
assert gc.get_threshold()[0] > 10 * before[1][0]
assert gc.isenabled() and gc.get_freeze_count() > 1_000
"""


def test_only_a_process_that_serves_is_tuned() -> None:
    """Importing Fencehold leaves the interpreter as it is; serving switches threads sooner and collects later."""
    subprocess.run([sys.executable, "-c", PROBE], check=True, timeout=30)
