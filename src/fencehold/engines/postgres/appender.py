"""Appending and leading, and the outcome of an append whose reply was lost.

1. An append is one statement, one round trip, one commit. What the server answers is final.
2. If the reply is lost, the statement may have been carried out, may be under way, or may still arrive: a server
   carries out what it has received from a connection that is gone. So "absent" is never final under the newest
   epoch, and is not reported. Instead the entry is entered again, at the same position, over a new connection:
   that waits for the lock which the first try may hold, finds the entry, or enters it. The first try, should it
   arrive later, finds its position taken.
3. If there is a newer epoch by then, the first try can arrive no more: a read tells whether it came in before
   that.
4. There is one moment by which all this must have ended. Then the outcome is unknown.
5. An epoch whose taking was not answered is left alone, and a newer one is taken.
"""

import asyncio

from fencehold.drivers.postgres.connection import Row, SerialConnection
from fencehold.drivers.postgres.failures import ReplyLost
from fencehold.engines.postgres.statements import Statements
from fencehold.errors import FenceholdError, OutcomeUnknown, OutOfPlace, Sealed, Unavailable, UsageError
from fencehold.runtime.faults import Faults
from fencehold.types import Epoch, Position

_PAUSE_S = 0.03
"""Between two tries: a server that comes back is found soon, one that is down is not flooded."""


class Appender:
    """Has the connection for appends to itself."""

    def __init__(
        self, connection: SerialConnection, statements: Statements, *, timeout_s: float, faults: Faults
    ) -> None:
        self._connection = connection
        self._statements = statements
        self._timeout_s = timeout_s
        self._faults = faults

    async def append(self, entry: bytes, epoch: Epoch, position: Position) -> None:
        """Append one entry. Raises as the port says."""
        until = self._until()
        try:
            self._faults.reach("append.before")
            rows = await self._connection.ask(self._statements.append, position, epoch, entry, until=until)
            self._faults.reach("append.stored")
        except ReplyLost as lost:
            await self._settle(entry, epoch, position, until, lost)
        else:
            _judge(rows, epoch, position)

    async def lead(self, known: Epoch | None) -> Epoch:
        """Take the next epoch. Raises as the port says."""
        until = self._until()
        lost: ReplyLost | None = None
        may_be_ours = 0
        while True:
            try:
                if known is None:
                    return Epoch(_only(await self._connection.ask(self._statements.lead, until=until))[0])
                if rows := await self._connection.ask(self._statements.lead_after, known, until=until):
                    return Epoch(rows[0][0])
                stands = _only(await self._connection.ask(self._statements.state, 0, until=until))[1]
                if stands > known + may_be_ours:
                    raise Sealed(f"epoch {stands} was taken before", newest=stands)
                known, may_be_ours = Epoch(stands), 0
            except ReplyLost as error:
                lost, may_be_ours = error, 1
                await self._pause(until, lost)
            except Unavailable as error:
                if lost is None:
                    raise
                await self._pause(until, error)

    async def _settle(self, entry: bytes, epoch: Epoch, position: Position, until: float, why: Exception) -> None:
        while True:
            await self._pause(until, why)
            try:
                if await self._is_entered(entry, epoch, position, until):
                    return
            except (ReplyLost, Unavailable) as error:
                why = error

    async def _is_entered(self, entry: bytes, epoch: Epoch, position: Position, until: float) -> bool:
        """Enter what was sent before, or find it. Raises what is final; False if that is not known yet."""
        append, look = self._statements.append, self._statements.look
        if _only(await self._connection.ask(append, position, epoch, entry, until=until))[1]:
            return True
        # In a statement of its own: that one may have begun before what it waited for was there to be seen.
        newest, trimmed, is_ours = _only(await self._connection.ask(look, position, epoch, entry, until=until))
        if is_ours:
            return True
        if is_ours is None and trimmed >= position:
            raise OutcomeUnknown(f"position {position} was trimmed before it was known whether the entry is there")
        if newest > epoch:
            raise Sealed(f"epoch {epoch} was sealed by epoch {newest}")
        if is_ours is not None:
            raise OutOfPlace(f"position {position} is written already")
        return False

    async def _pause(self, until: float, why: Exception) -> None:
        """Wait a little before the next try.

        Raises:
            OutcomeUnknown: there is no time for another.
        """
        if asyncio.get_running_loop().time() + _PAUSE_S >= until:
            raise OutcomeUnknown(f"{why}; and that could not be settled within {self._timeout_s:g} s") from why
        await asyncio.sleep(_PAUSE_S)

    def _until(self) -> float:
        return asyncio.get_running_loop().time() + self._timeout_s


def _judge(rows: list[Row], epoch: Epoch, position: Position) -> None:
    newest, is_entered = _only(rows)
    if is_entered:
        return
    refused: FenceholdError = OutOfPlace(f"the next position is another than {position}")
    if epoch < newest:
        refused = Sealed(f"epoch {epoch} was sealed by epoch {newest}")
    elif epoch > newest:
        refused = UsageError(f"epoch {epoch} was never taken: the newest is {newest}")
    raise refused


def _only(rows: list[Row]) -> Row:
    if not rows:
        raise Unavailable("the row of the journal is gone: its tables were emptied; restore them from a copy")
    return rows[0]
