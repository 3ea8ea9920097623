"""Forks: a check that is run in a child of this process."""

import os
import sys
import traceback
import warnings
from collections.abc import Callable


def in_a_child(check: Callable[[], None]) -> int:
    """Run a check in a forked child; says its exit status, 0 if it held."""
    # Later Pythons warn of forks in a process with threads: that is what is tested.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            check()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)
