"""Queueing: from an ask to its grant, whatever happens to connections and sessions on the way.

1. An entry is made in the session there is, found again if the answer was lost, made anew if its session ended.
2. Nobody can come to stand before a place that is there. So a queue that was read once only gets shorter, and one
   that was read on a member that is behind is at worst longer than it is.
3. Whether time is over is asked after an answer, not before: who does not wait is granted what is free.
4. Servers that fail are borne for as long as connecting may take; then it is said what is known.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from math import inf

from fencehold.backends.port import Settings
from fencehold.backends.zookeeper.entry import Entry
from fencehold.backends.zookeeper.link import Link
from fencehold.backends.zookeeper.requests import (
    Lost,
    children,
    create_container,
    create_place,
    exists,
    get,
    proof,
)
from fencehold.backends.zookeeper.session import Session
from fencehold.errors import OutcomeUnknown, Unavailable
from fencehold.locks.clock import Clock

_PARENTS_MAX = 100_000


class Queueing:
    """Of one backend."""

    def __init__(self, link: Link, settings: Settings, clock: Clock) -> None:
        self._link = link
        self._seconds = settings.connect_timeout
        self._clock = clock
        self._parents: set[str] = set()
        """Parents that were there: mostly they still are, and need not be made."""

    async def granted(self, entry: Entry, until: float) -> bool:
        """Stand in the queue; says whether it was granted in time. It has its place still, if it was not.

        Raises:
            Unavailable: it is not there.
            OutcomeUnknown: it may be there, or stand in the queue.
            UsageError: the name is a semaphore with another limit.
        """
        failing_since: float | None = None
        while True:
            try:
                session = await self._entered(entry)
                failing_since = None
                if session is None:
                    continue
                paths = entry.blockers()
                if not paths:
                    await session.trusted(session.standing.timeout)
                    return True
                if self._clock() >= until:
                    return False
                await self._wait(session, entry, paths, until)
            except Lost:
                entry.ahead = None
                failing_since = failing_since or self._clock()
                if self._clock() - failing_since >= self._seconds:
                    raise

    async def _entered(self, entry: Entry) -> Session | None:
        """The session in which it has a place and knows who is before it; None if it has to be tried again."""
        session = await self._ready(entry)
        if entry.session is not session:
            await self._make(session, entry)
        elif entry.is_doubtful:
            await self._find(session, entry)
        elif entry.ahead is None:
            await self._look(session, entry)
        return None if entry.ahead is None else session

    async def _ready(self, entry: Entry) -> Session:
        try:
            return await self._link.ready(self._seconds)
        except Unavailable as error:
            if entry.may_be_there:
                raise OutcomeUnknown(f"{entry.ask.terms.label} may stand in the queue still: {error}") from error
            raise

    async def _make(self, session: Session, entry: Entry) -> None:
        parent, acl = entry.parent, session.acl
        entry.begin(session)
        requests = [create_place(f"{parent}/{entry.stem}", entry.data, acl), children(parent)]
        if parent not in self._parents:
            requests.insert(0, create_container(parent, acl))
        *parents, made, listed = await session.ask(*requests, seconds=self._seconds)
        if made.is_missing:
            # The parent was removed as nobody was in it; or just now, after it was made.
            self._parents.discard(parent)
            entry.leave()
            if parents and parents[0].is_missing:
                raise Unavailable(f"{session.address}: its root was removed: make it, or connect anew")
            return
        self._remember(parent)
        path, stat = made.value
        entry.found(path, stat.czxid)
        entry.see(listed.value or [])

    async def _find(self, session: Session, entry: Entry) -> None:
        """Look for what may have been made, behind a write, so that it is there by now or never will be."""
        ask = proof(session.address.root), children(entry.parent)
        _, listed = await session.ask(*ask, seconds=self._seconds)
        node = entry.own_among(listed.value or [])
        if not node:
            entry.leave()
            return
        path = f"{entry.parent}/{node}"
        (found,) = await session.ask(exists(path), seconds=self._seconds)
        if found.value is None:
            entry.leave()
            return
        entry.found(path, found.value.czxid)
        entry.see(listed.value)

    async def _look(self, session: Session, entry: Entry) -> None:
        (listed,) = await session.ask(children(entry.parent), seconds=self._seconds)
        if not entry.see(listed.value or []):
            # Somebody removed it. It stands at the end again.
            entry.leave()

    async def _wait(self, session: Session, entry: Entry, paths: Sequence[str], until: float) -> None:
        """Wait until one of these has gone, or something else is to be looked at, or time is over."""
        woken = asyncio.Event()
        gone = False

        def told(is_deleted: bool) -> None:
            nonlocal gone
            gone |= is_deleted
            woken.set()

        with session.watching(paths, told) as watcher, suppress(TimeoutError):
            there = await session.ask(*[get(path, watcher) for path in paths], seconds=self._seconds)
            if not any(each.is_missing for each in there):
                async with asyncio.timeout(None if until == inf else max(until - self._clock(), 0)):
                    await woken.wait()
            else:
                gone = True
            # If it was the only one before us, nobody is. Else the others have mostly gone before it: look.
            entry.ahead = [] if gone and entry.ahead is not None and len(entry.ahead) == 1 else None

    def _remember(self, parent: str) -> None:
        if len(self._parents) >= _PARENTS_MAX:
            self._parents.clear()
        self._parents.add(parent)
