"""Requests of the application: what each reply means, and what becomes of a request if none comes, or BUSY.

1. A request that changes something carries an id and is repeated under it until it is answered (G9): the server
   acts on it once. A read is sent again; what the session itself needs (`session_requests`) is sent anew.
2. A promise is resolved once; one that its caller has abandoned is not resolved.
3. A request that gets BUSY rests, and is sent again for as long as its caller waits (`Backoff`). It was not
   processed, so it is sent under a new id. But a repetition may have been processed when it was first sent, of
   which BUSY says nothing: it keeps its id until it is answered.
4. An acquire that no caller waits for any more is withdrawn, in whatever stage it is: one not sent is dropped, one
   sent or queued is cancelled, one granted is released by its fence.
5. A release is carried out, whether or not its caller waits; an extension does not revive what has run out.
6. The close is repeated for as long as closing may take.
"""

from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from fencehold.client.protocol.ledger import Session
from fencehold.drivers.resp.wire import GONE, command, error, number
from fencehold.errors import (
    Deadlock,
    FenceholdError,
    HoldLost,
    OutcomeUnknown,
    Overloaded,
    Unavailable,
)
from fencehold.locks.loss_reasons import LossKind, LossReason
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant, margin

if TYPE_CHECKING:
    from fencehold.client.protocol.session import SessionProtocol

_NOT_TAKEN_BACK = "the service is busy: it has not yet processed the release of this task or thread"

UNSENT, SENT, QUEUED, DONE = range(4)
"""The life of a request."""


class Promise(Protocol):
    """Receives the answer: a future, or whatever the shell waits on."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, error: BaseException, /) -> None: ...


class Expected:
    """Something whose reply is awaited."""

    __slots__ = ()

    numbered = False
    """Whether it carries a request id, so that its reply is acknowledged."""
    id = 0
    number = b""

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        """The reply came."""

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        """The reply was an error about this request only."""

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        """The service was too busy for it: nothing happened."""

    def on_rested(self, protocol: "SessionProtocol") -> None:
        """It got BUSY, and has rested for as long as required, or as long as its caller waits."""

    def on_interrupted(self, protocol: "SessionProtocol") -> None:
        """The connection went before the reply came."""


class Request(Expected):
    """Something a caller waits for."""

    __slots__ = ("asked_at", "busy", "busy_times", "promise", "stage")

    busy: Overloaded
    """The last BUSY it got, if any."""
    busy_times: int
    """How often. Neither is set before: requests are made for every lock operation, and this is rare."""

    def __init__(self, promise: Promise | None, asked_at: float) -> None:
        self.promise = promise
        self.asked_at = asked_at
        self.stage = UNSENT

    def encode(self, session: Session, now: float) -> bytes:
        """The command as it is sent now."""
        raise NotImplementedError

    def take_id(self, session: Session, now: float) -> None:
        """Take the next id of the session, if it is one that needs any: it is sent now."""

    def is_awaited(self) -> bool:
        """Whether a caller still waits for it."""
        return self.stage != DONE and self.promise is not None

    def finish(self, result: object) -> None:
        """Resolve the promise."""
        self.stage = DONE
        promise = self.promise
        if promise is not None and not promise.done():
            promise.set_result(result)

    def fail(self, failure: FenceholdError) -> None:
        """Resolve the promise with an error."""
        self.stage = DONE
        promise = self.promise
        if promise is not None and not promise.done():
            promise.set_exception(failure)

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        self.fail(error(code, detail))

    def on_interrupted(self, protocol: "SessionProtocol") -> None:
        protocol.pipeline.interrupted.append(self)

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        if self.stage == DONE:
            return
        self.busy, self.busy_times = busy, getattr(self, "busy_times", 0) + 1
        self.unsend(protocol.session)
        protocol._rest(self, busy, self.busy_times, self.patient_until(protocol))

    def on_rested(self, protocol: "SessionProtocol") -> None:
        if self.stage == DONE:
            return
        now = protocol._now
        if now < self.patient_until(protocol):
            self.ask_again(protocol)
            return
        self.on_unreachable(protocol, self.too_busy(now))
        if self.stage != DONE:
            # Its caller got the error; it is still to be done, but not sooner for that.
            protocol._backoff.rest(self, now + protocol._backoff.rest_of(self.busy, self.busy_times))

    def ask_again(self, protocol: "SessionProtocol") -> None:
        """It has rested: send it, or queue it here for its turn."""
        protocol._submit(self)

    def unsend(self, session: Session) -> None:
        """Reset it as if it had not been sent this time."""
        self.stage = UNSENT

    def patient_until(self, protocol: "SessionProtocol") -> float:
        """Until when it is sent again while the service is busy."""
        return protocol.connection.give_up_at(self.asked_at)

    def too_busy(self, now: float) -> Overloaded:
        """The error when it got BUSY for as long as its caller waits."""
        tried_s = now - self.asked_at
        tried = f"; asked {self.busy_times} times in {tried_s:.1f} s" if self.busy_times > 1 else ""
        return Overloaded(f"{self.busy}{tried}", retry_after_s=self.busy.retry_after_s)

    def on_unreachable(self, protocol: "SessionProtocol", why: Unavailable) -> None:
        """The service was not reached in time, or was too busy."""
        self.fail(self.doubted(why))

    def on_refused(self, protocol: "SessionProtocol", why: FenceholdError) -> None:
        """The service rejects this client: a retry will not help."""
        self.fail(why)

    def doubted(self, why: FenceholdError) -> FenceholdError:
        """The error for a request that the service has not processed, as far as is known."""
        if self.stage == UNSENT:
            return why
        return OutcomeUnknown(f"the connection was lost before the answer came; since then: {why}")

    def on_session_over(self, protocol: "SessionProtocol", lost: FenceholdError) -> None:
        """The session it was sent in is over, before it was answered."""
        self.fail(lost)


class Numbered(Request):
    """A request that changes something: it has an id, under which it is repeated."""

    __slots__ = ("id", "number", "repeated", "sent_at")

    numbered = True

    sent_at: float
    """When it was first sent in this session: what its answer reports happened no earlier."""

    def __init__(self, promise: Promise | None, asked_at: float) -> None:
        self.promise = promise
        self.asked_at = asked_at
        self.stage = UNSENT
        self.repeated = False
        self.id = 0
        self.number = b""

    def take_id(self, session: Session, now: float) -> None:
        self.sent_at = now
        session.last_id = self.id = session.last_id + 1
        self.number = number(self.id)

    def unsend(self, session: Session) -> None:
        if self.repeated:
            # It may have been processed the first time: it is sent again under this id, which is not acknowledged.
            session.keep(self.id)
        else:
            self.forget()

    def ask_again(self, protocol: "SessionProtocol") -> None:
        if not self.id:
            protocol._submit(self)
            return
        stage = self.stage
        protocol.pipeline.send(self, protocol.session, protocol._now)
        if stage == QUEUED:
            # It is found among the waiting ones: an answer may be pushed before this is replied to.
            self.stage = QUEUED

    def on_rested(self, protocol: "SessionProtocol") -> None:
        super().on_rested(protocol)
        if self.stage == DONE and self.id not in protocol.session.cancels:
            # Answered by a push meanwhile, or withdrawn.
            protocol.session.let_go(self.id)

    def forget(self) -> None:
        """Reset it as if never sent: the session that knew its id is over."""
        self.id = 0
        self.repeated = False
        self.stage = UNSENT


# The requests of an application.


class Acquire(Numbered):
    """Acquire names. Resolved with a `Grant`, or with None if they were not acquired."""

    __slots__ = ("grant", "owner", "terms")

    def __init__(self, terms: Terms, owner: bytes, promise: Promise, asked_at: float) -> None:
        # Written out, here and in `Release`: these two are made for every lock operation.
        self.promise = promise
        self.asked_at = asked_at
        self.stage = UNSENT
        self.repeated = False
        self.id = 0
        self.terms = terms
        self.owner = owner
        """The encoded option that names the task or thread."""
        self.grant: Grant | None = None

    def encode(self, session: Session, now: float) -> bytes:
        prefix = self.terms.prefix
        timeout = self.terms.timeout
        if timeout and now > self.asked_at:
            # One deadline for all tries: time spent on reaching the service counts.
            prefix = self.terms.encode(max(0.0, self.asked_at + timeout - now))
        return b"%b%b$7\r\nREQUEST\r\n%b$8\r\nANSWERED\r\n%b" % (prefix, self.owner, self.number, session.answered)

    def renewed(self) -> "Acquire":
        """The same, as it was first made."""
        assert self.promise is not None
        return Acquire(self.terms, self.owner, self.promise, self.asked_at)

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        if self.stage == DONE:
            # Withdrawn meanwhile, or pushed before its repetition was answered.
            return
        if reply is not None and b"queued" in reply:
            self.stage = QUEUED
            protocol._on_queued(self, reply)
            return
        if self.repeated:
            # The first time it may have been queued, and answered by a push that was lost.
            protocol.session.waiting.pop(self.id, None)
            protocol._settle(self.id)
        if reply is None:
            self.finish(None)
            return
        if reply[b"own_ttl"]:
            protocol.session.trust.on_answer(self.sent_at, reply[b"at"])
        self.on_granted(protocol, reply)

    def on_granted(self, protocol: "SessionProtocol", reply: dict[bytes, Any]) -> None:
        """It is granted. If no caller waits for it any more, it is released at once."""
        grant = protocol.session.on_granted(self, reply)
        if reply[b"own_ttl"]:
            protocol._wake_by(grant.own_end)
        promise = self.promise
        self.stage = DONE
        if promise is None or promise.done():
            protocol._undo(self, grant)
        else:
            promise.set_result(grant)

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        if self.stage == DONE:
            return
        failure = error(code, detail, self.terms.limit)
        if isinstance(failure, Deadlock) and _is_with_itself(failure, protocol.session):
            # Released, and the release not processed yet. This was answered anyway, so it is sent under a new id.
            self.repeated = False
            self.on_busy(protocol, Overloaded(_NOT_TAKEN_BACK))
            return
        protocol.session.waiting.pop(self.id, None)
        self.fail(failure)

    def patient_until(self, protocol: "SessionProtocol") -> float:
        timeout = self.terms.timeout
        if self.stage == QUEUED:
            # It waits in the queue: the server ends it, or the protocol does.
            return inf
        until = self.asked_at + min(inf if timeout is None else timeout, protocol.busy_s_max)
        # One that may have been processed is repeated for a while even if it was a try: to find out is better.
        return max(until, super().patient_until(protocol)) if self.repeated else until

    def on_interrupted(self, protocol: "SessionProtocol") -> None:
        # One that is queued is found among the waiting ones; one that was withdrawn is repeated as a withdrawal.
        if self.stage == SENT:
            protocol.pipeline.interrupted.append(self)

    def on_unreachable(self, protocol: "SessionProtocol", why: Unavailable) -> None:
        failure = self.doubted(why)
        if self.stage != UNSENT:
            protocol._withdraw_sent(self)
        self.fail(failure)

    def on_refused(self, protocol: "SessionProtocol", why: FenceholdError) -> None:
        if self.stage != UNSENT:
            # The session may be resumed, by another node or when the policy has changed.
            protocol._withdraw_sent(self)
        self.fail(why)

    def on_session_over(self, protocol: "SessionProtocol", lost: FenceholdError) -> None:
        if self.stage == QUEUED:
            self.fail(lost)
        else:
            # It had no place in a queue to lose, and what it may have been granted ended with the session.
            self.forget()
            protocol._submit(self)


class Release(Numbered):
    """Release a grant. Without a promise it is a clean-up, and its outcome is not reported."""

    __slots__ = ("grant",)

    def __init__(self, grant: Grant, promise: Promise | None, asked_at: float) -> None:
        self.promise = promise
        self.asked_at = asked_at
        self.stage = UNSENT
        self.repeated = False
        self.id = 0
        self.grant = grant

    def encode(self, session: Session, now: float) -> bytes:
        grant = self.grant
        fence = number(grant.fence)
        many = len(grant.terms.names)
        rest = (grant.terms.names_encoded, fence, self.number, session.answered)
        if many == 1:
            return b"*7\r\n$12\r\nLOCK.RELEASE\r\n%b%b$7\r\nREQUEST\r\n%b$8\r\nANSWERED\r\n%b" % rest
        head = b"*%d\r\n$13\r\nLOCK.MRELEASE\r\n%b" % (7 + many, number(many))
        return head + b"%b%b$7\r\nREQUEST\r\n%b$8\r\nANSWERED\r\n%b" % rest

    def renewed(self) -> "Release":
        """The same, as it was first made."""
        return Release(self.grant, self.promise, self.asked_at)

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        if protocol.session.returning:
            protocol.session.returning.discard(self.grant.fence)
        self.finish(None)

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        protocol.session.returning.add(self.grant.fence)
        super().on_busy(protocol, busy)

    def patient_until(self, protocol: "SessionProtocol") -> float:
        # Without a waiting caller the names are still to be released, as long as the session lives.
        return inf if self.promise is None else super().patient_until(protocol)

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        protocol.session.returning.discard(self.grant.fence)
        if code == "EXPIRED":
            self.fail(lost(self.grant, "it expired, or was force-released, before this release"))
        else:
            super().on_error(protocol, code, detail)

    def on_unreachable(self, protocol: "SessionProtocol", why: Unavailable) -> None:
        # The caller gets the error, but the names are still to be released when the service responds again.
        stage = self.stage
        super().on_unreachable(protocol, why)
        self.promise, self.stage = None, stage

    def on_refused(self, protocol: "SessionProtocol", why: FenceholdError) -> None:
        # The caller gets the error, but if the session is resumed, the names are to be released.
        stage = self.stage
        self.fail(self.doubted(why))
        self.promise, self.stage = None, stage
        pipeline = protocol.pipeline
        (pipeline.unsent if stage == UNSENT else pipeline.interrupted).append(self)

    def on_session_over(self, protocol: "SessionProtocol", lost: FenceholdError) -> None:
        self.fail(lost_with_session(self.grant))


class Extend(Numbered):
    """Let a grant end later. Resolved with None."""

    __slots__ = ("end", "grant", "ttl_ms")

    def __init__(self, grant: Grant, ttl_ms: int, promise: Promise | None, asked_at: float) -> None:
        super().__init__(promise, asked_at)
        self.grant = grant
        self.ttl_ms = ttl_ms
        self.end = asked_at + ttl_ms / 1000 - margin(ttl_ms / 1000) if ttl_ms else inf
        """The grant does not end earlier by this extension."""
        grant.on_extending(self.end)

    def encode(self, session: Session, now: float) -> bytes:
        names = self.grant.terms.names
        head: list[str | bytes | int] = ["LOCK.EXTEND"] if len(names) == 1 else ["LOCK.MEXTEND", len(names)]
        ids: list[str | int] = ["REQUEST", self.id, "ANSWERED", session.answered_id]
        return command(*head, *names, self.grant.fence, self.ttl_ms, *ids)

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        # First, as an answer does not revive what has run out meanwhile.
        protocol._lose_due()
        self.grant.on_extended(self.end)
        if self.grant.ending:
            # Lost or released while this was in flight: what was lost stays lost, whatever the server says.
            self.fail(self.grant.why())
            return
        protocol.session.trust.on_answer(self.sent_at, reply[b"at"])
        protocol.session.limit(self.grant, reply)
        protocol._wake_by(self.grant.own_end)
        self.finish(None)

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        if code not in GONE:
            self._undone(protocol)
            super().on_error(protocol, code, detail)
            return
        protocol._lose(self.grant, "the service does not know it (any more)")
        self.fail(self.grant.why())

    def on_unreachable(self, protocol: "SessionProtocol", why: Unavailable) -> None:
        if self.stage == UNSENT:
            self._undone(protocol)
        super().on_unreachable(protocol, why)

    def on_refused(self, protocol: "SessionProtocol", why: FenceholdError) -> None:
        if self.stage == UNSENT:
            self._undone(protocol)
        self.fail(self.doubted(why))

    def _undone(self, protocol: "SessionProtocol") -> None:
        """The grant ends as if this had not been requested."""
        protocol._lose_due()
        self.grant.on_not_extended(self.end)
        protocol._watch_end(self.grant)

    def on_session_over(self, protocol: "SessionProtocol", lost: FenceholdError) -> None:
        self.fail(lost_with_session(self.grant))


class Read(Request):
    """A command that is idempotent. Resolved with the reply as it came."""

    __slots__ = ("words",)

    def __init__(self, words: bytes, promise: Promise | None, asked_at: float) -> None:
        super().__init__(promise, asked_at)
        self.words = words

    def encode(self, session: Session, now: float) -> bytes:
        return self.words

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        self.finish(reply)

    def doubted(self, why: FenceholdError) -> FenceholdError:
        return why

    def on_session_over(self, protocol: "SessionProtocol", lost: FenceholdError) -> None:
        self.stage = UNSENT
        protocol._submit(self)


class Close(Request):
    """End the session cleanly."""

    __slots__ = ()

    def encode(self, session: Session, now: float) -> bytes:
        return b"*1\r\n$13\r\nSESSION.CLOSE\r\n"

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        self.stage = DONE
        protocol._on_closed()

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        self.on_reply(protocol, None)

    def on_unreachable(self, protocol: "SessionProtocol", why: Unavailable) -> None:
        self.on_reply(protocol, None)

    def patient_until(self, protocol: "SessionProtocol") -> float:
        # The close of the client has a deadline of its own.
        return inf

    def on_session_over(self, protocol: "SessionProtocol", lost: FenceholdError) -> None:
        self.on_reply(protocol, None)


class Ready(Request):
    """Nothing is sent: its caller waits until a session is open. Resolved with None."""

    __slots__ = ()


def _is_with_itself(deadlock: Deadlock, session: Session) -> bool:
    """Whether an acquire waits only for what its own task or thread has released."""
    return len(deadlock.circle) == 1 and deadlock.circle[0].fence in session.returning


def lost(grant: Grant, reason: str) -> HoldLost:
    """The error of a release that came too late."""
    return HoldLost(
        f"{grant.terms.label} with fence {grant.fence} was lost: {reason}",
        names=grant.terms.names,
        fence=grant.fence,
        reason=reason,
    )


def lost_with_session(grant: Grant) -> HoldLost:
    """The error of a request about a grant whose session ended before it was answered."""
    return lost(grant, LossReason("the session ended", LossKind.SESSION))
