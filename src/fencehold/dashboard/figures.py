"""Figures of the last minutes, sampled by the listener itself, so that charts are not empty when a page is opened.

They are what INFO shows to any admitted client: how many names are held, how many wait, sessions and grants, in
total. They are shown to logins that may ask for them themselves. Where the listener's own URL has no login that
the service accepts, there are none, and charts begin when a page is opened.
"""

import asyncio
import contextlib
import time

from fencehold.dashboard.rates import Rates
from fencehold.dashboard.shard_facts import Facts, facts_in, together
from fencehold.errors import FenceholdError, Unavailable
from fencehold.gateway.problems import Unauthenticated
from fencehold.gateway.questions import Questions
from fencehold.types import CORRECTNESS

EVERY_S = 3.0


class Figures:
    """Sampled from `start` to `close`."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self.rates = Rates()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._sample())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _sample(self) -> None:
        known: dict[int, Facts] = {}
        while True:
            with contextlib.suppress(FenceholdError):
                try:
                    await self._read(known)
                except Unauthenticated:
                    return
                self._take(together(known.values()), int(time.time()))
            await asyncio.sleep(EVERY_S)

    async def _read(self, known: dict[int, Facts]) -> None:
        """The facts of INFO of each shard now; of one that is away, the last ones."""
        shards = await self._questions.shards(None)
        if shards == 1:
            known[0] = facts_in((await self._questions.ask(None, CORRECTNESS, "INFO")).decode())
            return
        for shard in range(shards):
            with contextlib.suppress(Unavailable):
                if shard not in known:
                    self.rates.begin_grants()
                info = await self._questions.ask(None, CORRECTNESS, "INFO", shard=shard, within_s=1.0)
                known[shard] = facts_in(info.decode())

    def _take(self, facts: Facts, second: int) -> None:
        levels, fence = levels_in(facts)
        self.rates.level(second, levels, fence)
        for back in range(int(EVERY_S)):
            # The rate per second, since the last sample.
            self.rates.sampled(second - back)


def levels_in(facts: Facts) -> tuple[dict[str, int], int]:
    """The levels in the facts of INFO, and the newest fence; of several shards, the sums."""
    number = {key: int(value) for key, value in facts.items() if value.isdecimal()}
    names = {"held": "names_held", "waiting": "waiters", "sessions": "sessions"}
    return {key: number.get(fact, 0) for key, fact in names.items()}, number.get("fence", 0)
