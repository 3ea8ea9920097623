"""How many writes the contending writers of a guard make."""

import os


def writes(usual: int) -> int:
    """So many, or with GUARD_WRITES=10000 that many: some drivers and stores take minutes for them."""
    return int(os.environ.get("GUARD_WRITES", usual))
