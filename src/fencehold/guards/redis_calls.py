"""One call to a Redis, sent once.

1. *redis-py repeats a command whose connection broke*, three times by default, though it may have been done: what
   counts would count twice. So the script is sent on a connection of the client's pool, and not by the client.
2. *A connection that could not be made means that nothing happened*: `Unavailable`; one that is lost after that
   leaves the outcome open: `OutcomeUnknown`.
3. *A cluster's client finds the server itself*, and retries as configured.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from redis import Redis, RedisCluster, exceptions
from redis import asyncio as aioredis

from fencehold.errors import OutcomeUnknown, Unavailable

Client: TypeAlias = "Redis | RedisCluster"
AsyncClient: TypeAlias = "aioredis.Redis | aioredis.RedisCluster"

_LOST = (exceptions.ConnectionError, exceptions.TimeoutError, OSError)


def call(client: Any, *words: Any) -> Any:
    """The reply of Redis; its errors are redis-py's.

    Raises:
        Unavailable: nothing was sent.
        OutcomeUnknown: it was sent, and not answered.
    """
    if isinstance(client, RedisCluster):
        with sent():
            return client.execute_command(*words)  # type: ignore[no-untyped-call]
    pool = client.connection_pool
    with _reaching():
        connection = pool.get_connection()
    try:
        with sent():
            connection.send_command(*words)
            return client.parse_response(connection, words[0])
    finally:
        pool.release(connection)


async def call_async(client: Any, *words: Any) -> Any:
    """The same on an event loop. Cancelled, it has closed the connection, and it may have been done."""
    if isinstance(client, aioredis.RedisCluster):
        with sent():
            return await client.execute_command(*words)
    pool = client.connection_pool
    with _reaching():
        connection = await pool.get_connection()
    try:
        with sent():
            await connection.send_command(*words)
            return await client.parse_response(connection, words[0])
    finally:
        await pool.release(connection)


@contextmanager
def _reaching() -> Iterator[None]:
    try:
        yield
    except _LOST as error:
        raise Unavailable(f"Redis was not reached: {error}") from error


@contextmanager
def sent() -> Iterator[None]:
    """From now on, a lost connection leaves the outcome of what was sent open."""
    try:
        yield
    except exceptions.BusyLoadingError as error:
        # A reply, even if redis-py raises it as an error.
        raise Unavailable(f"Redis is reading its data from disk: {error}") from error
    except _LOST as error:
        raise OutcomeUnknown(f"Redis did not answer, and may have done it: {error}") from error
