"""Locks with a shadow: redis-py's own, which report to a shadow.

1. What an application sees is redis-py's. Reporting to the shadow raises nothing and waits for nothing.
2. A lock object that is dropped without a release is no longer followed: its timeout will end it.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar, Literal, Protocol

import redis.asyncio.lock
import redis.lock
from redis.exceptions import LockNotOwnedError

from fencehold.compat.redis.recorder import Recorder
from fencehold.compat.redis.records import Record


class Ticket:
    """A lock object's handle on its record. Collected with the lock object, it ends the record."""

    __slots__ = ("_recorder", "record")

    def __init__(self, recorder: Recorder, record: Record) -> None:
        self.record = record
        self._recorder: Recorder | None = recorder
        recorder.on_granted(record)

    def end(self) -> None:
        """The lock was released."""
        self._tell(Recorder.on_released)

    def retake(self) -> None:
        """The same lock object acquired it again."""
        self._tell(Recorder.on_retaken)

    def extend(self, timeout: float) -> None:
        """Redis lets it end that many seconds from now."""
        if self._recorder is not None:
            self._recorder.on_extended(self.record, timeout, time.monotonic())

    def longer(self, additional_time: float) -> None:
        """Redis lets it end that much later."""
        left_s = self.record.timed_at + (self.record.timeout or 0.0) - time.monotonic()
        self.extend(max(0.0, left_s) + additional_time)

    def _tell(self, tell: Callable[[Recorder, Record], None]) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is not None:
            tell(recorder, self.record)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.end()


class Follower(Protocol):
    """A shadow, as its locks use it."""

    def on_granted(self, name: Any, timeout: float | None, owner: str) -> Ticket | None:
        """Redis has granted a lock; None if it cannot be followed."""


class ShadowLock(redis.lock.Lock):
    """redis-py's lock. Made by a `Shadow`, which follows it."""

    shadow: ClassVar[Follower]

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | None = None,
    ) -> bool:
        """redis-py's."""
        is_granted = super().acquire(sleep, blocking, blocking_timeout, token)
        if is_granted:
            _begin(self, self.shadow, threading.current_thread().name)
        return bool(is_granted)

    def release(self) -> None:
        """redis-py's."""
        ticket = _releasing(self)
        try:
            super().release()
        except LockNotOwnedError:
            _taken_back(ticket)
            raise
        finally:
            _end(self, ticket)

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """redis-py's."""
        super().extend(additional_time, replace_ttl)
        _extended(self, additional_time, replace_ttl)
        return True

    def reacquire(self) -> Literal[True]:
        """redis-py's."""
        super().reacquire()
        _extended(self, self.timeout or 0.0, True)
        return True


class AioShadowLock(redis.asyncio.lock.Lock):
    """redis-py's lock for asyncio. Made by a `Shadow`, which follows it."""

    shadow: ClassVar[Follower]

    async def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """redis-py's."""
        is_granted = await super().acquire(blocking, blocking_timeout, token)
        if is_granted:
            task = asyncio.current_task()
            _begin(self, self.shadow, "" if task is None else task.get_name())
        return bool(is_granted)

    async def release(self) -> None:
        """redis-py's."""
        ticket = _releasing(self)
        try:
            await super().release()
        except LockNotOwnedError:
            _taken_back(ticket)
            _end(self, ticket)
            raise
        except BaseException:
            if self.local.token is None:
                _end(self, ticket)
            elif ticket is not None:
                # redis-py keeps the token then, in its newer versions, so that it can be retried.
                ticket.record.released_at = 0.0
            raise
        _end(self, ticket)

    async def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:
        """redis-py's."""
        await super().do_extend(additional_time, replace_ttl)
        _extended(self, additional_time, replace_ttl)
        return True

    async def do_reacquire(self) -> Literal[True]:
        """redis-py's."""
        await super().do_reacquire()
        _extended(self, self.timeout or 0.0, True)
        return True


def _begin(lock: "ShadowLock | AioShadowLock", shadow: Follower, owner: str) -> None:
    before: Ticket | None = getattr(lock.local, "ticket", None)
    if before is not None:
        before.retake()
    lock.local.ticket = shadow.on_granted(lock.name, lock.timeout, owner)


def _releasing(lock: "ShadowLock | AioShadowLock") -> Ticket | None:
    ticket: Ticket | None = getattr(lock.local, "ticket", None)
    if ticket is not None:
        ticket.record.released_at = time.monotonic()
    return ticket


def _taken_back(ticket: Ticket | None) -> None:
    if ticket is not None:
        ticket.record.is_taken_back = True


def _end(lock: "ShadowLock | AioShadowLock", ticket: Ticket | None) -> None:
    if ticket is not None:
        ticket.end()
        if getattr(lock.local, "ticket", None) is ticket:
            lock.local.ticket = None


def _extended(lock: "ShadowLock | AioShadowLock", seconds: float, is_whole: bool) -> None:
    ticket: Ticket | None = getattr(lock.local, "ticket", None)
    if ticket is not None:
        if is_whole:
            ticket.extend(seconds)
        else:
            ticket.longer(seconds)
