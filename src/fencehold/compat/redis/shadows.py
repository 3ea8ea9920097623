"""Shadows: locks stay in Redis, by redis-py's own `Lock`; Fencehold keeps a record, and reports what went wrong.

1. What an application sees is redis-py's: results, errors and, except for some microseconds, times. No error or
   delay of Fencehold reaches it.
2. A shadow belongs to one process: a child gets a new one when it first locks.
"""

import asyncio
import atexit
import logging
import os
import threading
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar
from weakref import WeakSet

import fencehold
from fencehold import aio
from fencehold.client.config import Config
from fencehold.client.connect import Plan, plan_of
from fencehold.compat.redis.recorder import PER_SECOND, Counts, Recorder
from fencehold.compat.redis.records import Record, Sink, ourselves, sink_of
from fencehold.compat.redis.shadow_locks import AioShadowLock, ShadowLock, Ticket
from fencehold.compat.shadow import Summary
from fencehold.errors import UsageError

_TTL_S = 5.0
_GRACE_S = 0.25
"""A record ends that soon after its process: a crash is no overlap."""
_CONNECT_S = 1.0

logger = logging.getLogger("fencehold.shadow")


Made = TypeVar("Made")


class Shadowing(Generic[Made]):
    """What the shadows for threads and for event loops have in common."""

    _kind: ClassVar[type]

    def __init__(
        self,
        redis: Any,
        where: "str | fencehold.Client | aio.Client",
        report: Sink = None,
        *,
        name: str = "",
        per_second: int = PER_SECOND,
    ) -> None:
        """`redis` is redis-py's client.

        Args:
            where: Fencehold: a URL, or a client, to which the shadow opens a session of its own.
            report: where reports go: a function, which is called on the shadow's thread; the path of a file, for
                lines of JSON; None: to the log `fencehold.shadow`, as warnings.
            name: the name of this process in reports.
            per_second: at most how many acquires in a second are recorded: that bounds the cost of the shadow.

        Raises:
            UsageError: the URL makes no sense. It does not connect yet.
        """
        self.redis = redis
        self._plan = _plan_of(where, name)
        self._name = name
        self._per_second = per_second
        self._sink = sink_of(report)
        self._is_closed = False
        self.lock_class: Any = type(self._kind.__name__, (self._kind,), {"shadow": self})
        """To be passed as `lock_class` to `Redis.lock`."""
        self._begin()
        _shadows.add(self)
        atexit.register(self._stop, 2.0)

    def lock(
        self,
        name: Any,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> Made:
        """As `Redis.lock`: redis-py's own lock, with this shadow."""
        made: Made = self.lock_class(
            self.redis,
            name,
            timeout=timeout,
            sleep=sleep,
            blocking=blocking,
            blocking_timeout=blocking_timeout,
            thread_local=thread_local,
            # Older versions of redis-py do not know it.
            **({} if raise_on_release_error else {"raise_on_release_error": False}),
        )
        return made

    def summary(self) -> Summary:
        """What this process has found so far."""
        counts = self._counts
        return counts.tally.summary(recorded=counts.recorded, failures=counts.failures, dropped=counts.dropped)

    def _begin(self) -> None:
        self._starting = threading.Lock()
        self._counts = Counts()
        self._recorder: Recorder | None = None

    def on_granted(self, name: Any, timeout: float | None, owner: str) -> Ticket | None:
        """Redis has granted a lock; None if it cannot be followed."""
        if self._is_closed:
            return None
        try:
            return Ticket(self._recorder or self._started(), Record(_text(name), timeout, owner))
        except Exception as error:
            # No thread available, no memory: the application still has its lock.
            self._counts.failures += 1
            logger.debug("%r is not followed: %s", name, error)
            return None

    def _started(self) -> Recorder:
        with self._starting:
            if self._recorder is None:
                who = ourselves(self._name)
                self._recorder = Recorder(self._plan, who, self._sink, self._counts, self._per_second)
            return self._recorder

    def _flush(self, timeout: float) -> bool:
        return self._recorder is None or self._recorder.flush(timeout)

    def _stop(self, timeout: float) -> None:
        atexit.unregister(self._stop)
        self._is_closed = True
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            recorder.stop(timeout)

    def _on_forked(self) -> None:
        """In a child: the thread is not here; what it watches is the parent's, and must not be closed."""
        if self._recorder is not None:
            _inherited.append(self._recorder)
        self._begin()


class Shadow(Shadowing[ShadowLock]):
    """Follows the locks of redis-py's `Redis`. Close it where that is closed."""

    _kind = ShadowLock

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all that has happened is recorded and reported; returns whether it is."""
        return self._flush(timeout)

    def close(self, timeout: float = 2.0) -> None:
        """Record what has happened, and end, within that many seconds. Its locks keep working, unfollowed."""
        self._stop(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AioShadow(Shadowing[AioShadowLock]):
    """Follows the locks of `redis.asyncio.Redis`. Close it where that is closed."""

    _kind = AioShadowLock

    async def flush(self, timeout: float = 5.0) -> bool:  # noqa: ASYNC109 - it is waited for on a thread
        """Wait until all that has happened is recorded and reported; returns whether it is."""
        return await asyncio.to_thread(self._flush, timeout)

    async def close(self, timeout: float = 2.0) -> None:  # noqa: ASYNC109
        """Record what has happened, and end, within that many seconds. Its locks keep working, unfollowed."""
        await asyncio.to_thread(self._stop, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _plan_of(where: "str | fencehold.Client | aio.Client", name: str) -> Plan:
    if isinstance(where, fencehold.Client | aio.Client):
        return where._plan
    if not isinstance(where, str):
        raise UsageError(f"a shadow records at a Fencehold URL or client, not at {where!r}")
    return plan_of(Config(url=where, ttl=_TTL_S, grace=_GRACE_S, name=name, connect_timeout=_CONNECT_S))


def _text(name: Any) -> str:
    return name if isinstance(name, str) else bytes(name).decode("utf-8", "backslashreplace")


_shadows: "WeakSet[Shadowing[Any]]" = WeakSet()
_inherited: list[Recorder] = []


def _after_fork_in_child() -> None:
    for shadow in list(_shadows):
        shadow._on_forked()


os.register_at_fork(after_in_child=_after_fork_in_child)
