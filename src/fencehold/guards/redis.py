"""A guard for what is kept in Redis: the mark is a key beside the data, and one script checks, raises and writes.

::

    guard = Guard(redis.Redis())
    with client.lock("wallet:7") as hold:
        guard.enter(hold)                          # raise the mark, then read
        balance = int(store.get("wallet:7:balance"))
        with guard.transaction(hold) as t:         # or `guard.run(hold, [("SET", …), …])`
            t.set("wallet:7:balance", balance - 5)
            t.hincrby("wallet:7", "payments", 1)

1. *Nothing is sent before the body of a transaction ends*, and nothing at all if it raises. Then the mark is
   checked and raised and all commands run, in one script.
2. *`check` by itself protects nothing*: between it and a write of its own anything may happen. It only stops
   stale work early.
3. *Marks never expire.* One that is evicted, or lost with a Redis that fails over to a replica that was behind,
   lets a stale holder in again: `noeviction`, and data that may be lost that way together with its mark.
4. *A transaction is sent once.* A connection that is lost leaves the outcome open: `OutcomeUnknown`; redis-py by
   default would retry it, and count twice. Errors from Redis are raised as redis-py's.
5. In a cluster, mark and keys are in one slot: give name and keys the same hash tag, `wallet:{7}`.

Needs redis-py 6.0, and Redis 6.0 or any Valkey. Its user needs EVAL, EVALSHA, GET and SET on the marks, and what
it runs.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Literal

from redis import Redis, RedisCluster, exceptions
from redis import asyncio as aioredis
from redis.client import Pipeline
from redis.commands.core import DataAccessCommands

from fencehold.errors import UsageError
from fencehold.guards import redis_script as script
from fencehold.guards.offer import Offer, Offered, offer_of
from fencehold.guards.redis_calls import AsyncClient, Client, call, call_async, sent
from fencehold.guards.redis_commands import Command, command

__all__ = ["PREFIX", "AsyncGuard", "Guard", "Transaction"]

PREFIX = "fencehold:fence:"


class Transaction(DataAccessCommands):
    """Commands that run together behind a fence. Its methods are redis-py's own; their results are not known yet.

    They are in `results` when the block is over.
    """

    _is_async_client: Literal[False] = False
    _event_dispatcher: Any = None

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.encode()
        self.commands: list[Command] = []
        self.results: list[Any] = []
        """As Redis returns them in a script: bytes, whole numbers, lists of them; None for what is missing."""

    def execute_command(self, *words: Any, **_: Any) -> None:
        """Have this command run when the block is over: `execute_command("SET", "k", "v")`.

        Raises:
            UsageError: it cannot run behind a fence.
        """
        self.commands.append(command(self._prefix, *words))


class _Words:
    """Requests and replies; the same for threads and loops."""

    def __init__(self, prefix: str, strict: bool) -> None:
        if not prefix:
            raise UsageError("a guard's prefix must not be empty: it distinguishes marks from data")
        self._prefix = prefix
        self._strict = strict

    def _key(self, name: str) -> str:
        return self._prefix + Offer(name, 1).checked().name

    def _checked(self, commands: Iterable[Sequence[Any]]) -> list[Command]:
        return [command(self._prefix.encode(), *each) for each in commands]

    def _words(self, offer: Offer, commands: Sequence[Command]) -> list[Any]:
        return list(script.words(self._prefix, offer, strict=self._strict, commands=commands))


class Guard(_Words):
    """Refuses stale fences in front of a Redis; for threads. The client stays the caller's."""

    def __init__(self, client: Client, prefix: str = PREFIX, strict: bool = False) -> None:
        if not isinstance(client, Redis | RedisCluster) or isinstance(client, Pipeline):
            raise UsageError(f"Guard takes a redis.Redis, not {client!r}; for redis.asyncio there is AsyncGuard")
        super().__init__(prefix, strict)
        self._client = client

    def register(self, name: str) -> None:
        """Register a name for strict guards, with no fence seen yet."""
        with sent():
            self._client.set(self._key(name), "0", nx=True)

    def enter(self, hold: Offered, name: str | None = None) -> None:
        """Raise the mark. Call it before anything is read. Idempotent.

        Raises:
            StaleFence: another has held the name since; stop.
            UsageError: what is offered is no fence of this name; or strict, and the name has no mark.
            Unavailable: Redis was not reached. Nothing happened.
            OutcomeUnknown: Redis did not answer; the mark may be raised.
        """
        self._run(offer_of(hold, name), ())

    def check(self, hold: Offered, name: str | None = None) -> None:
        """The same, later: to stop work early. It protects no write that is not in a `transaction`."""
        self._run(offer_of(hold, name), ())

    def run(self, hold: Offered, commands: Iterable[Sequence[Any]], name: str | None = None) -> list[Any]:
        """Check and raise the mark and run the commands, in one step; returns their results.

        Raises:
            StaleFence: nothing was written.
            UsageError: so, too: a command cannot run here, or as with `enter`.
            redis.exceptions.ResponseError: a command failed; those before it are done, and the mark is raised.
            OutcomeUnknown: Redis did not answer; all of it may be done.
        """
        return self._run(offer_of(hold, name), self._checked(commands))

    @contextmanager
    def transaction(self, hold: Offered, name: str | None = None) -> Iterator[Transaction]:
        """Collect commands, and run them when the block is over, as `run` does; raises what it raises."""
        offer = offer_of(hold, name)
        collected = Transaction(self._prefix)
        yield collected
        collected.results = self._run(offer, collected.commands)

    def _run(self, offer: Offer, commands: Sequence[Command]) -> list[Any]:
        words = self._words(offer, commands)
        try:
            answer = call(self._client, "EVALSHA", script.SHA, *words)
        except exceptions.NoScriptError:
            answer = call(self._client, "EVAL", script.SCRIPT, *words)
        return script.results(offer, answer)


class AsyncGuard(_Words):
    """The same on an event loop, for a client of `redis.asyncio`. See `Guard` for what each call raises."""

    def __init__(self, client: AsyncClient, prefix: str = PREFIX, strict: bool = False) -> None:
        if not isinstance(client, aioredis.Redis | aioredis.RedisCluster) or isinstance(
            client, aioredis.client.Pipeline
        ):
            raise UsageError(
                f"AsyncGuard takes a redis.asyncio.Redis, not {client!r}; for redis.Redis there is Guard"
            )
        super().__init__(prefix, strict)
        self._client = client

    async def register(self, name: str) -> None:
        """Register a name for strict guards, with no fence seen yet."""
        with sent():
            await self._client.set(self._key(name), "0", nx=True)

    async def enter(self, hold: Offered, name: str | None = None) -> None:
        """Raise the mark. Call it before anything is read."""
        await self._run(offer_of(hold, name), ())

    async def check(self, hold: Offered, name: str | None = None) -> None:
        """The same, later: to stop work early. It protects no write that is not in a `transaction`."""
        await self._run(offer_of(hold, name), ())

    async def run(self, hold: Offered, commands: Iterable[Sequence[Any]], name: str | None = None) -> list[Any]:
        """Check and raise the mark and run the commands, in one step; returns their results."""
        return await self._run(offer_of(hold, name), self._checked(commands))

    @asynccontextmanager
    async def transaction(self, hold: Offered, name: str | None = None) -> AsyncIterator[Transaction]:
        """Collect commands, without awaiting, and run them when the block is over."""
        offer = offer_of(hold, name)
        collected = Transaction(self._prefix)
        yield collected
        collected.results = await self._run(offer, collected.commands)

    async def _run(self, offer: Offer, commands: Sequence[Command]) -> list[Any]:
        words = self._words(offer, commands)
        try:
            answer = await call_async(self._client, "EVALSHA", script.SHA, *words)
        except exceptions.NoScriptError:
            answer = await call_async(self._client, "EVAL", script.SCRIPT, *words)
        return script.results(offer, answer)
