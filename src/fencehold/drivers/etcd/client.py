"""Calls to etcd, by any of its members that answers.

1.  *Every request may be sent twice.* All that is sent here is idempotent, so a second arrival changes nothing:
    a transaction whose condition its own effect makes false, a put of the same value, a deletion. So a request
    that was not answered is sent again, to another member, and what that one answers is the truth for both.
2.  *One deadline for all tries.* A member that does not answer is left after part of it. When it has passed,
    what was never sent is `Unavailable`, and what may have arrived somewhere is `OutcomeUnknown`.
3.  *The good one is kept*: the member that leads, if it answers, else one that does. It is left when it fails, and
    the next is chosen by greeting all of them. When another comes to lead, it is asked as soon as the storage of
    the members was measured, which nodes do every second: a follower would forward each call.
4.  *No member reachable fails at once*: when no member can be connected to and nothing was sent, there is nothing
    to wait for.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from math import inf
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias

from google.protobuf.message import DecodeError

from fencehold.drivers.etcd import messages
from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.drivers.etcd.failures import Failed, Failure, LeaseExists, Meaning, understand
from fencehold.drivers.etcd.http2.channel import Channel
from fencehold.drivers.etcd.http2.status import CallFailed
from fencehold.drivers.etcd.member import Connect, EtcdMember, MemberStanding, context_of
from fencehold.drivers.etcd.survey import MemberStorage, storage_of
from fencehold.drivers.etcd.transactions import Message
from fencehold.errors import FenceholdError, OutcomeUnknown, PermissionDenied, Unavailable

_HAS_LEADER = ("hasleader", "true")
"""Asks a member to refuse at once while it knows no leader, instead of waiting for one."""


_LEFT_FOR_S = 30.0
"""How long a member that was left is not gone back to, only because it leads."""

Method: TypeAlias = Callable[[EtcdMember], Callable[..., Awaitable[Message]]]
"""Which of a member's calls."""

_TXN: Method = attrgetter("kv.Txn")
_PUT: Method = attrgetter("kv.Put")
_DELETE: Method = attrgetter("kv.DeleteRange")
_COMPACT: Method = attrgetter("kv.Compact")
_RANGE: Method = attrgetter("kv.Range")
_GRANT: Method = attrgetter("leases.LeaseGrant")
_REVOKE: Method = attrgetter("leases.LeaseRevoke")
_KEEP_ALIVE: Method = attrgetter("renewals.renew")
_TIME_TO_LIVE: Method = attrgetter("leases.LeaseTimeToLive")


class EtcdBounds(NamedTuple):
    """How long things may take."""

    call_s: float = 1.5
    """A call with all its tries."""
    try_s: float = 0.5
    """One try, before another member is asked."""
    pause_s: float = 0.02
    """Between tries."""
    silence_s: float = 0.5
    """How long a watch may say nothing before a read shows whether it fell behind."""


class EtcdAnswer(NamedTuple):
    """The answer of a member."""

    message: Message
    doubted: bool
    """An earlier try may have arrived, and may be what this answer found."""


class AnswerTooLarge(FenceholdError):
    """The answer is larger than this side takes: ask for less."""


class NoLease(FenceholdError):
    """The lease named is not there, and never will be again. Nothing happened."""


class Compacted(FenceholdError):
    """The revision asked for was compacted."""


class EtcdClient:
    """The members of one etcd, as this client sees them. Belongs to the event loop that made it."""

    def __init__(
        self,
        address: EtcdAddress,
        bounds: EtcdBounds,
        connect: Connect = Channel,
        denied: type[FenceholdError] = PermissionDenied,
    ) -> None:
        """`denied` is what to raise where credentials or rights are refused."""
        self.bounds = bounds
        self._denied = denied
        self._address = address
        context = context_of(address.tls)
        self._members = [EtcdMember(endpoint, context, connect) for endpoint in address.endpoints]
        self._chosen: EtcdMember | None = None
        self._left: EtcdMember | None = None
        self._left_at: dict[EtcdMember, float] = {}
        """When each was last left."""
        self._metadata: tuple[tuple[str, str], ...] = (_HAS_LEADER,)
        self._has_token = not address.user
        self._is_closed = False
        self._under_way = 0
        self._idle = asyncio.Event()
        self._work: dict[str, asyncio.Task[object]] = {}
        """Work that is shared by all calls."""
        self._going_on: set[asyncio.Task[None]] = set()
        """Retries of calls that were begun without a task, and whose first try failed."""

    @property
    def asked(self) -> str:
        """The endpoint of the member that is asked now; empty before any was."""
        return "" if self._chosen is None else self._chosen.endpoint

    async def transact(self, request: Message, within_s: float | None = None) -> EtcdAnswer:
        """One transaction.

        Raises:
            Unavailable: certainly nothing happened.
            PermissionDenied, or what it is made with: it is not allowed; certainly nothing happened.
            OutcomeUnknown: it may have happened, or may yet.
            UsageError: etcd takes no request of this size.
            NoLease: nothing happened: a lease that it names is gone.
        """
        return await self._call(_TXN, request, within_s=within_s)

    def begin_transact(self, request: bytes, told: "Callable[[EtcdAnswer | BaseException], None]") -> bool:
        """The same without a task, as long as nothing goes wrong; False: no member is chosen, nothing was sent.

        `request` is a transaction as it is sent. `told` is called once, later: with the answer, or with what
        `transact` raises.
        """
        member = self._chosen
        if member is None or self._is_closed or not self._has_token:
            return False

        def answered(found: bytes | CallFailed) -> None:
            if isinstance(found, CallFailed):
                task = asyncio.create_task(self._go_on(request, self._failure(member, found), until, told))
                self._going_on.add(task)
                task.add_done_callback(self._going_on.discard)
                return
            self._on_call_over()
            try:
                message = messages.TxnResponse.FromString(found)
            except DecodeError as error:
                told(error)
            else:
                told(EtcdAnswer(message, doubted=False))

        until = asyncio.get_running_loop().time() + self.bounds.call_s
        if not member.begin_transaction(request, self.bounds.try_s, self._metadata, answered):
            return False
        self._under_way += 1
        return True

    async def _go_on(
        self,
        request: bytes,
        failure: Failure,
        until: float,
        told: "Callable[[EtcdAnswer | BaseException], None]",
    ) -> None:
        """After a first try that failed, as with any other call."""
        found: EtcdAnswer | BaseException
        try:
            found = await self._tried(_TXN, messages.TxnRequest.FromString(request), until, failure=failure)
        except BaseException as error:
            found = error
        self._on_call_over()
        told(found)

    async def put(self, key: bytes, value: bytes) -> None:
        """Raises: as `transact`."""
        await self._call(_PUT, messages.PutRequest(key=key, value=value))

    async def delete(self, start: bytes, end: bytes) -> int:
        """Delete a range at once; returns the revision.

        Raises: as `transact`.
        """
        answer = await self._call(_DELETE, messages.DeleteRangeRequest(key=start, range_end=end))
        return int(answer.message.header.revision)

    async def compact(self, revision: int) -> None:
        """Forget what was before a revision.

        Raises: as `transact`, and
            Compacted: it is forgotten already.
        """
        await self._call(_COMPACT, messages.CompactionRequest(revision=revision))

    async def read(self, request: Message) -> Message:
        """A range, or a transaction that only reads: as of now, by any member that answers.

        Raises:
            Unavailable: no member answered.
            AnswerTooLarge: ask for less.
        """
        method = _RANGE if isinstance(request, messages.RangeRequest) else _TXN
        return (await self._call(method, request, is_read=True)).message

    async def grant_lease(self, lease: int, ttl_s: int) -> int:
        """Make a lease, with a unique number; returns its ttl, which may be longer.

        Raises: as `transact`.
        """
        try:
            answer = await self._call(_GRANT, messages.LeaseGrantRequest(ID=lease, TTL=ttl_s))
        except LeaseExists:
            return ttl_s
        return int(answer.message.TTL)

    async def keep_alive(self, lease: int, within_s: float) -> Message:
        """Renew a lease; the answer's TTL is 0 if it is gone.

        Raises:
            Unavailable, OutcomeUnknown: no member said so in time.
        """
        return (await self._call(_KEEP_ALIVE, messages.LeaseKeepAliveRequest(ID=lease), within_s=within_s)).message

    async def revoke_lease(self, lease: int) -> None:
        """End a lease, and delete all its keys.

        Raises: as `transact`.
        """
        with suppress(NoLease):
            await self._call(_REVOKE, messages.LeaseRevokeRequest(ID=lease))

    async def keys_of_lease(self, lease: int) -> list[bytes]:
        """The keys that go with a lease, as the leader remembers them: a caller that acts upon it makes sure.

        Raises:
            Unavailable: no member answered.
        """
        request = messages.LeaseTimeToLiveRequest(ID=lease, keys=True)
        return list((await self._call(_TIME_TO_LIVE, request, is_read=True)).message.keys)

    async def storage(self, within_s: float) -> list[MemberStorage]:
        """How full the members are that say so in time. Raises nothing."""
        if self._is_closed:
            return []
        asked = (storage_of(member, within_s, self._metadata) for member in self._members)
        found = [one for one in await asyncio.gather(*asked) if one is not None]
        self._follow_leader()
        return found

    def _follow_leader(self) -> None:
        """Ask the member that leads from now on, if another was asked: what each said of itself is fresh.

        One that was left lately stays so for a while. It may lead, and yet be unreachable from here.
        """
        leader = max((one for one in self._members if one.leads), key=lambda one: one.term, default=None)
        if self._chosen is None or leader is None or leader is self._chosen:
            return
        was_left_s = asyncio.get_running_loop().time() - self._left_at.get(leader, -inf)
        if leader.term >= self._chosen.term and was_left_s >= _LEFT_FOR_S:
            self._chosen = leader

    def stream(self) -> Any | None:
        """A stream of watches from the chosen member; None while there is none, until a call finds one."""
        return None if self._chosen is None else self._chosen.streams.Watch(metadata=self._metadata)

    def leave(self, member: EtcdMember) -> None:
        """Ask another one from now on."""
        if self._chosen is member:
            self._chosen, self._left = None, member
            self._left_at[member] = asyncio.get_running_loop().time()

    async def close(self) -> None:
        """Let calls under way end, begin no others, and disconnect."""
        self._is_closed = True
        while self._under_way:
            self._idle.clear()
            await self._idle.wait()
        await asyncio.gather(*self._work.values(), return_exceptions=True)
        for member in self._members:
            await member.close()

    # A call: tries until one is answered, or the deadline passes.

    async def _call(
        self, method: Method, request: Message, *, is_read: bool = False, within_s: float | None = None
    ) -> EtcdAnswer:
        if self._is_closed:
            raise Unavailable(f"{self._address}: it was closed")
        until = asyncio.get_running_loop().time() + (within_s or self.bounds.call_s)
        self._under_way += 1
        try:
            return await self._tried(method, request, until, is_read=is_read)
        finally:
            self._on_call_over()

    def _on_call_over(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._idle.set()

    async def _tried(
        self,
        method: Method,
        request: Message,
        until: float,
        *,
        is_read: bool = False,
        failure: Failure | None = None,
    ) -> EtcdAnswer:
        """The answer to one of the tries. `failure` is how one ended that was made before."""
        is_doubted = False
        while True:
            if failure is None:
                try:
                    return EtcdAnswer(await self._try(method, request, until), is_doubted)
                except Failed as error:
                    failure = error.failure
            is_doubted = is_doubted or (failure.leaves_doubt and not is_read)
            self._give_up_if_due(failure, until, is_doubted, is_read)
            failure = None
            await asyncio.sleep(self.bounds.pause_s)

    def _give_up_if_due(self, failure: Failure, until: float, is_doubted: bool, is_read: bool) -> None:
        """Raise the outcome of the call, if trying again is no use."""
        if failure.meaning is Meaning.COMPACTED:
            raise Compacted(failure.text)
        if failure.meaning is Meaning.NO_LEASE:
            # Of an earlier try as well: what it may have put has gone with the lease.
            raise NoLease(failure.text)
        if failure.meaning is Meaning.TOO_MUCH and is_read:
            raise AnswerTooLarge(failure.text)
        is_over = self._left_s(until) <= self.bounds.pause_s
        if is_doubted:
            if failure.kind is LeaseExists:
                raise LeaseExists(failure.text)
            if is_over or failure.is_final:
                raise OutcomeUnknown(f"{self._address}: no answer that tells the outcome: {failure.text}")
        elif failure.is_final:
            kind = self._denied if failure.kind is PermissionDenied else failure.kind
            raise kind(f"{self._address}: {failure.text}")
        elif is_over or failure.meaning is Meaning.UNREACHABLE or (is_read and self._is_closed):
            raise Unavailable(f"{self._address}: cannot be reached: {failure.text}")

    async def _try(self, method: Method, request: Message, until: float) -> Message:
        if not self._has_token:
            await self._joined("log in", lambda: self._log_in(until), until)
        member = self._chosen or await self._found(until)
        try:
            return await method(member)(request, timeout=self._try_s(until), metadata=self._metadata)
        except CallFailed as error:
            raise Failed(self._failure(member, error)) from error

    def _failure(self, member: EtcdMember, error: CallFailed) -> Failure:
        """What a try that failed means, also for which member to ask next."""
        failure = understand(error)
        if failure.meaning in (Meaning.NOT_NOW, Meaning.DOUBT):
            self.leave(member)
        elif failure.meaning is Meaning.LOGIN:
            self._has_token = not self._address.user
        return failure

    def _left_s(self, until: float) -> float:
        return until - asyncio.get_running_loop().time()

    def _try_s(self, until: float) -> float:
        return max(0.001, min(self.bounds.try_s, self._left_s(until)))

    # Which member is asked, and with which login.

    async def _found(self, until: float) -> EtcdMember:
        if self._chosen is None:
            await self._joined("choose", lambda: self._choose(until), until)
        if self._chosen is None:
            raise Failed(Failure(Meaning.NOT_NOW, "the member that was chosen failed at once"))
        return self._chosen

    async def _joined(self, what: str, work: Callable[[], Coroutine[Any, Any, object]], until: float) -> None:
        """Do what all calls in flight need: once for all of them, even if one of them stops waiting."""
        task = self._work.get(what)
        if task is None:
            task = self._work[what] = asyncio.create_task(work())
            task.add_done_callback(lambda done: self._on_work_done(what, done))
        await asyncio.wait({task}, timeout=max(0.0, self._left_s(until)))
        if not task.done():
            raise Failed(Failure(Meaning.NOT_NOW, f"no time left to {what}"))
        task.result()

    def _on_work_done(self, what: str, task: "asyncio.Task[object]") -> None:
        del self._work[what]
        if not task.cancelled():
            # Retrieved here: callers that wait for it get it anyway, and if there are none, asyncio must not
            # complain.
            task.exception()

    async def _log_in(self, until: float) -> None:
        member = self._chosen or await self._found(until)
        request = messages.AuthenticateRequest(name=self._address.user, password=self._address.password)
        try:
            # All the time there is: etcd makes the checking of a password slow on purpose.
            answer = await member.auth.Authenticate(request, timeout=self._left_s(until), metadata=(_HAS_LEADER,))
        except CallFailed as error:
            failure = understand(error)
            if failure.leaves_doubt:
                # A login changes nothing, and what it is for was not sent.
                failure = Failure(Meaning.NOT_NOW, failure.text)
            if failure.meaning is Meaning.NOT_NOW:
                self.leave(member)
            raise Failed(failure) from error
        self._metadata = (_HAS_LEADER, ("token", answer.token))
        self._has_token = True

    async def _choose(self, until: float) -> EtcdMember:
        greetings = {
            asyncio.create_task(member.greet(self._try_s(until), self._metadata)): member
            for member in self._members
        }
        try:
            standings = await self._hear(greetings)
        finally:
            for greeting in greetings:
                greeting.cancel()
            await asyncio.gather(*greetings, return_exceptions=True)
        best = max(standings, key=lambda member: self._rank(member, standings[member]))
        if standings[best] <= MemberStanding.SILENT:
            meaning = Meaning.UNREACHABLE if standings[best] is MemberStanding.GONE else Meaning.NOT_NOW
            raise Failed(Failure(meaning, "; ".join(member.trouble for member in self._members)))
        self._chosen, self._left = best, None
        return best

    async def _hear(
        self, greetings: dict[asyncio.Task[MemberStanding], EtcdMember]
    ) -> dict[EtcdMember, MemberStanding]:
        """The replies of members, as far as they must be waited for."""
        standings: dict[EtcdMember, MemberStanding] = {}
        pending = set(greetings)
        while pending and not self._is_settled(standings):
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            standings.update((greetings[greeting], greeting.result()) for greeting in done)
        return standings

    def _is_settled(self, standings: dict[EtcdMember, MemberStanding]) -> bool:
        others = [member for member in self._members if member is not self._left]
        if any(standings.get(member) is MemberStanding.LEADS for member in others):
            return True
        is_heard = all(member in standings for member in others)
        return is_heard and any(standings[member] > MemberStanding.SILENT for member in others)

    def _rank(self, member: EtcdMember, standing: MemberStanding) -> tuple[bool, bool, MemberStanding]:
        # One that was just left may think that it leads, cut off from the others.
        return standing > MemberStanding.SILENT, member is not self._left, standing
