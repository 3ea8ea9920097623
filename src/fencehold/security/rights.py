"""Every command and the right it needs: the one table that listeners dispatch by.

1. A command that is not in it cannot be registered with any listener (`check_registered`).
2. *Where* a right is checked: for changes, in the machine, at the position at which they are decided; for reads,
   in the question, at the position that is shown; for the service as a whole, at the listener.
3. What ends things, or keeps them alive, needs no right but ownership: a principal can always release what it
   holds. Such commands are not counted against a quota of commands, either.
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from fencehold.core.policy import Verb
from fencehold.errors import UsageError


class About(Enum):
    """What a command is about, and so which right is checked."""

    CONNECTION = "connection"
    """The connection itself: allowed before authentication."""
    OWN = "own"
    """What its principal owns: it needs to be a user, and nothing else."""
    NAMES = "names"
    """Each of its names needs the verb; one that is not allowed forbids all of them."""
    SEEN = "seen"
    """It sees the names, or sessions, for which it has the verb; of others, nothing."""
    SERVICE = "service"
    """The service as a whole."""


class Need(NamedTuple):
    """What a command needs."""

    about: About
    verb: Verb | None = None
    is_counted: bool = True
    """Against a quota of commands a second."""


_FREE = Need(About.CONNECTION, is_counted=False)
_ENDS = Need(About.OWN, is_counted=False)
_OWN = Need(About.OWN)
_ACQUIRE = Need(About.NAMES, Verb.ACQUIRE)
_ADMIN = Need(About.SERVICE, Verb.ADMIN)

NEEDS: dict[str, Need] = {
    "HELLO": _FREE,
    "AUTH": _FREE,
    "PING": _FREE,
    "ECHO": _FREE,
    "QUIT": _FREE,
    "CLIENT": _FREE,
    "SELECT": _FREE,
    "COMMAND": _FREE,
    "CONFIG": _FREE,
    "TIER": _FREE,
    "SHARD.MAP": _OWN,
    "CLUSTER": _OWN,
    "CELL.MAP": _OWN,
    "CELL.CONFIRM": _ADMIN,
    "CELL.APPLY": _ADMIN,
    "CELL.CLOSE": _ADMIN,
    "CELL.SEAL": _ADMIN,
    "CELL.OPEN": _ADMIN,
    "WHOAMI": _FREE,
    "INFO": _OWN,
    "CAN": _OWN,
    "SESSION.OPEN": _OWN,
    "SESSION.RESUME": _OWN,
    "SESSION.KEEPALIVE": _ENDS,
    "SESSION.HELD": _ENDS,
    "SESSION.CLOSE": _ENDS,
    "SESSION.LIST": Need(About.SEEN, Verb.OBSERVE),
    "LOCK.ACQUIRE": _ACQUIRE,
    "LOCK.MACQUIRE": _ACQUIRE,
    "LOCK.EXTEND": _ACQUIRE,
    "LOCK.MEXTEND": _ACQUIRE,
    "LOCK.CANCEL": _ENDS,
    "LOCK.RELEASE": _ENDS,
    "LOCK.MRELEASE": _ENDS,
    "LOCK.SETTLE": _ENDS,
    "LOCK.BREAK": Need(About.NAMES, Verb.BREAK),
    "LOCK.INFO": Need(About.NAMES, Verb.OBSERVE),
    "LOCK.HISTORY": Need(About.NAMES, Verb.OBSERVE),
    "LOCK.LIST": Need(About.SEEN, Verb.OBSERVE),
    "LOCK.WATCH": Need(About.SEEN, Verb.EVENTS),
    "LOCK.UNWATCH": _ENDS,
    "METRICS": Need(About.SEEN, Verb.OBSERVE),
    "POLICY.GET": _ADMIN,
    "POLICY.APPLY": _ADMIN,
    "SHARD.PLACE": _ADMIN,
    "SHARD.MOVES": _ADMIN,
    "SHARD.FORCE": _ADMIN,
    "NODE.FOLLOW": _ADMIN,
    "NODE.LIST": _ADMIN,
    "NODE.HEALTH": _ADMIN,
    "NODE.BACKUP": _ADMIN,
}


def check_registered(commands: Iterable[str]) -> None:
    """Check that every command of a listener has its need.

    Raises:
        UsageError: one has none, so its rights would not be checked.
    """
    missing = sorted(set(commands) - NEEDS.keys())
    if missing:
        raise UsageError(f"no right is defined for {', '.join(missing)}: see security/rights.py")
