"""What is expected: whatever was sent and is to be answered, and what becomes of it if no answer comes, or BUSY.

1. What changes something carries an id and is repeated under it until it is answered (G9); what only asks is asked
   again; housekeeping is done anew.
2. A promise is kept once: whoever gave it up is told nothing.
3. What is told BUSY rests, and is asked again for as long as its caller waits (`backoff`). It was not taken, so it
   is asked under a new id. But one that is a repetition may have been taken when it was first sent, of which BUSY
   says nothing: it keeps its id until it is answered.
"""

from typing import TYPE_CHECKING, Any, Protocol

from fencehold.client.session import Session
from fencehold.drivers.resp.wire import error, number
from fencehold.errors import FenceholdError, OutcomeUnknown, Overloaded, Unavailable

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

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        """The service had no time for it: nothing happened."""

    def on_rested(self, protocol: "SessionProtocol") -> None:
        """It was told BUSY, and has rested for as long as it was to, or may."""

    def on_interrupted(self, protocol: "SessionProtocol") -> None:
        """The connection went before the reply came."""


class Request(Expected):
    """Something a caller waits for."""

    __slots__ = ("asked_at", "busy", "busy_times", "promise", "stage")

    busy: Overloaded
    """What it was told last, if it ever was BUSY."""
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

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        if self.stage == DONE:
            return
        self.busy, self.busy_times = busy, getattr(self, "busy_times", 0) + 1
        self.unsend(protocol.session)
        protocol.rest(self, busy, self.busy_times, self.patient_until(protocol))

    def on_rested(self, protocol: "SessionProtocol") -> None:
        if self.stage == DONE:
            return
        now = protocol.now
        if now < self.patient_until(protocol):
            self.ask_again(protocol)
            return
        self.on_unreachable(protocol, self.too_busy(now))
        if self.stage != DONE:
            # Its caller was told; it is to be done all the same, but not sooner for that.
            protocol.backoff.rest(self, now + protocol.backoff.rest_of(self.busy, self.busy_times))

    def ask_again(self, protocol: "SessionProtocol") -> None:
        """It has rested: send it, or let it wait for its turn."""
        protocol.submit(self)

    def unsend(self, session: Session) -> None:
        """Let it be as if it had not been sent this time."""
        self.stage = UNSENT

    def patient_until(self, protocol: "SessionProtocol") -> float:
        """Until when it is asked again while the service is busy."""
        return protocol.reach.give_up_at(self.asked_at)

    def too_busy(self, now: float) -> Overloaded:
        """What to say of it when it was told BUSY for as long as its caller waits."""
        tried_s = now - self.asked_at
        tried = f"; asked {self.busy_times} times in {tried_s:.1f} s" if self.busy_times > 1 else ""
        return Overloaded(f"{self.busy}{tried}", retry_after_s=self.busy.retry_after_s)

    def on_unreachable(self, protocol: "SessionProtocol", why: Unavailable) -> None:
        """The service was not reached in time, or had no time."""
        self.fail(self.doubted(why))

    def doubted(self, why: Unavailable) -> Unavailable | OutcomeUnknown:
        """What to say of a request that the service has not taken in time, as far as is known."""
        if self.stage == UNSENT:
            return why
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

    def unsend(self, session: Session) -> None:
        if self.repeated:
            # It may have been taken the first time: it is to be asked under this id, which is not acknowledged.
            session.keep(self.id)
        else:
            self.forget()

    def ask_again(self, protocol: "SessionProtocol") -> None:
        if not self.id:
            protocol.submit(self)
            return
        stage = self.stage
        protocol.pipeline.send(self, protocol.session, protocol.now)
        if stage == QUEUED:
            # It is found among those that wait: an answer may be pushed before this is replied to.
            self.stage = QUEUED

    def on_rested(self, protocol: "SessionProtocol") -> None:
        super().on_rested(protocol)
        if self.stage == DONE and self.id not in protocol.session.cancels:
            # Answered by a push meanwhile, or given up.
            protocol.session.let_go(self.id)

    def forget(self) -> None:
        """Let it be as if never sent: the session that knew its id is over."""
        self.id = 0
        self.repeated = False
        self.stage = UNSENT
