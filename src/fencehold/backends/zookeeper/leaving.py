"""Leaving: places that nobody wants any more are taken out, and none is left behind.

An ephemeral node goes with its session only, and a session may last for years. So:

1. A place whose path is known is removed by a request that is handed over at once, before whatever its client asks
   next. Nobody waits for it.
2. What could not be removed, or may have been made without an answer, is *doomed*. One chore sweeps all of it, as
   soon as there is a connection and for as long as the session lasts; so no number of them is too many.
3. What may have been made is looked for behind a write on the same session. Whatever was asked before that write
   has happened or never will: requests of one connection are done in order; and what an earlier connection left
   unread is refused by the servers, as the session has moved.
"""

import asyncio
from functools import partial

from fencehold.backends.lease.background import BackgroundRetries
from fencehold.backends.zookeeper.entry import Entry
from fencehold.backends.zookeeper.requests import Answer, children, delete, proof
from fencehold.backends.zookeeper.session import Session
from fencehold.errors import FenceholdError, Unavailable

_WHILE_IT_LASTS_S = 1e8
_SWEPT_AT_ONCE = 256


class Leaving:
    """Of one backend."""

    def __init__(self, root: str, seconds: float) -> None:
        self.background = BackgroundRetries()
        self._root = root
        self._seconds = seconds
        self._doomed: dict[str, Entry] = {}
        self._is_sweeping = False

    def leave(self, entry: Entry) -> None:
        """Have the place of an entry removed, if it has one."""
        entry.unwatch()
        if not entry.may_be_there or entry.session is None:
            entry.leave()
        elif entry.path and entry.session.is_connected:
            future = entry.session.send(delete(entry.path))
            future.add_done_callback(partial(self._on_answer, entry))
        else:
            self._doom(entry)

    def _on_answer(self, entry: Entry, future: "asyncio.Future[Answer]") -> None:
        if isinstance(future.result().error, FenceholdError) and entry.may_be_there:
            self._doom(entry)
        else:
            entry.leave()

    def _doom(self, entry: Entry) -> None:
        self._doomed[entry.ask.token] = entry
        if not self._is_sweeping:
            self._is_sweeping = True
            self.background.do(self._sweep, _WHILE_IT_LASTS_S)

    async def _sweep(self) -> None:
        while self._drop_the_gone():
            some = list(self._doomed.values())[:_SWEPT_AT_ONCE]
            session = some[0].session
            if session is None or not session.is_connected:
                raise Unavailable("there is no connection yet")
            await self._remove(session, [entry for entry in some if entry.session is session])
        self._is_sweeping = False

    def _drop_the_gone(self) -> bool:
        for token, entry in tuple(self._doomed.items()):
            if not entry.may_be_there:
                entry.leave()
                del self._doomed[token]
        return bool(self._doomed)

    async def _remove(self, session: Session, entries: list[Entry]) -> None:
        lost = [entry for entry in entries if not entry.path]
        if lost:
            parents = [children(entry.parent) for entry in lost]
            _, *answers = await session.ask(proof(self._root), *parents, seconds=self._seconds)
            for entry, answer in zip(lost, answers, strict=True):
                node = entry.own_among(answer.value or [])
                entry.found(f"{entry.parent}/{node}" if node else "", 0)
        await session.ask(*[delete(entry.path) for entry in entries if entry.path], seconds=self._seconds)
        for entry in entries:
            entry.leave()
