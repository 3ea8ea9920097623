"""The places of one client's asks in queues: one poll for all of them, however many wait.

1. Of several asks for one name only the first is polled for: the others cannot be before it. It is woken up when
   none is ahead of it any more, and when its place is gone.
2. Places are kept alive by one step for all, before the server considers the waiters gone.
3. Polling takes at most a fifth of a connection's time. If it fails it is retried, and meanwhile each ask polls
   for itself, every few seconds.
"""

import asyncio
from collections.abc import Callable, Iterable

from fencehold.backends.lease.queue_order import ALIVE_S, QueueStanding
from fencehold.backends.mysql import statements
from fencehold.backends.mysql.statements import WantedLease
from fencehold.drivers.mysql.pool import MysqlPool
from fencehold.errors import FenceholdError

FALLBACK_S = 3.0
"""How often an ask polls for itself."""
_PACE_S = 0.01
_PACE_S_PATIENT = 0.05
_PACE_S_MAX = 0.5
_REST = 4
_KEEP_S = ALIVE_S / 4
_TOGETHER_MAX = 200


class QueueWatch:
    """Belongs to the event loop it was made on."""

    def __init__(self, pool: MysqlPool, on_turn: Callable[[str, str], None]) -> None:
        self._pool = pool
        self._on_turn = on_turn
        self._loop = asyncio.get_running_loop()
        self._names: dict[str, dict[str, WantedLease]] = {}
        """The asks of each name, by token, in the order in which they came."""
        self._asked_at: dict[str, float] = {}
        self._called: set[str] = set()
        self._kept_at = self._moved_at = self._loop.time()
        self._watching: asyncio.Task[None] | None = None

    def add(self, wanted: WantedLease) -> None:
        """An ask has just been queued."""
        if wanted.token not in self._asked_at:
            self._moved_at = self._loop.time()
        self._names.setdefault(wanted.name, {})[wanted.token] = wanted
        self._asked_at[wanted.token] = self._loop.time()
        self._called.discard(wanted.token)
        if self._watching is None:
            self._watching = self._loop.create_task(self._watch())

    def remove(self, name: str, token: str) -> None:
        """An ask waits no longer."""
        if self._asked_at.pop(token, None) is not None:
            self._called.discard(token)
            tokens = self._names[name]
            del tokens[token]
            if not tokens:
                del self._names[name]

    def call(self, name: str, token: str) -> None:
        """It may be an ask's turn; if it is one of this client's, it is woken up."""
        if token in self._asked_at:
            self._called.add(token)
            self._moved_at = self._loop.time()
            self._on_turn(name, token)

    def waits(self, token: str) -> bool:
        """Whether there is no news for an ask."""
        asked_at = self._asked_at.get(token)
        return asked_at is not None and token not in self._called and self._loop.time() - asked_at < FALLBACK_S / 2

    async def close(self) -> None:
        """Stop polling."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self) -> None:
        pause_s = _PACE_S
        while True:
            await asyncio.sleep(pause_s)
            if not self._names:
                break
            begun = self._loop.time()
            try:
                await self._look()
                # Less often after a long wait; at once again when something moves.
                quiet_s = min((begun - self._moved_at) / 100, _PACE_S_PATIENT)
                pause_s = min(max(_PACE_S, quiet_s, _REST * (self._loop.time() - begun)), _PACE_S_MAX)
            except FenceholdError:
                pause_s = _PACE_S_MAX
        self._watching = None

    async def _look(self) -> None:
        if self._loop.time() - self._kept_at > _KEEP_S:
            self._kept_at = self._loop.time()
            for tokens in _parts(self._asked_at):
                await self._pool.do(statements.stay(tokens))
        firsts = {next(iter(asks)): name for name, asks in self._names.items()}
        for tokens in _parts(firsts):
            (answer,) = await self._pool.do(statements.standings(tokens), is_read=True)
            found = {bytes(token).decode(): QueueStanding(*map(int, counts)) for token, *counts in answer.rows}
            for token in tokens:
                self._tell(firsts[token], token, found.get(token))

    def _tell(self, name: str, token: str, standing: QueueStanding | None) -> None:
        wanted = self._names.get(name, {}).get(token)
        if wanted is not None and (standing is None or standing.is_turn(wanted.permits)):
            self.call(name, token)


def _parts(tokens: Iterable[str]) -> list[list[str]]:
    every = list(tokens)
    return [every[begin : begin + _TOGETHER_MAX] for begin in range(0, len(every), _TOGETHER_MAX)]
