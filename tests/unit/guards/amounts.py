"""How many writes the contending writers of a guard make."""

import os

from tests.depth import deep


def writes(usual: int) -> int:
    """With `LONG=1` so many, else a few for each of 32 writers; or with GUARD_WRITES=10000 that many."""
    return int(os.environ.get("GUARD_WRITES", deep(min(usual, 640), usual)))
