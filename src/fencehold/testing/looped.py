"""An async client for a fixture: it connects on the loop on which a test first uses it, and is closed with it.

A fixture that is no coroutine works under every plugin that runs async tests, and under none, where a test calls
`asyncio.run` itself. But it cannot await: so the client connects lazily, and is closed by an async generator,
which every runner of loops closes before the loop.
"""

from collections.abc import AsyncIterator
from contextlib import suppress

from fencehold.client.aio.client import Client, connect
from fencehold.client.aio.deferred import Deferred
from fencehold.client.sources import Source
from fencehold.guarantees import Guarantees
from fencehold.locks.carrier import Carrier
from fencehold.types import Tier


def client_of(url: str) -> Client:
    """A client of a service, for one loop."""
    client = connect(url, lazy=True)
    first = client._first
    assert isinstance(first, Deferred)
    first._source = _Closed(first._source, client)
    return client


class _Closed:
    """A source whose client is closed with the loop that it is first used on."""

    def __init__(self, within: Source, client: Client) -> None:
        self._within = within
        self._client = client
        self._closing: AsyncIterator[None] | None = None
        """Kept, because loops only know their async generators weakly."""

    @property
    def guarantees(self) -> Guarantees:
        return self._within.guarantees

    @property
    def is_service(self) -> bool:
        return self._within.is_service

    def at(self, tier: Tier) -> Source:
        return self._within.at(tier)

    def carrier(self) -> Carrier:
        carrier = self._within.carrier()
        self._closing = _closing(self._client)
        # It runs to its `yield` at once, as nothing is awaited before; from here on the loop knows it.
        with suppress(StopIteration):
            self._closing.__anext__().__await__().__next__()
        return carrier


async def _closing(client: Client) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await client.close()
