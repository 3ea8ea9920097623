"""A queue entry: one ask in one session, from the first request to the grant.

1. *A free name is granted in one step*, and so is the place in the queue of one that is not.
2. A waiter watches one key, and reads the queue when that changes, or when the watch may have missed it.
3. *The first request is not cancelled.* It could still arrive, after whatever would undo it: so a caller that
   stops waiting lets it finish, and then undoes it.
4. *A least time is kept by a tombstone*, which is on the session's lease while the ask waits, and ends with it.
   Its own lease is made when the name is granted, before the caller gets the grant.
"""

import asyncio
import random
import secrets
from contextlib import suppress
from typing import NamedTuple

from fencehold.backends.etcd import queues
from fencehold.backends.etcd.calls import Batches, KeyRange, KeyWatch, KeyWatches, TransactionResult
from fencehold.backends.etcd.queues import QueueSight, limit_in
from fencehold.backends.etcd.session import LEASE_GONE, EtcdSession, ttl_s_of
from fencehold.backends.port import Ask
from fencehold.drivers.etcd.client import EtcdClient, NoLease
from fencehold.drivers.etcd.transactions import keys_in, newest, transaction
from fencehold.errors import OutcomeUnknown, PermissionDenied, Unavailable, UsageError

_LOOK_S = 30.0
"""After so long without an event the queue is read anyway."""
_BROKEN_S_MAX = 0.2
"""Waiters whose watch broke read again within that time, with jitter."""


class SessionOver(Exception):
    """The session ended meanwhile: try again in another."""


class EtcdCalls(NamedTuple):
    """What asks are sent by."""

    cluster: EtcdClient
    batches: Batches
    watches: KeyWatches


class QueueEntry:
    """One ask."""

    def __init__(self, calls: EtcdCalls, session: EtcdSession, ask: Ask, queue: KeyRange, stamp: str) -> None:
        self.session = session
        self.ask = ask
        self.limit = ask.terms.limit
        self.key = queues.entry_key(queue, session.id, ask.token, self.limit)
        self.fence = 0
        """The revision at which its key was made, once that is known."""
        self.is_entered = False
        """Whether etcd may know of it."""
        self.keeps = ask.terms.at_least > 0
        """Whether its name is kept for a least time."""
        self.is_kept = False
        """Whether it is kept from now on, whatever becomes of the hold."""
        self.timer: asyncio.TimerHandle | None = None
        """Ends it by itself, once it is a hold with a ttl of its own."""
        self._cluster, self._batches, self._watches = calls
        self._queue = queue
        self._stamp = stamp
        self._asking: asyncio.Future[TransactionResult] | None = None
        self._watch: KeyWatch | None = None

    def value(self, ttl: float | None) -> bytes:
        return queues.encode_entry(self._stamp, ttl)

    async def enter(self, *, waits: bool) -> QueueSight | None:
        """Send the first request; None if it is granted.

        Raises:
            UsageError: a semaphore is in use with another limit.
            Over: the session is.
            Unavailable, OutcomeUnknown: as for `acquire`.
        """
        if self.keeps and self.is_entered:
            # Its key was deleted by hand, and what is left of its tombstone would be before it in the queue.
            raise self._taken()
        if self.keeps:
            make = queues.enter_keeping if waits else queues.attempt_keeping
        else:
            make = queues.enter if waits or self.limit else queues.attempt
        request = make(self._queue, self.key, self.value(self.ask.terms.ttl), self.session.id)
        self.is_entered = True
        self._asking = self._batches.transact(self.ask.name, request)
        try:
            told = await asyncio.shield(self._asking)
        except NoLease as error:
            raise self._lost() from error
        except asyncio.CancelledError:
            if self._asking.cancelled() and self.session.ending:
                raise SessionOver from None
            raise
        except (Unavailable, PermissionDenied):
            self.is_entered = False
            raise
        seen = queues.entered(told, self.key)
        self._check_limit(seen)
        if not seen.mine and (waits or self.limit or told.doubted):
            seen = await self._find(seen)
        # An ask that keeps its name was entered for certain if it may wait: without a key, that was deleted since.
        self.is_entered = bool(seen.mine) or told.doubted or (self.keeps and waits)
        self.fence = seen.mine
        return None if self._is_granted(seen) else seen

    async def keep(self) -> None:
        """Have the name kept for its least time from now on.

        Raises:
            OutcomeUnknown: it may be so, or was taken away before; withdrawing it ends that.
        """
        lease = secrets.randbits(62) + 1
        at_least = self.ask.terms.at_least
        try:
            await self._cluster.grant_lease(lease, ttl_s_of(at_least))
            # From now on it is not the session that ends it.
            request = queues.keep(self.key, self.fence, self.value(at_least), lease)
            is_kept = (await self._cluster.transact(request)).message.succeeded
        except (Unavailable, NoLease) as error:
            raise OutcomeUnknown(f"{self.ask.terms.label} may have been granted: {error}") from error
        if not is_kept:
            raise self._taken()

    async def look(self) -> QueueSight | None:
        """Read its place in the queue; None if it is granted. Its key may be gone: then `mine` is 0.

        Raises: as `enter`.
        """
        return await (self._look_for_permit() if self.limit else self._decide())

    async def wait(self, seen: QueueSight, seconds: float | None) -> bool:
        """Wait until it is worth reading again; False when the time is over.

        Raises:
            Over: the session is.
        """
        wanted = queues.awaited(self._queue, seen, self.limit)
        watch = self._watch = self._watches.open(wanted, seen.revision + 1)
        try:
            is_woken = await _is_woken(watch, _LOOK_S if seconds is None else min(seconds, _LOOK_S))
        finally:
            self._watch = None
            self._watches.close(watch)
        if self.session.ending:
            raise SessionOver
        return is_woken or seconds is None or seconds > _LOOK_S

    def wake(self) -> None:
        """The session is over."""
        if self._watch is not None:
            self._watch.wake()

    async def leave(self) -> None:
        """Remove it, whatever it has.

        Raises:
            Unavailable, OutcomeUnknown: as for `acquire`.
        """
        if self._asking is not None and not self._asking.done():
            await asyncio.wait({self._asking})
        if self.keeps and not self.is_kept:
            # Nothing was done under it. The tombstone may be on a lease of its own, and outlive the session.
            await self._cluster.transact(transaction(then=queues.remove(self.key, with_tombstone=True)))
        elif not self.session.ending:
            await self._cluster.delete(self.key, b"")

    async def _find(self, seen: QueueSight) -> QueueSight:
        """It was sent twice: read when its key was made, and what was before it."""
        try:
            answer = await self._cluster.read(transaction(then=[newest(self.key, b"", 1)]))
        except Unavailable as error:
            raise OutcomeUnknown(f"{self.ask.terms.label} may have been granted: {error}") from error
        own = keys_in(answer.responses[0])
        if not own:
            return seen
        self.fence = own[0][1]
        return await self.look() or QueueSight(self.fence, (), seen.revision)

    async def _decide(self) -> QueueSight | None:
        value = self.value(self.ask.terms.ttl)
        request = queues.decide(self._queue, self.key, self.fence, value, self.session.id)
        try:
            answer = (await self._cluster.transact(request)).message
        except NoLease as error:
            raise self._lost() from error
        return None if answer.succeeded else queues.looked(answer, self.fence)

    async def _look_for_permit(self) -> QueueSight | None:
        seen = queues.looked(await self._cluster.read(queues.look(self._queue, self.key, self.fence)), self.fence)
        if not self._is_granted(seen):
            return seen
        request = queues.touch(self.key, self.fence, self.value(self.ask.terms.ttl), self.session.id)
        try:
            answer = (await self._cluster.transact(request)).message
        except NoLease as error:
            raise self._lost() from error
        return None if answer.succeeded else seen._replace(mine=0)

    def _is_granted(self, seen: QueueSight) -> bool:
        return seen.mine > 0 and queues.is_granted(seen, self.limit)

    def _check_limit(self, seen: QueueSight) -> None:
        other = limit_in(seen.first) if seen.first and seen.first != self.key else 0
        if other and self.limit and other != self.limit:
            raise UsageError(f"{self.ask.terms.label} is in use with a limit of {other}, not {self.limit}")

    def _taken(self) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"{self.ask.terms.label} was force-released before the grant arrived; it is withdrawn"
        )

    def _lost(self) -> SessionOver:
        self.session.end(LEASE_GONE)
        return SessionOver()


async def _is_woken(watch: KeyWatch, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await watch.wait()
            if watch.is_broken:
                await asyncio.sleep(random.uniform(0.01, _BROKEN_S_MAX))
            return True
    return False
