"""A client's lease in etcd: one for all that it holds and waits for, kept alive.

1. *Trust counts from when a renewal was sent* that was answered with a time to live.
2. *A reply is not trusted by itself.* A former leader that was cut off or paused may confirm the renewal of a
   lease that is long gone. So a transaction follows, which etcd's members must agree upon: it finds the client's
   witness, and was answered by the same member in the same term as the renewal. Then the member that renewed the
   lease was still the leader after it had done so.
3. *A session that is over stays over*: its lease was revoked or has expired, or the trust in it ran out. Its lease
   is revoked then, so that its names are free as soon as etcd receives that. A hold is never taken anew; the next
   ask uses another session.
4. *The end is noticed at once*, by a watch on the witness, which ends with the lease; and so is a force-release,
   by a notice beside it.
5. *Each time the lease is renewed, its keys in etcd are compared with those the client knows.* A hold whose key is
   gone is lost: it was deleted by hand. (A leader's memory only raises the doubt; a transaction decides.) An
   unknown key is deleted when it is found twice: a delayed request, which arrived after its ask was withdrawn or
   its hold released, has made it. Found once, it may be one that is just being deleted.
"""

import asyncio
import math
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

from fencehold.backends.etcd import queues
from fencehold.backends.etcd.calls import KeyWatches, WatchedKeys
from fencehold.backends.etcd.queues import LockKeys, token_in
from fencehold.backends.port import Lease
from fencehold.drivers.etcd.client import EtcdClient, NoLease
from fencehold.drivers.etcd.transactions import Message, is_absent, keys_in, newest, put, transaction
from fencehold.errors import FenceholdError, Unavailable
from fencehold.locks.clock import Clock
from fencehold.locks.loss_reasons import CLOSED, UNANSWERED, LossKind, LossReason
from fencehold.locks.trust import NEVER, Trust, margin

TTL_S_MIN = 2
"""The shortest lease that etcd gives with its own election timeout."""
LEASE_GONE = LossReason("its lease is gone: it had expired, or was revoked", LossKind.EXPIRED)
_BEATS_PER_TTL = 3
_RETRY_S = 0.05
_NOTICES_MAX = 1_000


class SessionOwner(Protocol):
    """The owner of a session."""

    def on_over(self, session: "EtcdSession", reason: str) -> None:
        """It is over, and all its holds are lost."""

    def on_taken(self, session: "EtcdSession", token: str) -> None:
        """A hold was force-released."""

    def on_beat(self, session: "EtcdSession") -> None:
        """It was renewed."""


def ttl_s_of(ttl: float) -> int:
    """Seconds that a lease lasts in etcd, which counts whole ones."""
    return max(TTL_S_MIN, math.ceil(ttl))


class EtcdSession:
    """One lease."""

    def __init__(
        self, cluster: EtcdClient, watches: KeyWatches, keys: LockKeys, owner: SessionOwner, clock: Clock
    ) -> None:
        self.id = secrets.randbits(62) + 1
        self.trust = Trust(0.0, 0.0)
        self.ending = ""
        """Why it is over; empty while it is not."""
        self._span = keys.client(self.id)
        self._cluster = cluster
        self._watches = watches
        self._owner = owner
        self._clock = clock
        self._witness = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._timer: asyncio.TimerHandle | None = None

    async def open(self, ttl: float, who: str) -> None:
        """Create the lease.

        Raises:
            Unavailable: there is none, or it has no keys and expires by itself.
        """
        sent_at = self._clock()
        ttl_s = await self._cluster.grant_lease(self.id, ttl_s_of(ttl))
        start = self._span.start
        request = transaction([is_absent(start)], [put(start, who.encode(), self.id)], [newest(start, b"", 1)])
        try:
            answer = (await self._cluster.transact(request)).message
        except NoLease as error:
            raise Unavailable("etcd forgot a lease that it had just made") from error
        found = answer.header.revision if answer.succeeded else keys_in(answer.responses[0])[0][1]
        self._witness = found
        self.trust = Trust(ttl_s, ttl_s)
        self.trust.attached = True
        self.trust.end = sent_at + ttl_s - margin(ttl_s)
        self._watch_trust()
        self._tasks = [asyncio.create_task(each) for each in (self._beat(), self._hear(answer.header.revision))]
        for task in self._tasks:
            task.add_done_callback(self._on_stopped)

    def end(self, reason: str) -> None:
        """It is over. Later reasons change nothing."""
        if self.ending:
            return
        self.ending = reason
        self.trust.on_over()
        self._stop()
        self._owner.on_over(self, reason)

    async def close(self) -> None:
        """Stop, without an event."""
        self.ending = self.ending or CLOSED
        self.trust.on_over()
        self._stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        current = asyncio.current_task()
        for task in self._tasks:
            if task is not current:
                task.cancel()

    def _on_stopped(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.end(f"it is not kept alive any more: {error!r}")

    def _watch_trust(self) -> None:
        left_s = self.trust.end - self._clock()
        if left_s <= 0:
            self.end(UNANSWERED)
        else:
            self._timer = asyncio.get_running_loop().call_later(left_s, self._watch_trust)

    # Keeping alive.

    async def _beat(self) -> None:
        ttl = self.trust.ttl
        while not self.ending:
            await asyncio.sleep(ttl / _BEATS_PER_TTL)
            if await self._renewed(ttl):
                self._watches.check()
                self._owner.on_beat(self)

    async def _renewed(self, ttl: float) -> bool:
        """Try until it is renewed, or over."""
        while not self.ending:
            if await self._is_renewed(ttl):
                return True
            await asyncio.sleep(_RETRY_S)
        return False

    async def _is_renewed(self, ttl: float) -> bool:
        sent_at = self._clock()
        try:
            kept = await self._cluster.keep_alive(self.id, ttl / _BEATS_PER_TTL)
            sure = (await self._cluster.transact(self._make_sure(), ttl / _BEATS_PER_TTL)).message
        except FenceholdError:
            return False
        if kept.TTL <= 0 or not sure.succeeded:
            self.end(LEASE_GONE)
            return False
        if _voice(kept) != _voice(sure) or self.trust.end == NEVER:
            return False
        self.trust.end = max(self.trust.end, sent_at + min(ttl, kept.TTL) - margin(ttl))
        return True

    def _make_sure(self) -> Message:
        return queues.make_sure(self._span.start, self._witness)

    # Watching.

    async def _hear(self, revision: int) -> None:
        wanted = WatchedKeys(self._span, frozenset(), changes=True)
        while not self.ending:
            watch = self._watches.open(wanted, revision + 1)
            try:
                await watch.wait()
            finally:
                self._watches.close(watch)
            if watch.is_broken:
                await asyncio.sleep(_RETRY_S)
            revision = await self._look() or revision

    async def _look(self) -> int:
        """Read the witness and the notices; returns the revision, or 0 without an answer."""
        try:
            answer = await self._cluster.read(transaction(then=[newest(*self._span, _NOTICES_MAX)]))
        except FenceholdError:
            return 0
        found = dict(keys_in(answer.responses[0]))
        if found.pop(self._span.start, 0) != self._witness:
            await self._doubt()
        for key in found:
            self._owner.on_taken(self, token_in(key))
        return int(answer.header.revision)

    async def _doubt(self) -> None:
        """A read shows no witness: have the members agree upon it."""
        try:
            sure = (await self._cluster.transact(self._make_sure())).message
        except FenceholdError:
            return
        if not sure.succeeded:
            self.end(LEASE_GONE)


class EtcdSessions:
    """The session of a client: one at a time, made when it is needed."""

    def __init__(self, make: Callable[[], Awaitable[EtcdSession]]) -> None:
        self._make = make
        self._session: EtcdSession | None = None
        self._making: asyncio.Task[EtcdSession] | None = None

    @property
    def living(self) -> EtcdSession | None:
        return self._session if self._session is not None and not self._session.ending else None

    async def have(self) -> EtcdSession:
        """The one there is, or another.

        Raises:
            Unavailable: there is none, and none can be made.
        """
        while (session := self.living) is None:
            if self._making is None:
                self._making = asyncio.create_task(self._made())
            # One for all callers; that one of them stops waiting does not stop it.
            making = self._making
            await asyncio.wait({making})
            if making.cancelled():
                raise Unavailable("the client was closed")
            session = making.result()
            if not session.ending:
                break
        return session

    async def close(self) -> EtcdSession | None:
        """Stop everything; returns the session that there was."""
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)
        session = self.living
        if self._session is not None:
            await self._session.close()
        return session

    async def _made(self) -> EtcdSession:
        try:
            if self._session is not None:
                await self._session.close()
            self._session = await self._make()
            return self._session
        finally:
            self._making = None


def _voice(answer: Message) -> tuple[int, int]:
    """The member that answered, and its term."""
    return answer.header.member_id, answer.header.raft_term


class Sweeper:
    """Deletes unknown keys of one client."""

    def __init__(self, cluster: EtcdClient, root: bytes, is_known: Callable[[bytes], bool]) -> None:
        self._cluster = cluster
        self._root = root
        """The prefix of the keys of all asks."""
        self._is_known = is_known
        self._strays: set[bytes] = set()

    async def sweep(self, lease: int, held: Sequence[tuple[bytes, Lease]]) -> list[Lease]:
        """Delete unknown keys; returns the holds that are gone.

        Raises:
            Unavailable, OutcomeUnknown: nothing is known to be gone.
        """
        there = set(await self._cluster.keys_of_lease(lease))
        strays = {key for key in there if key.startswith(self._root) and not self._is_known(key)}
        for key in strays & self._strays:
            await self._cluster.delete(key, b"")
        self._strays = strays
        return await self._gone((key, each) for key, each in held if key not in there)

    async def _gone(self, doubted: Iterable[tuple[bytes, Lease]]) -> list[Lease]:
        gone = []
        for key, lease in doubted:
            if not lease.ending:
                answer = await self._cluster.transact(queues.make_sure(key, lease.fence))
                if not answer.message.succeeded:
                    gone.append(lease)
        return gone
