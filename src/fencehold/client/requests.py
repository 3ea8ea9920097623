"""Requests: what is asked for, and what each reply means to it. What they have in common is in `expected`.

1. An acquire that nobody waits for any more is withdrawn, whatever moment it was left at: one not sent is
   forgotten, one sent or queued is cancelled, one granted is released by its fence.
2. A release is carried out, whoever stops waiting for it; an extension brings nothing back that has run out.
"""

from math import inf
from typing import TYPE_CHECKING, Any

from fencehold.client.expected import DONE, QUEUED, SENT, UNSENT, Numbered, Promise, Request
from fencehold.client.session import Session
from fencehold.drivers.resp.wire import GONE, command, error, number
from fencehold.errors import Deadlock, FenceholdError, HoldLost, Overloaded, Unavailable
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant, margin

if TYPE_CHECKING:
    from fencehold.client.protocol import SessionProtocol

_NOT_TAKEN_BACK = "the service is busy: it has not yet taken back what this task or thread released"


class Acquire(Numbered):
    """Ask for names. Kept with a `Grant`, or with None if they were not to be had."""

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
        """The encoded option that says which task or thread asks."""
        self.grant: Grant | None = None

    def encode(self, session: Session, now: float) -> bytes:
        prefix = self.terms.prefix
        timeout = self.terms.timeout
        if timeout and now > self.asked_at:
            # One deadline for all tries: what was spent on reaching the service is not waited again.
            prefix = self.terms.encode(max(0.0, self.asked_at + timeout - now))
        return b"%b%b$7\r\nREQUEST\r\n%b$8\r\nANSWERED\r\n%b" % (prefix, self.owner, self.number, session.answered)

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        if self.stage == DONE:
            # Withdrawn meanwhile, or pushed before its repetition was answered.
            return
        if reply is not None and b"queued" in reply:
            self.stage = QUEUED
            protocol.on_queued(self, reply)
            return
        if self.repeated:
            # The first time it may have been queued, and answered by a push that was lost.
            protocol.session.waiting.pop(self.id, None)
            protocol.settle(self.id)
        if reply is None:
            self.finish(None)
            return
        if reply[b"own_ttl"]:
            protocol.session.trust.on_answer(self.sent_at, reply[b"at"])
        self.on_granted(protocol, reply)

    def on_granted(self, protocol: "SessionProtocol", reply: dict[bytes, Any]) -> None:
        """It is granted. If nobody waits for it any more, it goes back at once."""
        grant = protocol.session.on_granted(self, reply)
        if reply[b"own_ttl"]:
            protocol.wake_by(grant.own_end)
        promise = self.promise
        self.stage = DONE
        if promise is None or promise.done():
            protocol.undo(self, grant)
        else:
            promise.set_result(grant)

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        if self.stage == DONE:
            return
        failure = error(code, detail, self.terms.limit)
        if isinstance(failure, Deadlock) and _is_with_itself(failure, protocol.session):
            # Given back, and not taken yet. This was answered all the same, so it is asked under a new id.
            self.repeated = False
            self.on_busy(protocol, Overloaded(_NOT_TAKEN_BACK))
            return
        protocol.session.waiting.pop(self.id, None)
        self.fail(failure)

    def patient_until(self, protocol: "SessionProtocol") -> float:
        timeout = self.terms.timeout
        if self.stage == QUEUED:
            # It waits in the queue: the server ends it, or `deadlines` does.
            return inf
        until = self.asked_at + min(inf if timeout is None else timeout, protocol.busy_s_max)
        # One that may have been taken is asked for a while even if it was a try: to know is better than not to.
        return max(until, super().patient_until(protocol)) if self.repeated else until

    def on_interrupted(self, protocol: "SessionProtocol") -> None:
        # One that is queued is found among those that wait; one that was withdrawn is repeated as a withdrawal.
        if self.stage == SENT:
            protocol.pipeline.interrupted.append(self)

    def on_unreachable(self, protocol: "SessionProtocol", why: Unavailable) -> None:
        failure = self.doubted(why)
        if self.stage != UNSENT:
            protocol.withdraw(self)
        self.fail(failure)

    def on_session_over(self, protocol: "SessionProtocol", lost: FenceholdError) -> None:
        if self.stage == QUEUED:
            self.fail(lost)
        else:
            # It had no place in a queue to lose, and what it may have been granted ended with the session.
            self.forget()
            protocol.submit(self)


class Release(Numbered):
    """Give a grant back. Without a promise it is done for good measure, and nobody is told how."""

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

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        if protocol.session.returning:
            protocol.session.returning.discard(self.grant.fence)
        self.finish(None)

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        protocol.session.returning.add(self.grant.fence)
        super().on_busy(protocol, busy)

    def patient_until(self, protocol: "SessionProtocol") -> float:
        # What nobody waits for is to be freed all the same, as long as the session lives.
        return inf if self.promise is None else super().patient_until(protocol)

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        protocol.session.returning.discard(self.grant.fence)
        if code == "EXPIRED":
            self.fail(lost(self.grant, "it ran out, or an operator broke it, before it was released"))
        else:
            super().on_error(protocol, code, detail)

    def on_unreachable(self, protocol: "SessionProtocol", why: Unavailable) -> None:
        # The caller is told, but the names are still to be freed as soon as the service is reached, or has time.
        stage = self.stage
        super().on_unreachable(protocol, why)
        self.promise, self.stage = None, stage

    def on_session_over(self, protocol: "SessionProtocol", lost: FenceholdError) -> None:
        self.fail(lost_with_session(self.grant))


class Extend(Numbered):
    """Let a grant end later. Kept with None."""

    __slots__ = ("end", "grant", "ttl_ms")

    def __init__(self, grant: Grant, ttl_ms: int, promise: Promise | None, asked_at: float) -> None:
        super().__init__(promise, asked_at)
        self.grant = grant
        self.ttl_ms = ttl_ms
        self.end = asked_at + ttl_ms / 1000 - margin(ttl_ms / 1000) if ttl_ms else inf
        """Before that the grant does not end by it."""
        grant.on_extending(self.end)

    def encode(self, session: Session, now: float) -> bytes:
        names = self.grant.terms.names
        head: list[str | bytes | int] = ["LOCK.EXTEND"] if len(names) == 1 else ["LOCK.MEXTEND", len(names)]
        ids: list[str | int] = ["REQUEST", self.id, "ANSWERED", session.answered_id]
        return command(*head, *names, self.grant.fence, self.ttl_ms, *ids)

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        # First, as an answer brings nothing back that has run out meanwhile.
        protocol.lose_due()
        self.grant.on_extended(self.end)
        if self.grant.ending:
            # Lost or given back while this was on its way: what was lost stays lost, whatever the server says.
            self.fail(self.grant.why())
            return
        protocol.session.trust.on_answer(self.sent_at, reply[b"at"])
        protocol.session.limit(self.grant, reply)
        protocol.wake_by(self.grant.own_end)
        self.finish(None)

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        if code not in GONE:
            self._undone(protocol)
            super().on_error(protocol, code, detail)
            return
        protocol.lose(self.grant, "the service does not know it any more")
        self.fail(self.grant.why())

    def on_unreachable(self, protocol: "SessionProtocol", why: Unavailable) -> None:
        if self.stage == UNSENT:
            self._undone(protocol)
        super().on_unreachable(protocol, why)

    def _undone(self, protocol: "SessionProtocol") -> None:
        """The grant ends as if this had not been asked."""
        protocol.lose_due()
        self.grant.on_not_extended(self.end)
        protocol.watch_end(self.grant)

    def on_session_over(self, protocol: "SessionProtocol", lost: FenceholdError) -> None:
        self.fail(lost_with_session(self.grant))


class Read(Request):
    """A command that changes nothing, or that may be done twice. Kept with the reply as it came."""

    __slots__ = ("words",)

    def __init__(self, words: bytes, promise: Promise | None, asked_at: float) -> None:
        super().__init__(promise, asked_at)
        self.words = words

    def encode(self, session: Session, now: float) -> bytes:
        return self.words

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        self.finish(reply)

    def doubted(self, why: Unavailable) -> Unavailable:
        return why

    def on_session_over(self, protocol: "SessionProtocol", lost: FenceholdError) -> None:
        self.stage = UNSENT
        protocol.submit(self)


def _is_with_itself(deadlock: Deadlock, session: Session) -> bool:
    """Whether an acquire waits for nothing but what its own task or thread has given back."""
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
    return lost(grant, "the session ended")
