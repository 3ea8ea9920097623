"""How far tests go: as far as fits into the minutes of a push, or with `LONG=1` as far as they can.

A test that tries very many cases tries some of them at every push and all of them with `LONG=1`, which is for
nights and for changes of what it tests: `make test LONG=1`.
"""

import os
from typing import TypeVar

T = TypeVar("T")

LONG = os.environ.get("LONG", "") not in ("", "0")


def deep(short: T, long: T) -> T:
    """The first at every push, the second with `LONG=1`."""
    return long if LONG else short
