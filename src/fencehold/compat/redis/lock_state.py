"""The arguments of a lock in redis-py's style, and the holds it has made: for threads and for event loops.

1. Signatures, results and errors are redis-py's; what cannot be honoured is refused, not ignored.
2. The lock object knows a hold by a token, and a thread sees its own token only, unless `thread_local` is False.
   The token means nothing outside this process.
3. On an event loop a task releases its own hold, if it has one by this lock; else what was acquired last by this
   lock. So a hold may be handed to another task, and a task whose hold was lost does not release the next one's.
4. Waiting is no polling: `sleep` is accepted and not needed, and the whole `blocking_timeout` is waited.
5. Each acquire has a new owner, as in redis-py: a second acquire waits for the first hold to end.
6. The end of a `with` never hides the body's own exception. A release that was begun is done.
"""

import asyncio
import logging
import threading
from types import SimpleNamespace
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from redis.exceptions import LockError, RedisError

import fencehold
from fencehold import aio
from fencehold.compat.redis.arguments import HeldLock, name_of, ttl_of, wait_of
from fencehold.compat.redis.errors import Gone, Misused, NotHeld
from fencehold.compat.redis.pools import aio_checked, aio_clients, checked, clients
from fencehold.locks.trust import State

logger = logging.getLogger(__name__)

NOT_ACQUIRED = "Unable to acquire lock within the time specified"
NOT_HELD = "Cannot release a lock that's not owned or is already unlocked."
NOT_RELEASED = "Lock was unlocked or no longer owned when exiting context manager."


class LockState:
    """A lock, except for what waits."""

    _checked: ClassVar[Any]
    """Returns a client of the right kind, or raises an error that says what to pass."""

    def __init__(
        self,
        redis: Any,
        name: Any,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
    ) -> None:
        self.redis = self._checked(redis)
        self.name = name
        self.timeout = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self.local: Any = threading.local() if self.thread_local else SimpleNamespace()
        self.local.token = None
        self._holds: dict[bytes, HeldLock[Any]] = {}
        self._name = name_of(name)
        self._ttl = ttl_of(timeout)
        self._set_up()

    def _set_up(self) -> None:
        """Set up what else a lock of this kind needs."""

    @property
    def fence(self) -> int | None:
        """The fence of what this thread holds by this lock; None if it holds nothing, or there are no fences."""
        having = self._having()
        return None if having is None else having.fence

    def _token(self) -> bytes | None:
        # A thread that has not acquired yet has no token at all.
        return getattr(self.local, "token", None)

    def _having(self) -> HeldLock[Any] | None:
        token = self._token()
        return None if token is None else self._holds.get(token)

    def _keep(self, token: bytes, hold: Any, asked_at: float) -> None:
        """It was granted. Earlier holds by this lock are lost."""
        for old, having in list(self._holds.items()):
            if having.hold.state in (State.LOST, State.RELEASED):
                self._holds.pop(old, None)
        self._holds[token] = HeldLock(hold, self._ttl, asked_at)
        self.local.token = token

    def _forget(self, token: bytes) -> None:
        """It is about to be released."""
        self.local.token = None

    def _wait(self, blocking: bool | None, blocking_timeout: float | None) -> float | None:
        return wait_of(
            self.blocking if blocking is None else blocking,
            self.blocking_timeout if blocking_timeout is None else blocking_timeout,
        )

    def _extensible(self, verb: str) -> None:
        """Raise as redis-py does if there is nothing to extend."""
        if self._token() is None:
            raise NotHeld(f"Cannot {verb} an unlocked lock", self._name)
        if self._ttl is None:
            raise Misused(f"Cannot {verb} a lock with no timeout", self._name)

    def _to_extend(self, verb: str) -> HeldLock[Any]:
        having = self._having()
        if having is None:
            raise Gone(f"Cannot {verb} a lock that's no longer owned", self._name)
        return having

    def _to_release(self, token: bytes) -> HeldLock[Any]:
        having = self._holds.pop(token, None)
        if having is None:
            raise Gone("Cannot release a lock that's no longer owned", self._name)
        return having

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self._name!r}>"


class ThreadLock(LockState):
    """A lock of threads, except for its methods."""

    _checked = staticmethod(checked)

    def _client(self) -> fencehold.Client:
        return clients.of(self.redis)


class TaskLock(LockState):
    """A lock of tasks, except for its methods."""

    _checked = staticmethod(aio_checked)

    def _set_up(self) -> None:
        self._tokens: WeakKeyDictionary[asyncio.Task[Any], bytes] = WeakKeyDictionary()
        """The token by which each task holds it, or held it when it was lost."""

    async def _client(self) -> aio.Client:
        return await aio_clients.of(self.redis)

    def _token(self) -> bytes | None:
        task = _task()
        return (self._tokens.get(task) if task is not None else None) or super()._token()

    def _keep(self, token: bytes, hold: Any, asked_at: float) -> None:
        super()._keep(token, hold, asked_at)
        task = _task()
        if task is not None:
            self._tokens[task] = token

    def _forget(self, token: bytes) -> None:
        if super()._token() == token:
            super()._forget(token)
        for task in [task for task, theirs in self._tokens.items() if theirs == token]:
            del self._tokens[task]


def _task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def on_not_released(lock: LockState, failure: RedisError, error: BaseException | None) -> None:
    """A body is over, and its lock could not be released."""
    if error is not None:
        # The body's own exception is what its caller must see first.
        error.add_note(str(failure))
    elif lock.raise_on_release_error or not isinstance(failure, LockError):
        raise failure
    else:
        logger.warning(NOT_RELEASED)
