"""Tuning of the interpreter for a process that only serves. Never called by the SDK: an application tunes itself.

Measured with `redis-benchmark` at the listener, interleaved, medians of six rounds on two busy cores; see
docs/decisions/0005-the-hot-path.md.
"""

import gc
import sys

_SWITCH_S = 0.000_05
_COLLECT_AFTER = (10_000, 1_000, 100)


def tune_for_serving() -> None:
    """Call it once, when the server is up."""
    # The journal's thread needs the interpreter for some microseconds before and after each sync. At the default
    # of 5 ms a busy event loop keeps it waiting that long.
    sys.setswitchinterval(_SWITCH_S)
    # The state has no reference cycles and is not tracked, so what collections look at is short-lived: at the
    # default thresholds they run hundreds of times a second and find nothing. But the server does not serve during
    # a collection, which visits all objects created since the last: half a microsecond for each. So there are
    # many small collections, and very rarely a large one.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
