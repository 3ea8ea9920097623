"""Requests: what is sent, what each reply means to it, and what becomes of it when the connection goes first.

1. What changes something carries an id and is repeated under it until it is answered (G9); what only asks is asked
   again; housekeeping is done anew.
2. An acquire that nobody waits for any more is withdrawn, whatever moment it was left at: one not sent is
   forgotten, one sent or queued is cancelled, one granted is released by its fence.
3. A promise is kept once: whoever gave it up is told nothing.
"""

from math import inf
from typing import TYPE_CHECKING, Any, Protocol

from fencehold.client.session import Session
from fencehold.client.terms import Terms
from fencehold.client.trust import Grant, margin
from fencehold.client.wire import GONE, command, error, number
from fencehold.errors import FenceholdError, HoldLost, OutcomeUnknown, Unavailable

if TYPE_CHECKING:
    from fencehold.client.protocol import SessionProtocol

UNSENT, SENT, QUEUED, DONE = range(4)
"""The life of a request."""


class Promise(Protocol):
    """Where the answer goes: a future, or whatever the shell waits on."""

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
        """The reply was an error that answers this and nothing else."""

    def on_interrupted(self, protocol: "SessionProtocol") -> None:
        """The connection went before the reply came."""


class Request(Expected):
    """Something a caller waits for."""

    __slots__ = ("asked_at", "promise", "stage")

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
        """Whether somebody still wants to know."""
        return self.stage != DONE and self.promise is not None

    def finish(self, result: object) -> None:
        """Keep the promise."""
        self.stage = DONE
        promise = self.promise
        if promise is not None and not promise.done():
            promise.set_result(result)

    def fail(self, failure: FenceholdError) -> None:
        """Say why it will not be kept."""
        self.stage = DONE
        promise = self.promise
        if promise is not None and not promise.done():
            promise.set_exception(failure)

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        self.fail(error(code, detail))

    def on_interrupted(self, protocol: "SessionProtocol") -> None:
        protocol.pipeline.interrupted.append(self)

    def on_unreachable(self, protocol: "SessionProtocol") -> None:
        """The service was not reached in time."""
        self.fail(self.unreachable(protocol.reach.unreached()))

    def unreachable(self, why: str) -> Unavailable | OutcomeUnknown:
        """What to say of a request when the service was not reached in time."""
        if self.stage == UNSENT:
            return Unavailable(why)
        return OutcomeUnknown(f"the connection was lost before the answer came; since then: {why}")

    def on_session_over(self, protocol: "SessionProtocol", lost: FenceholdError) -> None:
        """The session it was sent in is over, before it was answered."""
        self.fail(lost)


class Numbered(Request):
    """A request that changes something: it has an id, by which it is repeated."""

    __slots__ = ("id", "number", "repeated", "sent_at")

    numbered = True

    sent_at: float
    """When it was first sent in this session: what it is answered with happened no earlier."""

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

    def forget(self) -> None:
        """Let it be as if never sent: the session that knew its id is over."""
        self.id = 0
        self.repeated = False
        self.stage = UNSENT


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
        if self.stage != DONE:
            protocol.session.waiting.pop(self.id, None)
            self.fail(error(code, detail, self.terms.limit))

    def on_interrupted(self, protocol: "SessionProtocol") -> None:
        # One that is queued is found among those that wait; one that was withdrawn is repeated as a withdrawal.
        if self.stage == SENT:
            protocol.pipeline.interrupted.append(self)

    def on_unreachable(self, protocol: "SessionProtocol") -> None:
        failure = self.unreachable(protocol.reach.unreached())
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
        self.finish(None)

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        if code == "EXPIRED":
            self.fail(lost(self.grant, "it ran out, or an operator broke it, before it was released"))
        else:
            super().on_error(protocol, code, detail)

    def on_unreachable(self, protocol: "SessionProtocol") -> None:
        # The caller is told, but the names are still to be freed as soon as the service is reached.
        stage = self.stage
        super().on_unreachable(protocol)
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

    def on_unreachable(self, protocol: "SessionProtocol") -> None:
        if self.stage == UNSENT:
            self._undone(protocol)
        super().on_unreachable(protocol)

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

    def unreachable(self, why: str) -> Unavailable:
        return Unavailable(why)

    def on_session_over(self, protocol: "SessionProtocol", lost: FenceholdError) -> None:
        self.stage = UNSENT
        protocol.submit(self)


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
