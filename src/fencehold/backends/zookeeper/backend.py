"""The backend: a name is a queue of znodes, each of which lasts as long as the session it was made in.

1. *An ask is one round trip*: its place is made, and the queue is read behind it. It is granted if no place blocks
   it (see `queue`); else it watches the places that do.
2. *The fence is the transaction that made the place.* Places are granted in the order in which they were made, so
   fences grow from grant to grant; shared holders got the name in that order, too.
3. *An ask whose reply was lost is looked up by its token*, behind a write, and continues from where it is. If its
   session has ended, its place has, too: it begins anew, at the end of the queue. It is never granted by a place
   of a session that is not certainly kept.
4. *A hold lives with its session*, and is trusted for as long as that is (see `session`). One with a ttl of its
   own is ended by its client when its trust is over; if the client dies, by the end of the session.
5. *A holder watches its own place*, after it has held it for a moment: a force-release is noticed at once.
6. *Whatever ends without a grant, or is lost, removes its place* (see `acquisition`).
"""

import asyncio
from functools import partial
from math import inf

from fencehold.backends.lease.explanation import stamp
from fencehold.backends.lease.keeper import LeaseSet
from fencehold.backends.port import Ask, Lease, Settings
from fencehold.backends.zookeeper.acquisition import Acquisition, Removal
from fencehold.backends.zookeeper.inspection import break_holders, explained
from fencehold.backends.zookeeper.queue import QueueEntry, part_of
from fencehold.backends.zookeeper.session import ZookeeperSession
from fencehold.backends.zookeeper.session_keeper import SessionKeeper
from fencehold.drivers.zookeeper.address import ZookeeperAddress
from fencehold.drivers.zookeeper.kazoo_client import ZookeeperAnswer
from fencehold.drivers.zookeeper.requests import AnswerLost, create, delete, exists, get, proof
from fencehold.errors import FenceholdError, OutcomeUnknown, PermissionDenied, Unavailable, UsageError
from fencehold.guarantees import Guarantees
from fencehold.locks.clock import Clock, clock
from fencehold.locks.loss_reasons import CLOSED, LossKind, LossReason
from fencehold.locks.views import Explanation

_OWN_WATCH_AFTER_S = 0.02
"""Most holds are over by then, and need no watch."""
_GONE = LossReason("its znode was removed: it was force-released, or its session had ended", LossKind.SESSION)
_OVER = LossReason("its ZooKeeper session has ended", LossKind.SESSION)


class _Holds(LeaseSet):
    """Leases whose place is removed when they are lost."""

    def __init__(self, clock: Clock, removal: Removal) -> None:
        super().__init__(clock)
        self._removal = removal

    def lose(self, lease: Lease, reason: str) -> None:
        super().lose(lease, reason)
        self._removal.remove(entry_of(lease))


class ZookeeperBackend:
    """`zookeeper://`. Belongs to the event loop it was opened on."""

    at_once = None
    """Threads send requests through the loop: the session is there."""

    def __init__(self, address: ZookeeperAddress, settings: Settings, clock: Clock = clock) -> None:
        self._address = address
        self._settings = settings
        self._clock = clock
        self._is_open = False

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            backend="zookeeper",
            linearizable=True,
            fenced=True,
            fence_survives_failover=True,
            fair=True,
            survives_failover=True,
            frees_on_crash=self._settings.ttl,
            clocks="durations only, by monotonic clocks that drift by less than 2 % from one another",
            shared=True,
            semaphores=True,
        )

    async def open(self) -> None:
        if self._is_open:
            return
        sessions = SessionKeeper(self._address, self._settings, self._clock)
        try:
            session = await sessions.ready(self._settings.connect_timeout)
            self._check_timeout(session)
            await self._make_root(session)
        except BaseException:
            await sessions.close()
            raise
        self._sessions = sessions
        self._removal = Removal(self._address.root, self._settings.connect_timeout)
        self._leases = _Holds(self._clock, self._removal)
        self._acquisition = Acquisition(sessions, self._settings, self._clock)
        sessions.on_over, sessions.on_back = self._on_over, self._on_back
        self._is_open = True

    async def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        # The end of the session removes every place; there is no need to leave them one by one.
        for lease in self._leases:
            self._leases.remove(lease)
            entry_of(lease).unwatch()
            lease.lose(CLOSED)
        await self._sessions.close()
        await self._removal.background.end()

    async def acquire(self, ask: Ask) -> Lease | None:
        terms = ask.terms
        entry = QueueEntry(ask, self._parent(ask.name), stamp(self._settings.who, ask.owner, terms.meta).encode())
        until = inf if terms.timeout is None else self._clock() + terms.timeout
        lease: Lease | None = None
        try:
            if await self._acquisition.granted(entry, until):
                lease = self._lease(entry)
        finally:
            if lease is None:
                self._removal.remove(entry)
        return lease

    def _lease(self, entry: QueueEntry) -> Lease:
        """The lease, with no await between this and the last check of the session."""
        ask, session = entry.ask, session_of(entry)
        lease = Lease(ask, entry.fence, session.trust, ask.terms.ttl or session.session_trust.timeout)
        lease.place = entry
        if ask.terms.ttl is not None:
            lease.own_end = self._clock() + ask.terms.ttl
        self._leases.add(lease)
        entry.timer = asyncio.get_running_loop().call_later(_OWN_WATCH_AFTER_S, self._watch, lease)
        return lease

    async def release(self, lease: Lease) -> None:
        self._leases.remove(lease)
        entry = entry_of(lease)
        entry.unwatch()
        if lease.ending:
            raise lease.why()
        lease.ending = "released"
        try:
            was_there = await self._removed(entry)
        except (FenceholdError, asyncio.CancelledError) as error:
            self._removal.remove(entry)
            if isinstance(error, Unavailable):
                raise OutcomeUnknown(
                    f"{lease.terms.label} is released in the background, or ends with its session: {error}"
                ) from error
            raise
        if not was_there:
            lease.ending = _GONE
            raise lease.why()

    async def _removed(self, entry: QueueEntry) -> bool:
        """Remove a place, retrying if the reply was lost; returns whether it was there."""
        was_asked = False
        until = self._clock() + self._settings.connect_timeout
        while entry.may_be_there:
            session = await self._sessions.ready(max(until - self._clock(), 0))
            if session is not entry.session:
                break
            try:
                (answer,) = await session.ask(delete(entry.path), seconds=self._settings.connect_timeout)
            except AnswerLost:
                was_asked = True
                if self._clock() >= until:
                    raise
                continue
            entry.leave()
            return was_asked or not answer.is_missing
        entry.leave()
        return was_asked

    async def extend(self, lease: Lease, ttl: float | None) -> None:
        if lease.ending:
            raise lease.why()
        entry, before = entry_of(lease), lease.own_end
        end = inf if ttl is None else self._clock() + ttl
        # Only this client ends it by its ttl: it is enough to know that it is still there.
        self._let_end(lease, min(before, end))
        try:
            is_there = await self._is_there(entry)
        except (Unavailable, PermissionDenied):
            self._let_end(lease, before)
            raise
        if not lease.ending and not is_there:
            self._leases.lose(lease, _GONE)
        if lease.ending:
            raise lease.why()
        lease.is_kept = ttl is None
        self._let_end(lease, end)

    def _let_end(self, lease: Lease, end: float) -> None:
        lease.own_end = end
        self._leases.moved(lease)

    async def _is_there(self, entry: QueueEntry) -> bool:
        session = await self._sessions.ready(self._settings.connect_timeout)
        if session is not entry.session:
            return False
        seconds = self._settings.connect_timeout
        _, answer = await session.ask(proof(self._address.root), exists(entry.path), seconds=seconds)
        return answer.value is not None

    async def look(self, name: str) -> Explanation:
        session = await self._sessions.ready(self._settings.connect_timeout)
        try:
            return await explained(session, name, self._parent(name), self._settings.connect_timeout)
        except AnswerLost as error:
            raise Unavailable(str(error)) from error

    async def break_hold(self, name: str, fence: int) -> int:
        session = await self._sessions.ready(self._settings.connect_timeout)
        return await break_holders(session, self._parent(name), fence, self._settings.connect_timeout)

    # Events.

    def _on_over(self, session: ZookeeperSession) -> None:
        for lease in self._leases:
            if entry_of(lease).session is session:
                self._leases.lose(lease, _OVER)

    def _on_back(self, session: ZookeeperSession) -> None:
        """Watches ended with the connection: set them again, where there were any."""
        for lease in self._leases:
            entry = entry_of(lease)
            if entry.session is session and entry.timer is None:
                self._watch(lease)

    def _watch(self, lease: Lease) -> None:
        entry = entry_of(lease)
        entry.timer = None
        if lease.ending or not entry.may_be_there or not session_of(entry).is_connected:
            return
        session, entry.told = session_of(entry), entry.told or partial(self._on_event, lease)
        future = session.send(get(entry.path, session.watch(entry.path, entry.told)))
        future.add_done_callback(partial(self._on_seen, lease))

    def _on_seen(self, lease: Lease, future: "asyncio.Future[ZookeeperAnswer]") -> None:
        if future.result().is_missing and not lease.ending:
            self._leases.lose(lease, _GONE)

    def _on_event(self, lease: Lease, is_deleted: bool) -> None:
        if is_deleted and not lease.ending:
            self._leases.lose(lease, _GONE)

    # The places.

    def _parent(self, name: str) -> str:
        return f"{self._address.root}/{part_of(name)}"

    async def _make_root(self, session: ZookeeperSession) -> None:
        root, seconds = self._address.root, self._settings.connect_timeout
        # Checked first: a client without write permission above the root may use an existing one.
        (there,) = await session.ask(exists(root), seconds=seconds)
        if there.value is None:
            parts = root.split("/")
            above = ["/".join(parts[:count]) for count in range(2, len(parts) + 1)]
            await session.ask(*[create(path, session.acl) for path in above], seconds=seconds)

    def _check_timeout(self, session: ZookeeperSession) -> None:
        agreed, asked = session.session_trust.timeout, self._settings.ttl
        if agreed > asked + 0.001:
            raise UsageError(
                f"{self._address}: its servers keep a session for {agreed:g} s at least, and cannot free names "
                f"after {asked:g} s: use ttl={agreed:g}, or set their minSessionTimeout"
            )


def entry_of(lease: Lease) -> QueueEntry:
    """The queue entry of a lease."""
    if not isinstance(lease.place, QueueEntry):
        raise UsageError("this lease is another backend's")
    return lease.place


def session_of(entry: QueueEntry) -> ZookeeperSession:
    """The session in which an entry has its place."""
    if entry.session is None:
        raise AnswerLost(f"{entry.ask.terms.label} is no longer queued")
    return entry.session
