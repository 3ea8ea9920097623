"""Figures of the last minutes, asked for by the listener itself, so that charts are not empty when somebody comes.

They are what INFO tells anybody who is let in: how many names are held, how many wait, sessions and grants, of
nobody in particular. They are shown to logins that may ask for them themselves. Where the listener's own URL has
no login that the service takes, there are none, and charts begin when somebody looks.
"""

import asyncio
import contextlib
import time

from fencehold.dashboard.rates import Rates
from fencehold.errors import FenceholdError
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
        while True:
            with contextlib.suppress(FenceholdError):
                try:
                    info = (await self._questions.ask(None, CORRECTNESS, "INFO")).decode()
                except Unauthenticated:
                    return
                self._take(info, int(time.time()))
            await asyncio.sleep(EVERY_S)

    def _take(self, info: str, second: int) -> None:
        levels, fence = levels_in(info)
        self.rates.level(second, levels, fence)
        for back in range(int(EVERY_S)):
            # So many a second, since the last look.
            self.rates.sampled(second - back)


def levels_in(info: str) -> tuple[dict[str, int], int]:
    """How much there is of what, by INFO; and the newest fence."""
    facts = dict(line.split(":", 1) for line in info.splitlines() if ":" in line)
    number = {key: int(value) for key, value in facts.items() if value.isdecimal()}
    names = {"held": "names_held", "waiting": "waiters", "sessions": "sessions"}
    return {key: number.get(fact, 0) for key, fact in names.items()}, number.get("fence", 0)
