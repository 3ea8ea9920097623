"""One grant of Redis, from the acquire to the release, as a shadow follows it; and where its reports go."""

import asyncio
import json
import logging
import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from fencehold.compat.shadow import Kind, Report, Side
from fencehold.locks.identity import session_meta
from fencehold.locks.views import Holder, Waiting
from fencehold.version import __version__

logger = logging.getLogger("fencehold.shadow")

Sink: TypeAlias = Callable[[Report], object] | str | os.PathLike[str] | None
"""Where reports go: to a function, to a file as lines of JSON, or to the log `fencehold.shadow`."""


class Record:
    """A grant of Redis. Made by the thread that acquired it; all else happens on the recorder's loop."""

    __slots__ = (
        "changed",
        "granted_at",
        "is_followed",
        "is_settled",
        "is_taken_back",
        "key",
        "name",
        "over",
        "owner",
        "released_at",
        "since",
        "timed_at",
        "timeout",
        "timer",
    )

    def __init__(self, name: str, timeout: float | None, owner: str) -> None:
        self.name = name
        self.key = secrets.token_hex(8)
        """Distinguishes its reports from those of other grants."""
        self.timeout = timeout or None
        self.owner = owner
        # After the reply of Redis: its ttl has started by now, so what is late by this is late there.
        self.granted_at = self.timed_at = time.monotonic()
        self.since = time.time()
        self.released_at = 0.0
        """When the release was sent to Redis; 0 if it was not yet."""
        self.is_taken_back = False
        """Whether Redis no longer had the lock when it was released."""
        self.timer: asyncio.TimerHandle | None = None
        self.over = asyncio.Event()
        self.changed = asyncio.Event()
        """Set when it is over, and when its end was moved."""
        self.is_followed = False
        """Whether it is to be recorded."""
        self.is_settled = False
        """Whether it was recorded, or could not be."""

    @property
    def is_moving(self) -> bool:
        """Whether there is something to do about it."""
        return self.over.is_set() or not self.is_settled

    def end(self) -> None:
        """It is over."""
        self.over.set()
        self.changed.set()

    @property
    def late_s(self) -> float:
        """Seconds by which the release came after the end; 0 if it did not."""
        if self.timeout is None:
            return 0.0
        return max(0.0, (self.released_at or time.monotonic()) - self.timed_at - self.timeout)

    @property
    def held_s(self) -> float:
        """Seconds since the grant, up to the release."""
        return (self.released_at or time.monotonic()) - self.granted_at

    def report(
        self, kind: Kind, seconds: float, who: Side, *, other: Side | None = None, detail: str = "", fence: int = 0
    ) -> Report:
        """A finding about it."""
        ours = msgspec.structs.replace(who, owner=self.owner, since=self.since, timeout=self.timeout, fence=fence)
        return Report(kind, self.name, time.time(), round(seconds, 4), ours, other, detail, self.key)


def ourselves(client: str) -> Side:
    """This process."""
    said = json.loads(session_meta(client, None, __version__))
    return Side(client, said["host"], said["pid"], "", 0.0, None)


def holder_side(holder: Holder) -> Side:
    """The holder of a name in Fencehold."""
    party = holder.party
    return Side(party.client, party.host, party.pid, party.owner, _since(holder), timeout_of(holder), holder.fence)


def waiting_side(waiting: Waiting) -> Side:
    """A waiter for a name in Fencehold: it holds the name in Redis."""
    party = waiting.party
    return Side(party.client, party.host, party.pid, party.owner, _since(waiting), None)


def _since(seen: Holder | Waiting) -> float:
    return seen.since.timestamp() if seen.since is not None else time.time() - seen.age


def key_of(holder: Holder) -> str:
    """The key of a holder's record; empty if it is no shadow's."""
    return str(holder.meta.get("shadow", "")) if isinstance(holder.meta, dict) else ""


def timeout_of(holder: Holder) -> float | None:
    """The timeout of a holder's lock in Redis, if a shadow recorded it."""
    timeout = holder.meta.get("timeout") if isinstance(holder.meta, dict) else None
    return timeout if isinstance(timeout, int | float) else None


def sink_of(sink: Sink) -> Callable[[Report], object]:
    """Where reports go, as a function that may fail."""
    if sink is None:
        return lambda report: logger.warning("%s", report)
    if callable(sink):
        return sink
    path = Path(sink)
    return lambda report: _append(path, report)


def _append(path: Path, report: Report) -> None:
    # Opened for each: reports are rare, and files are rotated. A write to the end of a file is not torn by others.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(descriptor, msgspec.json.encode(report) + b"\n")
    finally:
        os.close(descriptor)
