"""All that is asked beside appends: reads, and writes that may be repeated.

1. A statement whose reply was lost is asked once more, over a new connection, within the same time.
2. It goes on when its caller gives it up, and ends within its time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple, TypeVar

from fencehold.engines.postgres.crew import Crew
from fencehold.engines.postgres.failures import Lost, Unanswered
from fencehold.engines.postgres.link import Link, Row
from fencehold.engines.postgres.statements import FORMAT, Statements
from fencehold.errors import Damaged, FenceholdError
from fencehold.types import Epoch, Position

T = TypeVar("T")


class State(NamedTuple):
    """Where a journal is."""

    epoch: Epoch
    trimmed: Position
    end: Position
    epoch_at: Epoch | None
    """Of the entry at the position asked for; None if there is none."""


class Aside:
    """A link for statements that hold up no append."""

    def __init__(self, link: Link, statements: Statements, crew: Crew, *, timeout_s: float) -> None:
        self.statements = statements
        self._link = link
        self._crew = crew
        self._timeout_s = timeout_s

    async def ask(self, statement: str, *params: int | bytes) -> list[Row]:
        """What a statement gives.

        Raises:
            Unanswered: it may have been carried out.
            Unavailable, UsageError, Damaged: certainly nothing happened.
        """
        return await self._crew.begin(self._twice(lambda until: self._link.ask(statement, *params, until=until)))

    async def run(self, script: str) -> None:
        """Run a script. Raises as `ask`."""
        await self._crew.begin(self._twice(lambda until: self._link.run(script, until=until)))

    def leave(self, statement: str, *params: int | bytes) -> None:
        """Have a statement carried out if that can be done; nobody waits for it."""

        async def quietly() -> None:
            with suppress(FenceholdError):
                await self._twice(lambda until: self._link.ask(statement, *params, until=until))

        self._crew.begin(quietly())

    async def state(self, position: int = 0) -> State:
        """Where the journal is, and what is at a position. Raises as `ask`."""
        rows = await self.ask(self.statements.state, position)
        if not rows:
            raise Damaged("the row of the journal is gone: its tables were emptied; restore them from a copy")
        version, *rest = rows[0]
        if version != FORMAT:
            raise Damaged(
                f"the tables are of format {version}, but only {FORMAT} is known here: "
                "run the program that made them"
            )
        return State(*rest)

    async def _twice(self, call: Callable[[float], Awaitable[T]]) -> T:
        until = asyncio.get_running_loop().time() + self._timeout_s
        try:
            return await call(until)
        except Lost:
            return await self._again(call, until)

    async def _again(self, call: Callable[[float], Awaitable[T]], until: float) -> T:
        try:
            return await call(until)
        except (Lost, FenceholdError) as error:
            raise Unanswered(str(error)) from error
