"""What a lock in redis-py's manner was made with, and the holds it has made: for threads and for event loops."""

import logging
import threading
from types import SimpleNamespace
from typing import Any, ClassVar

from redis.exceptions import LockError, RedisError

from fencehold.compat.redis.asking import Having, name_of, ttl_of, wait_of
from fencehold.compat.redis.errors import Gone, Misused, NotHeld
from fencehold.locks.trust import State

logger = logging.getLogger(__name__)

NOT_ACQUIRED = "Unable to acquire lock within the time specified"
NOT_HELD = "Cannot release a lock that's not owned or is already unlocked."
NOT_RELEASED = "Lock was unlocked or no longer owned when exiting context manager."


class Keeping:
    """A lock, but for what waits."""

    _checked: ClassVar[Any]
    """A client of the right kind, or an error that says what to give."""

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
        self._holds: dict[bytes, Having[Any]] = {}
        self._name = name_of(name)
        self._ttl = ttl_of(timeout)
        self._set_up()

    def _set_up(self) -> None:
        """What else a lock of one kind needs."""

    @property
    def fence(self) -> int | None:
        """The fence of what this thread holds by this lock; None if it holds nothing, or there are no fences."""
        having = self._having()
        return None if having is None else having.fence

    def _token(self) -> bytes | None:
        # A thread that has not acquired yet has no token at all.
        return getattr(self.local, "token", None)

    def _having(self) -> Having[Any] | None:
        token = self._token()
        return None if token is None else self._holds.get(token)

    def _keep(self, token: bytes, hold: Any, asked_at: float) -> None:
        """It was granted. Who had it before by this lock has lost it."""
        for old, having in list(self._holds.items()):
            if having.hold.state in (State.LOST, State.RELEASED):
                self._holds.pop(old, None)
        self._holds[token] = Having(hold, self._ttl, asked_at)
        self.local.token = token

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

    def _to_extend(self, verb: str) -> Having[Any]:
        having = self._having()
        if having is None:
            raise Gone(f"Cannot {verb} a lock that's no longer owned", self._name)
        return having

    def _to_release(self, token: bytes) -> Having[Any]:
        having = self._holds.pop(token, None)
        if having is None:
            raise Gone("Cannot release a lock that's no longer owned", self._name)
        return having

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self._name!r}>"


def on_not_released(lock: Keeping, failure: RedisError, error: BaseException | None) -> None:
    """A body is over, and what it ran under could not be given back."""
    if error is not None:
        # The body's own exception is what its caller must see first.
        error.add_note(str(failure))
    elif lock.raise_on_release_error or not isinstance(failure, LockError):
        raise failure
    else:
        logger.warning(NOT_RELEASED)
