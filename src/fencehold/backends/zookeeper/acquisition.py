"""From an ask to its grant, whatever happens to connections and sessions meanwhile; and the removal of its place.

1. An entry is made in the current session, found again if the reply was lost, made anew if its session ended.
2. No place is ever made before an existing one. So a queue that was read once only gets shorter, and one that was
   read from a member that lags is at worst longer than it is.
3. The timeout is checked after a reply, not before: an ask that does not wait is granted what is free.
4. Servers that fail are tolerated for as long as connecting may take; then the error is raised.

An ephemeral node ends only with its session, and a session may last for years. So none is left behind:

5. A place whose path is known is removed by a request that is sent at once, before any later request of its
   client. No caller waits for it.
6. What could not be removed, or may have been made without a reply, is swept by one background retry, as soon as
   there is a connection and for as long as the session lasts; so no number of them is too many.
7. What may have been made is looked up behind a write on the same session. Whatever was sent before that write
   has happened or never will: requests of one connection are done in order; and what an earlier connection left
   unread is refused by the servers, as the session has moved.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from math import inf

from fencehold.backends.lease.background import BackgroundRetries
from fencehold.backends.port import Settings
from fencehold.backends.zookeeper.queue import QueueEntry
from fencehold.backends.zookeeper.session import ZookeeperSession
from fencehold.backends.zookeeper.session_keeper import SessionKeeper
from fencehold.drivers.zookeeper.kazoo_client import ZookeeperAnswer
from fencehold.drivers.zookeeper.requests import (
    AnswerLost,
    children,
    create_container,
    create_place,
    delete,
    exists,
    get,
    proof,
)
from fencehold.errors import FenceholdError, OutcomeUnknown, Unavailable
from fencehold.locks.clock import Clock

_PARENTS_MAX = 100_000
_WHILE_IT_LASTS_S = 1e8
_SWEPT_AT_ONCE = 256


class Acquisition:
    """Of one backend."""

    def __init__(self, sessions: SessionKeeper, settings: Settings, clock: Clock) -> None:
        self._sessions = sessions
        self._seconds = settings.connect_timeout
        self._clock = clock
        self._parents: set[str] = set()
        """Parents that existed: mostly they still do, and need not be made."""

    async def granted(self, entry: QueueEntry, until: float) -> bool:
        """Join the queue; returns whether it was granted in time. If not, it still has its place.

        Raises:
            Unavailable: it is not there.
            OutcomeUnknown: it may be granted, or in the queue.
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
                    await session.trusted(session.session_trust.timeout)
                    return True
                if self._clock() >= until:
                    return False
                await self._wait(session, entry, paths, until)
            except AnswerLost:
                entry.ahead = None
                failing_since = failing_since or self._clock()
                if self._clock() - failing_since >= self._seconds:
                    raise

    async def _entered(self, entry: QueueEntry) -> ZookeeperSession | None:
        """The session in which it has a place and knows those before it; None if it has to be tried again."""
        session = await self._ready(entry)
        if entry.session is not session:
            await self._make(session, entry)
        elif entry.is_doubtful:
            await self._find(session, entry)
        elif entry.ahead is None:
            await self._look(session, entry)
        return None if entry.ahead is None else session

    async def _ready(self, entry: QueueEntry) -> ZookeeperSession:
        try:
            return await self._sessions.ready(self._seconds)
        except Unavailable as error:
            if entry.may_be_there:
                raise OutcomeUnknown(f"{entry.ask.terms.label} may still be queued: {error}") from error
            raise

    async def _make(self, session: ZookeeperSession, entry: QueueEntry) -> None:
        parent, acl = entry.parent, session.acl
        entry.begin(session)
        requests = [create_place(f"{parent}/{entry.stem}", entry.data, acl), children(parent)]
        if parent not in self._parents:
            requests.insert(0, create_container(parent, acl))
        *parents, made, listed = await session.ask(*requests, seconds=self._seconds)
        if made.is_missing:
            # The parent was removed as it was empty; perhaps just after it was made.
            self._parents.discard(parent)
            entry.leave()
            if parents and parents[0].is_missing:
                raise Unavailable(f"{session.address}: its root was removed: create it, or connect again")
            return
        self._remember(parent)
        path, stat = made.value
        entry.found(path, stat.czxid)
        entry.see(listed.value or [])

    async def _find(self, session: ZookeeperSession, entry: QueueEntry) -> None:
        """Look up what may have been made, behind a write, so that it is there by now or never will be."""
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

    async def _look(self, session: ZookeeperSession, entry: QueueEntry) -> None:
        (listed,) = await session.ask(children(entry.parent), seconds=self._seconds)
        if not entry.see(listed.value or []):
            # It was removed by another client. It joins the end of the queue again.
            entry.leave()

    async def _wait(
        self, session: ZookeeperSession, entry: QueueEntry, paths: Sequence[str], until: float
    ) -> None:
        """Wait until one of these is gone, or there is another reason to read, or time is over."""
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
            # If it was the only one before us, none is left. Else the others are mostly gone, too: read again.
            entry.ahead = [] if gone and entry.ahead is not None and len(entry.ahead) == 1 else None

    def _remember(self, parent: str) -> None:
        if len(self._parents) >= _PARENTS_MAX:
            self._parents.clear()
        self._parents.add(parent)


class Removal:
    """Of one backend."""

    def __init__(self, root: str, seconds: float) -> None:
        self.background = BackgroundRetries()
        self._root = root
        self._seconds = seconds
        self._unremoved: dict[str, QueueEntry] = {}
        self._is_sweeping = False

    def remove(self, entry: QueueEntry) -> None:
        """Have the place of an entry removed, if it has one."""
        entry.unwatch()
        if not entry.may_be_there or entry.session is None:
            entry.leave()
        elif entry.path and entry.session.is_connected:
            future = entry.session.send(delete(entry.path))
            future.add_done_callback(partial(self._on_answer, entry))
        else:
            self._remove_later(entry)

    def _on_answer(self, entry: QueueEntry, future: "asyncio.Future[ZookeeperAnswer]") -> None:
        if isinstance(future.result().error, FenceholdError) and entry.may_be_there:
            self._remove_later(entry)
        else:
            entry.leave()

    def _remove_later(self, entry: QueueEntry) -> None:
        self._unremoved[entry.ask.token] = entry
        if not self._is_sweeping:
            self._is_sweeping = True
            self.background.do(self._sweep, _WHILE_IT_LASTS_S)

    async def _sweep(self) -> None:
        while self._drop_the_gone():
            some = list(self._unremoved.values())[:_SWEPT_AT_ONCE]
            session = some[0].session
            if session is None or not session.is_connected:
                raise Unavailable("there is no connection yet")
            await self._remove(session, [entry for entry in some if entry.session is session])
        self._is_sweeping = False

    def _drop_the_gone(self) -> bool:
        for token, entry in tuple(self._unremoved.items()):
            if not entry.may_be_there:
                entry.leave()
                del self._unremoved[token]
        return bool(self._unremoved)

    async def _remove(self, session: ZookeeperSession, entries: list[QueueEntry]) -> None:
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
