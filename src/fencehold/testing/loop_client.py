"""An async client for a fixture: it connects on the loop on which a test first uses it, and is closed with it.

A fixture that is no coroutine works under every plugin that runs async tests, and under none, where a test calls
`asyncio.run` itself. But it cannot await: so the client connects lazily, and is closed by an async generator,
which every runner of loops closes before the loop.
"""

from collections.abc import AsyncIterator
from contextlib import suppress

from fencehold.client.aio.carriers import LazyCarrier
from fencehold.client.aio.client import Client, connect
from fencehold.locks.carrier import Carrier


def client_of(url: str) -> Client:
    """A client of a service, for one loop."""
    client = connect(url, lazy=True)
    first = client._first
    assert isinstance(first, LazyCarrier)
    make = first._make
    # Kept by what makes the carrier, because loops only know their async generators weakly.
    closing = _closing(client)

    def made() -> Carrier:
        carrier = make()
        # It runs to its `yield` at once, as nothing is awaited before; from here on the loop knows it.
        with suppress(StopIteration):
            closing.__anext__().__await__().__next__()
        return carrier

    first._make = made
    return client


async def _closing(client: Client) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await client.close()
