"""Fencehold on an event loop: ``async with fencehold.aio.connect("fencehold://host") as client``."""

from fencehold.client.aio.client import Client, connect
from fencehold.client.aio.election import Election, Leadership, Term, Turn
from fencehold.client.aio.hold import Claim, Hold, Loss
from fencehold.client.aio.lock import Lock, UntimedLock
from fencehold.client.aio.recipes import RLock, RWLock, UntimedRLock, UntimedRWLock
from fencehold.client.aio.watch import Watch

__all__ = [
    "Claim",
    "Client",
    "Election",
    "Hold",
    "Leadership",
    "Lock",
    "Loss",
    "RLock",
    "RWLock",
    "Term",
    "Turn",
    "UntimedLock",
    "UntimedRLock",
    "UntimedRWLock",
    "Watch",
    "connect",
]
