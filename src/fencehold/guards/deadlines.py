"""Deadlines: calls that end before the trust in a hold does.

A guard refuses what comes too late. It is better not to send it, or to abort it in time: the next holder may be at
work as soon as the trust ends.

1. *A timeout is what is left of the trust at the moment of the call*, or the caller's own, if that is less; never
   more. Trust is renewed while the service answers: compute the timeout again before each call.
2. *Where nothing is left, nothing is begun*: `HoldLost`, or `NotOwner` after a release.
3. *An aborted call may have taken effect*: its error is the driver's, and does not mean that nothing happened.
4. *`margin` is what the end itself takes*: a cancel on its way, an answer, the work after it.

This is not a guard: a process that is paused after the check is late all the same. Use a guard, too.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from math import inf
from typing import TYPE_CHECKING, Any, overload

from fencehold.errors import HoldLost, UsageError
from fencehold.locks.hold import Claiming

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection
    from redis import Redis

MAXIMUM_S = 60.0
WAITS = 4
"""Of one HTTP request, one after the other: for a pooled connection, to connect, to send, for the response."""
_STATEMENT_MARGIN_S = 0.25
_MS_MAX = 2**31 - 1

# The operator's own limit, if there is one that is shorter, stays. What was set here before does not count: trust
# may have been renewed since.
_SET_LOCAL = """
SELECT set_config('statement_timeout',
                  CASE WHEN reset_val::bigint BETWEEN 1 AND %(ms)s THEN reset_val ELSE %(ms)s::text END, true)
  FROM pg_settings WHERE name = 'statement_timeout'
"""


def bounded(hold: Claiming, maximum: float = inf, *, margin: float = 0.0) -> float:
    """Seconds that a call may take now: what is left of the trust, less the margin; at most `maximum`.

    Raises:
        HoldLost: nothing is left, or no more than the margin. Do not begin.
        NotOwner: it was released.
    """
    if not maximum > 0 or margin < 0:
        raise UsageError(f"a maximum is more than 0 seconds, a margin not less: not {maximum!r} and {margin!r}")
    safe = hold.safe_for()
    if safe > margin:
        return min(maximum, safe - margin)
    hold.check()
    raise HoldLost(
        f"{hold!r}: {safe:.3f} s of trust are left, and the margin is {margin:g} s",
        names=hold.names,
        fence=getattr(hold, "fence", 0),
        reason="too little trust is left",
    )


def timeout(hold: Claiming, maximum: float = MAXIMUM_S, *, margin: float = 0.0, waits: int = WAITS) -> float:
    """A timeout for `httpx` or `requests`, both of which apply it to each wait, and not to the whole request.

    So each has a part of what is left: `waits` is how many there are, 4 with httpx, 2 with requests. A response
    that trickles in is more waits than that: on a loop, bound the whole call by `within`.

    Raises:
        HoldLost: as `bounded`.
    """
    if waits < 1:
        raise UsageError(f"there is one wait at least, not {waits}")
    return bounded(hold, maximum, margin=margin) / waits


@asynccontextmanager
async def within(hold: Claiming, maximum: float = inf, *, margin: float = 0.0) -> AsyncIterator[None]:
    """Bound a whole block by the time that is left now, as `asyncio.timeout` does.

    Raises:
        HoldLost: as `bounded`, before the block.
        TimeoutError: the block was cancelled.
    """
    seconds = bounded(hold, maximum, margin=margin)
    async with asyncio.timeout(None if seconds == inf else seconds):
        yield


@overload
def statement_timeout(
    connection: "Connection[Any]", hold: Claiming, maximum: float = ..., *, margin: float = ...
) -> None: ...


@overload
def statement_timeout(
    connection: "AsyncConnection[Any]", hold: Claiming, maximum: float = ..., *, margin: float = ...
) -> Awaitable[None]: ...


def statement_timeout(
    connection: Any, hold: Claiming, maximum: float = inf, *, margin: float = _STATEMENT_MARGIN_S
) -> Awaitable[None] | None:
    """Have Postgres cancel what runs when the trust ends, for the rest of this transaction. On a loop, await it.

    It applies to each statement from its own beginning: call it again before those that may take long. The server
    counts: one that is cut off continues for that long, and then cancels.

    Raises:
        HoldLost: as `bounded`.
        UsageError: there is no transaction, after whose end it would be forgotten.
    """
    if connection.autocommit and connection.info.transaction_status.name == "IDLE":
        raise UsageError("statement_timeout is for one transaction: begin one with `connection.transaction()`")
    seconds = bounded(hold, maximum, margin=margin)
    # Not 0, which means no limit.
    ms = min(max(1, int(seconds * 1000)), _MS_MAX) if seconds < inf else _MS_MAX
    done = connection.execute(_SET_LOCAL, {"ms": ms})
    return _awaited(done) if isinstance(done, Awaitable) else None


async def _awaited(done: Awaitable[Any]) -> None:
    await done


@contextmanager
def redis_timeout(
    client: "Redis", hold: Claiming, maximum: float = MAXIMUM_S, *, margin: float = 0.0
) -> Iterator["Redis"]:
    """A client like this one, of which no command, pipeline or connect waits for longer than the trust lasts.

    ::

        with redis_timeout(client, hold) as bounded:
            job = bounded.blpop("jobs", timeout=0)

    It has connections of its own, and retries nothing. The cap is computed again for each command. On a loop,
    `within` does the same for any client.

    Raises:
        HoldLost: as `bounded`, and so does each command.
        redis.exceptions.TimeoutError: the command took too long; it may have been done.
    """
    from fencehold.guards.deadlines_redis import capped  # noqa: PLC0415

    with capped(client, lambda: bounded(hold, maximum, margin=margin)) as made:
        yield made
