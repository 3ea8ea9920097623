"""redis-py's `Lock` for event loops, on Fencehold. See `locks` for the rules; and:

1. A task releases its own hold, if it has one by this lock; else what was acquired last by this lock. So a hold
   may be handed to another task, and a task whose hold was lost does not release the next one's.
2. A release that was begun is done, also if it is cancelled.
"""

import asyncio
import time
from collections.abc import Awaitable
from secrets import token_bytes
from types import TracebackType
from typing import Any, Literal, Self
from weakref import WeakKeyDictionary

from redis.exceptions import LockError

from fencehold import aio
from fencehold.client.aio.hold import Claim
from fencehold.compat.redis.asking import Having, refuse_token, tier_of, ttl_left
from fencehold.compat.redis.errors import Denied, InDoubt, NotAcquired, NotHeld, Unreachable, gone, translated
from fencehold.compat.redis.keeping import NOT_ACQUIRED, NOT_HELD, Keeping, on_not_released
from fencehold.compat.redis.locks import lock as _lock
from fencehold.compat.redis.pools import aio_checked, aio_clients


class Lock(Keeping):
    """A lock as redis-py makes it for asyncio, on a client of `fencehold.aio.connect` or of `redis.asyncio`.

    The arguments are those of `fencehold.compat.redis.Lock`.
    """

    _checked = staticmethod(aio_checked)

    def _set_up(self) -> None:
        self._tokens: WeakKeyDictionary[asyncio.Task[Any], bytes] = WeakKeyDictionary()
        """By which token each task has it, or had it when it was lost."""

    @property
    def hold(self) -> Claim | None:
        """What is held by this lock, lost or not: a `Hold` if there are fences; None if nothing."""
        having = self._having()
        return None if having is None else having.hold

    async def acquire(
        self,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
        token: str | bytes | None = None,
    ) -> bool:
        """Wait for it, as long as `blocking` and `blocking_timeout` say; False if it was not to be had.

        Raises:
            NotHonoured: a token was given.
            Unreachable: nothing is held. A `redis.ConnectionError`.
            InDoubt: nothing stays held. A `redis.TimeoutError`.
        """
        refuse_token(token, self._name)
        return await self._take(token_bytes(16), self._wait(blocking, blocking_timeout))

    async def do_acquire(self, token: bytes) -> bool:
        """Try once, by a token for `do_release`."""
        return await self._take(token, 0.0)

    async def locked(self) -> bool:
        """Whether anyone has it. True only at the moment of the answer."""
        with translated():
            client = await self._client()
            return bool((await client.explain(self._name, limit=1, tier=tier_of(client))).holders)

    async def owned(self) -> bool:
        """Whether it is held by this lock, and can be trusted. Asks nobody."""
        having = self._having()
        return having is not None and having.hold.safe_for() > 0

    async def release(self) -> None:
        """Give it back.

        Raises:
            NotHeld: it is not held. A `LockError`.
            Gone: it was lost before. A `LockNotOwnedError`.
            InDoubt: it is freed as soon as that is possible. A `redis.TimeoutError`.
        """
        token = self._token()
        if token is None:
            raise NotHeld(NOT_HELD, self._name)
        self._forget(token)
        await self.do_release(token)

    async def do_release(self, expected_token: bytes) -> None:
        """Give back what was acquired by a token of this lock, by whichever task."""
        having = self._to_release(expected_token)
        with gone("Cannot release a lock that's no longer owned", self._name):
            await having.hold.release()

    def extend(self, additional_time: float, replace_ttl: bool = False) -> Awaitable[Literal[True]]:
        """Let it end that many seconds later; with `replace_ttl`, that many from now."""
        self._extensible("extend")
        return self.do_extend(additional_time, replace_ttl)

    async def do_extend(self, additional_time: float, replace_ttl: bool) -> Literal[True]:
        """As `extend`, of a lock that is known to be held."""
        having = self._to_extend("extend")
        ttl = ttl_left(additional_time, self._name) if replace_ttl else having.longer(additional_time, self._name)
        return await self._last(having, ttl, "extend")

    def reacquire(self) -> Awaitable[Literal[True]]:
        """Let it end a whole `timeout` from now."""
        self._extensible("reacquire")
        return self.do_reacquire()

    async def do_reacquire(self) -> Literal[True]:
        """As `reacquire`, of a lock that is known to be held."""
        return await self._last(self._to_extend("reacquire"), self._ttl or 0, "reacquire")

    async def __aenter__(self) -> Self:
        if await self.acquire():
            return self
        raise NotAcquired(NOT_ACQUIRED, self._name)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.release()
        except (LockError, Unreachable, InDoubt, Denied) as failure:
            on_not_released(self, failure, error)

    async def _take(self, token: bytes, wait: float | None) -> bool:
        with translated():
            client = await self._client()
            lock = client.lock(self._name, ttl=self._ttl, timeout=wait, tier=tier_of(client))
            asked_at = time.monotonic()
            hold = await lock._acquire_unowned(lock._stranger())
        if hold is not None:
            self._keep(token, hold, asked_at)
        return hold is not None

    async def _last(self, having: Having[Claim], ttl: float, verb: str) -> Literal[True]:
        asked_at = time.monotonic()
        with gone(f"Cannot {verb} a lock that's no longer owned", self._name):
            await having.hold.extend(ttl)
        having.set_ttl(ttl, asked_at)
        return True

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
            self.local.token = None
        for task in [task for task, theirs in self._tokens.items() if theirs == token]:
            del self._tokens[task]


def _task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


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
    """As `redis.asyncio.Redis.lock`, with the client as the first argument."""
    made = lock_class or Lock
    return _lock(
        redis, name, timeout, sleep, blocking, blocking_timeout, made, thread_local, raise_on_release_error
    )


async def close(redis: Any = None) -> None:
    """Close the Fencehold client that was made on this loop for a redis-py client; without one, for all.

    Best called where the redis-py client is closed; without that it is closed with the loop, by `asyncio.run`.
    """
    await aio_clients.close(redis)
