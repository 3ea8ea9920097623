# Made of src/fencehold/compat/redis/aio_locks.py by scripts/blocking: change that one.
"""redis-py's `Lock`, on Fencehold. See `lock_state` for the rules."""

import time
from secrets import token_bytes
from types import TracebackType
from typing import Any, Literal, Self

from redis.exceptions import LockError

from fencehold.client.blocking.hold import Claim
from fencehold.compat.redis.arguments import HeldLock, refuse_token, tier_of, ttl_left
from fencehold.compat.redis.errors import Denied, InDoubt, NotAcquired, NotHeld, Unreachable, gone, translated
from fencehold.compat.redis.lock_state import NOT_ACQUIRED, NOT_HELD, ThreadLock, on_not_released
from fencehold.compat.redis.pools import clients


class Lock(ThreadLock):
    """A lock as redis-py makes it, on a Fencehold client or on the Redis that a redis-py client is for.

    Args:
        redis: a client of Fencehold, or of redis-py; for threads or for an event loop, as this lock is.
        name: the name of the lock: the same name is the same lock to all users of Fencehold.
        timeout: the ttl: seconds after which it ends unless extended. None: it is kept alive as long as the client
            lives, and released when its process dies; in redis-py it would stay for ever.
        sleep: not needed: there is no polling.
        blocking: whether `acquire` waits.
        blocking_timeout: seconds it waits; None: for ever.
        thread_local: whether only the thread that acquired it can release it.
        raise_on_release_error: whether the end of a body raises if it is no longer held; else it is logged.
    """

    @property
    def hold(self) -> Claim | None:
        """What is held by this lock, lost or not: a `Hold` if there are fences; None if nothing."""
        having = self._having()
        return None if having is None else having.hold

    def acquire(
        self,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Wait for it, as long as `blocking` and `blocking_timeout` say; False if it was not acquired.

        Raises:
            NotHonoured: a token was given.
            Unreachable: nothing is held. A `redis.ConnectionError`.
            InDoubt: nothing stays held. A `redis.TimeoutError`.
        """
        refuse_token(token, self._name)
        return self._take(token_bytes(16), self._wait(blocking, blocking_timeout))

    def do_acquire(self, token: bytes) -> bool:
        """Try once, by a token for `do_release`."""
        return self._take(token, 0.0)

    def locked(self) -> bool:
        """Whether it is held by any owner. True only at the moment of the reply."""
        with translated():
            client = self._client()
            seen = client.explain(self._name, limit=1, tier=tier_of(client))
            return bool(seen.holders)

    def owned(self) -> bool:
        """Whether it is held by this lock, and can be trusted. Sends no request."""
        having = self._having()
        return having is not None and having.hold.safe_for() > 0

    def release(self) -> None:
        """Release it.

        Raises:
            NotHeld: it is not held. A `LockError`.
            Gone: it was lost before. A `LockNotOwnedError`.
            InDoubt: it is released as soon as possible. A `redis.TimeoutError`.
        """
        token = self._token()
        if token is None:
            raise NotHeld(NOT_HELD, self._name)
        self._forget(token)
        self.do_release(token)

    def do_release(self, expected_token: bytes) -> None:
        """Release what was acquired by a token of this lock, by any thread."""
        having = self._to_release(expected_token)
        with gone("Cannot release a lock that's no longer owned", self._name):
            having.hold.release()

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Literal[True]:
        """Let it end that many seconds later; with `replace_ttl`, that many from now."""
        self._extensible("extend")
        return self.do_extend(additional_time, replace_ttl)

    def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:
        """As `extend`, for a lock that is known to be held."""
        having = self._to_extend("extend")
        ttl = ttl_left(additional_time, self._name) if replace_ttl else having.longer(additional_time, self._name)
        return self._last(having, ttl, "extend")

    def reacquire(self) -> Literal[True]:
        """Let it end a whole `timeout` from now."""
        self._extensible("reacquire")
        return self.do_reacquire()

    def do_reacquire(self) -> Literal[True]:
        """As `reacquire`, for a lock that is known to be held."""
        return self._last(self._to_extend("reacquire"), self._ttl or 0, "reacquire")

    def __enter__(self) -> Self:
        if self.acquire():
            return self
        raise NotAcquired(NOT_ACQUIRED, self._name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        hold: Claim | None = None
        try:
            hold = self.hold
            self.release()
        except (LockError, Unreachable, InDoubt, Denied) as failure:
            on_not_released(self, failure, error)
        finally:
            # After an interrupt, too, which may have prevented any of it.
            hold = hold or self.hold
            if hold is not None:
                hold._on_interrupted()

    def _take(self, token: bytes, wait: float | None) -> bool:
        hold: Claim | None = None
        try:
            with translated():
                client = self._client()
                lock = client.lock(self._name, ttl=self._ttl, timeout=wait, tier=tier_of(client))
                asked_at = time.monotonic()
                hold = lock._acquire_unowned(lock._stranger())
            if hold is not None:
                self._keep(token, hold, asked_at)
        except BaseException:
            if hold is not None:
                hold._on_interrupted()
            raise
        return hold is not None

    def _last(self, having: HeldLock[Claim], ttl: float, verb: str) -> Literal[True]:
        asked_at = time.monotonic()
        with gone(f"Cannot {verb} a lock that's no longer owned", self._name):
            having.hold.extend(ttl)
        having.set_ttl(ttl, asked_at)
        return True


def lock(
    redis: Any,
    name: Any,
    timeout: float | None = None,
    sleep: float = 0.1,
    blocking: bool = True,
    blocking_timeout: float | None = None,
    lock_class: Any = None,
    thread_local: bool = True,
    raise_on_release_error: bool = True,
) -> Any:
    """As redis-py's `Redis.lock`, with the client as the first argument: a `Lock`."""
    return (lock_class or Lock)(
        redis,
        name,
        timeout=timeout,
        sleep=sleep,
        blocking=blocking,
        blocking_timeout=blocking_timeout,
        thread_local=thread_local,
        raise_on_release_error=raise_on_release_error,
    )


def close(redis: Any = None) -> None:
    """Close the Fencehold client that was made here for a redis-py client; without one, all that were.

    Best called where the redis-py client is closed. Without that, a blocking one is closed when the interpreter
    ends, and an async one with its loop, by `asyncio.run`.
    """
    clients.close(redis)
