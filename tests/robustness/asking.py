"""Asking one node for a lock, over and over, on a new connection each time, and how long it takes to answer."""

import time
from collections.abc import Callable
from typing import NamedTuple

from tests.robustness.wire import Closed, Wire, is_no_answer

REFUSAL_S_MAX = 2.0
"""How long a node that cannot write may take to say so."""
_EVERY_S = 0.02


class Told(NamedTuple):
    """What a node said to one command."""

    asked_at: float
    seconds: float
    message: str
    is_refusal: bool


def ask_while(host: str, port: int, name: str, goes_on: Callable[[], bool]) -> list[Told]:
    """Ask until told otherwise."""
    told: list[Told] = []
    while goes_on():
        told.append(_ask(host, port, name))
        time.sleep(_EVERY_S)
    return told


def _ask(host: str, port: int, name: str) -> Told:
    asked_at = time.monotonic()
    try:
        wire = Wire(host, port)
        try:
            message = wire.call("LOCK.ACQUIRE", name, "WAIT", 0)
        finally:
            wire.close()
    except (Closed, OSError) as end:
        # A node that ends the connection grants nothing; one that hangs took all its time.
        return Told(asked_at, time.monotonic() - asked_at, repr(end), True)
    return Told(asked_at, time.monotonic() - asked_at, str(message), is_no_answer(message))
