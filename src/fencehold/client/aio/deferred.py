"""A carrier that is made when it is first used: for a client that is connected lazily.

1. Until then nothing is connected to, no loop is needed, and what it guarantees is known all the same: locks,
   elections and decorators can be made of it while a module is imported.
2. It belongs to the loop that runs when it is first used.
3. A process that was forked before that has one of its own, like any other.
"""

import asyncio
from typing import Any

from fencehold.client.aio.wrapping import Wrapping
from fencehold.client.sources import Source
from fencehold.errors import UsageError
from fencehold.guarantees import Guarantees


class Deferred(Wrapping):
    """Whatever is asked of it first makes it."""

    def __init__(self, source: Source) -> None:
        # Not `within`: it is found missing, and made then, so that later uses cost no more than of any other.
        self._source = source
        self._is_closed = False

    @property
    def guarantees(self) -> Guarantees:
        return self._source.guarantees

    @property
    def is_made(self) -> bool:
        """Whether it was used."""
        return "within" in self.__dict__

    async def close(self) -> None:
        self._is_closed = True
        if self.is_made:
            await self.within.close()

    def __getattr__(self, name: str) -> Any:
        if name != "within":
            raise AttributeError(name)
        if self._is_closed:
            raise UsageError("the client is closed")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise UsageError("an async client connects inside a running event loop, and none runs here") from None
        self.within = self._source.carrier()
        return self.within
