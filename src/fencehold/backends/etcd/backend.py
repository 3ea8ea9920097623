"""The port, implemented by etcd.

1. *A name is its queue*: one key for each holder or waiter, all of a client under its one lease. A free name has
   no keys.
2. *A waiter waits in its session.* If that ends, it asks again in the next, at the end of the queue; it is never
   granted on a lease that is gone.
3. *A ttl of its own is enforced by the client*: it ends the hold, and then deletes the key. If it crashes, its
   lease does.
4. *Whatever ends without a grant is withdrawn*, and a session that is over is revoked, as soon as etcd is reached.
5. *A least time is kept by a tombstone* on a lease of its own, which is never renewed: the end of the hold, of the
   session and of the process leaves it there.
"""

import asyncio
from contextlib import suppress
from math import inf
from typing import cast

from fencehold.backends.etcd import inspection, queues
from fencehold.backends.etcd.calls import Batches, KeyWatches
from fencehold.backends.etcd.queue_entry import EtcdCalls, QueueEntry, SessionOver
from fencehold.backends.etcd.queues import LockKeys, token_in
from fencehold.backends.etcd.session import EtcdSession, EtcdSessions, Sweeper, ttl_s_of
from fencehold.backends.lease import explanation as seen
from fencehold.backends.lease.background import BackgroundRetries
from fencehold.backends.lease.keeper import LeaseSet
from fencehold.backends.port import Ask, Lease, Settings
from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.drivers.etcd.client import EtcdBounds, EtcdClient, NoLease
from fencehold.drivers.etcd.http2.channel import Channel
from fencehold.drivers.etcd.member import Connect
from fencehold.drivers.etcd.transactions import is_created_at, keys_in, newest, transaction
from fencehold.errors import FenceholdError, OutcomeUnknown, Unavailable, UsageError
from fencehold.guarantees import Guarantees
from fencehold.locks.clock import Clock, clock
from fencehold.locks.loss_reasons import CLOSED, TTL_OVER, LossKind, LossReason
from fencehold.locks.views import Explanation

_CLOSING_S = 2.0
_EARLY_S = 0.001
_TRY_S_MAX = 1.0
_FORCED = LossReason("it was force-released", LossKind.BROKEN)
_GONE = LossReason("its lease had ended, or it was force-released", LossKind.EXPIRED)


class EtcdBackend:
    """Locks below a prefix in etcd."""

    at_once = None

    def __init__(
        self, address: EtcdAddress, settings: Settings, clock: Clock = clock, connect: Connect = Channel
    ) -> None:
        """`connect`: replaced by tests, to make calls fail."""
        self._address = address
        self._settings = settings
        self._clock = clock
        self._connect = connect
        self._keys = LockKeys(address.prefix)
        self._entries: dict[str, QueueEntry] = {}
        """All that may have a key in etcd, by token: those that wait, and those that hold."""
        self._is_open = False

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            backend="etcd",
            linearizable=True,
            fenced=True,
            fence_survives_failover=True,
            fair=True,
            survives_failover=True,
            frees_on_crash=float(ttl_s_of(self._settings.ttl)),
            clocks="durations only, by monotonic clocks that drift by less than 2 % from one another",
            semaphores=True,
            at_least=True,
        )

    async def open(self) -> None:
        if self._is_open:
            return
        call_s, ttl_s = self._settings.connect_timeout, ttl_s_of(self._settings.ttl)
        # A renewal has the time to try a second member, if the first one hangs.
        bounds = EtcdBounds(call_s=call_s, try_s=min(_TRY_S_MAX, call_s, ttl_s / 6))
        self._cluster = EtcdClient(self._address, bounds, self._connect)
        self._loop = asyncio.get_running_loop()
        self._watches = KeyWatches(self._cluster)
        self._calls = EtcdCalls(self._cluster, Batches(self._cluster), self._watches)
        self._leases = LeaseSet(self._clock)
        self._background = BackgroundRetries()
        self._sweeper = Sweeper(self._cluster, self._keys.locks, self._is_known)
        self._is_sweeping = False
        self._sessions = EtcdSessions(self._new_session)
        try:
            await self._sessions.have()
        except BaseException:
            await self._disconnect()
            raise
        self._is_open = True

    async def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        session = await self._sessions.close()
        self._leases.lose_all(CLOSED)
        for entry in self._entries.values():
            entry.wake()
        await self._calls.batches.end()
        if session is not None:
            with suppress(FenceholdError, TimeoutError):
                async with asyncio.timeout(_CLOSING_S):
                    await self._cluster.revoke_lease(session.id)
        await self._disconnect()

    async def _disconnect(self) -> None:
        await self._sessions.close()
        await self._background.end()
        await self._calls.batches.end()
        await self._watches.end()
        await self._cluster.close()

    async def _new_session(self) -> EtcdSession:
        session = EtcdSession(self._cluster, self._watches, self._keys, self, self._clock)
        try:
            await session.open(self._settings.ttl, self._settings.who)
        except OutcomeUnknown as error:
            raise Unavailable(str(error)) from error
        return session

    # Acquiring.

    async def acquire(self, ask: Ask) -> Lease | None:
        wait_s = ask.terms.timeout
        until = inf if wait_s is None else self._clock() + wait_s
        while True:
            if not self._is_open:
                raise UsageError("the client is closed")
            try:
                return await self._take(await self._sessions.have(), ask, until)
            except SessionOver:
                if self._clock() >= until and wait_s:
                    return None

    async def _take(self, session: EtcdSession, ask: Ask, until: float) -> Lease | None:
        stamp = seen.stamp(self._settings.who, ask.owner, ask.terms.meta)
        queue = self._keys.queue(ask.name)
        entry = self._entries[ask.token] = QueueEntry(self._calls, session, ask, queue, stamp)
        lease: Lease | None = None
        try:
            if await self._is_granted(entry, until):
                if entry.keeps:
                    await entry.keep()
                lease = self._granted(entry)
        finally:
            if lease is None:
                self._entries.pop(ask.token, None)
                if entry.is_entered:
                    self._withdraw(entry)
            entry.is_kept = lease is not None and entry.keeps
        return lease

    async def _is_granted(self, entry: QueueEntry, until: float) -> bool:
        waits = entry.ask.terms.timeout != 0
        while (sight := await entry.enter(waits=waits)) is not None:
            if not waits:
                return False
            while sight is not None and sight.mine:
                left_s = until - self._clock()
                if left_s <= 0 or not await entry.wait(sight, None if left_s == inf else left_s):
                    return False
                sight = await entry.look()
            if sight is None:
                return True
            # Its key is gone, and its lease is not: it was deleted by hand.
        return True

    def _granted(self, entry: QueueEntry) -> Lease:
        ask, session = entry.ask, entry.session
        lease = Lease(ask, entry.fence, session.trust, ask.terms.ttl or self._settings.ttl)
        lease.place = entry
        now = self._clock()
        if entry.keeps:
            lease.least_until = now + ask.terms.at_least
        if session.ending or lease.safe_for(now) <= 0:
            if entry.keeps:
                # Another try would find its own tombstone.
                raise OutcomeUnknown(f"{ask.terms.label} was granted when its session ended; it is withdrawn")
            raise SessionOver
        self._leases.add(lease)
        if ask.terms.ttl is not None:
            self._end_in(lease, ask.terms.ttl)
        return lease

    def _withdraw(self, entry: QueueEntry) -> None:
        is_left = entry.session.ending and (entry.is_kept or not entry.keeps)
        if not is_left and self._is_open:
            self._background.do(entry.leave, self._settings.ttl)

    # Holding.

    async def release(self, lease: Lease) -> None:
        entry = self._forget(lease)
        if lease.ending:
            if lease.ending != "released":
                self._withdraw(entry)
            raise lease.why()
        lease.ending = "released"
        is_over = entry.keeps and not lease.least_s(self._clock())
        steps = queues.remove(entry.key, with_tombstone=is_over)
        request = transaction([is_created_at(entry.key, lease.fence)], steps)
        try:
            told = await self._calls.batches.transact(lease.ask.name, request)
            was_there = told.succeeded or (told.doubted and await self._was_ours(entry))
        except (FenceholdError, asyncio.CancelledError) as error:
            self._withdraw(entry)
            if isinstance(error, Unavailable):
                raise OutcomeUnknown(
                    f"{lease.terms.label} is released in the background, or expires with its lease: {error}"
                ) from error
            raise
        if not was_there:
            lease.ending = _GONE
            raise lease.why()

    async def _was_ours(self, entry: QueueEntry) -> bool:
        """Whether a missing hold was released by the same request, sent twice, and not ended by anything else."""
        client = entry.session.id
        answer = await self._cluster.read(transaction(then=[newest(*self._keys.client(client), 0)]))
        there = dict(keys_in(answer.responses[0]))
        is_alive = self._keys.client(client).start in there
        return is_alive and self._keys.notice(client, entry.ask.token) not in there

    async def extend(self, lease: Lease, ttl: float | None) -> None:
        if lease.ending:
            raise lease.why()
        entry = cast(QueueEntry, lease.place)
        try:
            request = queues.touch(entry.key, lease.fence, entry.value(ttl), entry.session.id)
            is_there = (await self._cluster.transact(request)).message.succeeded
        except NoLease:
            is_there = False
        if not is_there:
            self._lose(lease, _GONE)
        if lease.ending:
            raise lease.why()
        lease.is_kept, lease.ttl = ttl is None, ttl or self._settings.ttl
        self._end_in(lease, inf if ttl is None else ttl)

    async def look(self, name: str) -> Explanation:
        return await inspection.look(self._cluster, name, self._keys.queue(name))

    async def break_hold(self, name: str, fence: int) -> int:
        return await inspection.break_hold(self._cluster, self._keys, self._keys.queue(name), fence)

    # Losing.

    def on_over(self, session: EtcdSession, reason: str) -> None:
        """The session is over, and with it all its holds."""
        self._leases.lose_all(reason)
        for entry in tuple(self._entries.values()):
            if entry.session is session:
                entry.wake()
                if entry.timer is not None:
                    entry.timer.cancel()
        self._entries = {token: entry for token, entry in self._entries.items() if entry.session is not session}
        self._background.do(lambda: self._cluster.revoke_lease(session.id), self._settings.ttl)

    def on_taken(self, session: EtcdSession, token: str) -> None:
        """A hold was force-released."""
        self._background.do(
            lambda: self._cluster.delete(self._keys.notice(session.id, token), b""), self._settings.ttl
        )
        for lease in self._leases:
            if lease.ask.token == token:
                self._lose(lease, _FORCED)

    def on_beat(self, session: EtcdSession) -> None:
        """The session was renewed: check that all is as it should be."""
        self._background.do(lambda: self._sweep(session), self._settings.ttl)

    async def _sweep(self, session: EtcdSession) -> None:
        if self._is_sweeping:
            return
        self._is_sweeping = True
        held = [(cast(QueueEntry, lease.place).key, lease) for lease in self._leases]
        try:
            for lease in await self._sweeper.sweep(session.id, held):
                self._lose(lease, _FORCED)
        except FenceholdError:
            # The next renewal comes soon.
            return
        finally:
            self._is_sweeping = False

    def _is_known(self, key: bytes) -> bool:
        return token_in(key) in self._entries

    def _lose(self, lease: Lease, reason: str) -> None:
        self._forget(lease)
        lease.lose(reason)

    def _forget(self, lease: Lease) -> QueueEntry:
        entry = cast(QueueEntry, lease.place)
        self._leases.remove(lease)
        self._entries.pop(lease.ask.token, None)
        if entry.timer is not None:
            entry.timer.cancel()
        return entry

    def _end_in(self, lease: Lease, seconds: float) -> None:
        """Let it end by itself."""
        entry = cast(QueueEntry, lease.place)
        lease.own_end = self._clock() + seconds
        self._leases.moved(lease)
        if entry.timer is not None:
            entry.timer.cancel()
        entry.timer = None if seconds == inf else self._loop.call_later(seconds, self._on_end, lease)

    def _on_end(self, lease: Lease) -> None:
        left_s = lease.own_end - self._clock()
        entry = cast(QueueEntry, lease.place)
        if left_s > _EARLY_S:
            entry.timer = self._loop.call_later(left_s, self._on_end, lease)
        else:
            self._lose(lease, TTL_OVER)
            self._withdraw(entry)
