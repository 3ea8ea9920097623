"""All pictures in use: one for each login and tier, kept for a while after the last use."""

import asyncio
from collections import OrderedDict

from fencehold.dashboard.figures import Figures
from fencehold.dashboard.reader import Reader
from fencehold.errors import FenceholdError
from fencehold.gateway.credentials import Credentials
from fencehold.gateway.questions import Questions
from fencehold.types import CORRECTNESS, Tier

PICTURES_MAX = 8
"""Each may have all names: the least recently used one is dropped."""
IDLE_S = 60.0


class Pictures:
    """Made with the listener, closed with it."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._kept: OrderedDict[tuple[Credentials, Tier], tuple[Reader, asyncio.Task[None]]] = OrderedDict()
        self._looked_at: dict[tuple[Credentials, Tier], float] = {}
        self._keeper: asyncio.Task[None] | None = None
        self._figures = Figures(questions)

    def start(self) -> None:
        """Begin to sample figures."""
        self._figures.start()

    def __len__(self) -> int:
        return len(self._kept)

    async def of(self, credentials: Credentials, tier: Tier) -> Reader:
        """The picture for a login, when there is something to see.

        Raises:
            FenceholdError: the service does not answer this login.
        """
        key = credentials, tier
        reader, task = self._kept.get(key) or self._begin(key)
        if task.done():
            # It was refused, or failed by a bug that its end reports.
            self._end(key)
            reader, task = self._begin(key)
        self._kept.move_to_end(key)
        self._looked_at[key] = asyncio.get_running_loop().time()
        try:
            await reader.ready()
        except FenceholdError:
            self.forget(credentials)
            raise
        return reader

    def forget(self, credentials: Credentials) -> None:
        """Drop all that a login could see."""
        for key in [key for key in self._kept if key[0] == credentials]:
            self._end(key)

    async def close(self) -> None:
        """End all."""
        await self._figures.close()
        if self._keeper is not None:
            self._keeper.cancel()
        tasks = [task for _, task in self._kept.values()]
        for key in list(self._kept):
            self._end(key)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, key: tuple[Credentials, Tier]) -> tuple[Reader, "asyncio.Task[None]"]:
        reader = Reader(self._questions, *key, past=self._figures.rates if key[1] is CORRECTNESS else None)
        self._kept[key] = reader, asyncio.create_task(reader.run())
        while len(self._kept) > PICTURES_MAX:
            self._end(next(iter(self._kept)))
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep())
        return self._kept[key]

    def _end(self, key: tuple[Credentials, Tier]) -> None:
        _, task = self._kept.pop(key)
        self._looked_at.pop(key, None)
        task.cancel()
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(IDLE_S / 4)
            now = asyncio.get_running_loop().time()
            for key in [key for key, at in self._looked_at.items() if now - at > IDLE_S]:
                self._end(key)
