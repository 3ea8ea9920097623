"""The session protocol: replies, connection events and `now` in; bytes, orders and kept promises out. Its laws:

1.  *It is fed.* It has no clock, no socket and no dice: what it knows of them it was told.
2.  *One session, one connection, one heart.* Sessions outlive connections: a lost connection is replaced, the
    session taken up again, and one keep-alive every third of the ttl serves all holds.
3.  *The client lets go first* (G7): no hold is trusted beyond what `trust` allows; what was lost stays lost.
4.  *Every request ends* (G9): granted, refused, timed out, lost, unavailable or outcome unknown; within the
    connect timeout when the service cannot be reached.
5.  *A request is repeated under its own id*, in the order of ids, after withdrawals, until it is answered; the
    server acts on it once. An answer that says "elsewhere" or "unknown" is none.
6.  *Nothing is left behind.* An acquire that nobody waits for is withdrawn at whatever moment it was left; a hold
    that was lost for want of trust is given back if the session turns out to live; one whose own time is over,
    before the next acquire.
7.  *A connection that may carry the session is not closed until another does*: the server would count the grace.
    It is parked. One that has to be closed all the same costs trust.
8.  *A session dies whole*: its holds are lost, its queued acquires fail; what was not answered is asked again in
    the next session, which is opened by itself.
9.  *Everything has a bound*: so many requests on the wire, the others wait their turn.

The shell calls `on_…` for what happened, the verbs for what it wants, and after each of them sends what is in the
pipeline's `outbox`, carries out the `orders` of `reach`, and sets its timer to `wake_at`.

Where each law lives: `trust` (3), `requests` (4, 6), `pipeline` (5, 9), `reach` (7), `session` (8).
"""

from collections.abc import Callable
from math import inf
from typing import Any

from hiredis import ProtocolError, PushNotification, Reader, ReplyError

from fencehold.client.endpoints import Rotation
from fencehold.client.housekeeping import Cancel, Close, Hello, KeepAlive, Opening, Ready, Settle
from fencehold.client.orders import Sweep
from fencehold.client.pipeline import WINDOW, Pipeline
from fencehold.client.reach import Phase, Reach
from fencehold.client.requests import (
    DONE,
    QUEUED,
    UNSENT,
    Acquire,
    Expected,
    Extend,
    Promise,
    Read,
    Release,
    Request,
)
from fencehold.client.session import Session
from fencehold.client.settings import Settings
from fencehold.client.terms import Terms
from fencehold.client.trust import Grant
from fencehold.client.wire import ELSEWHERE, command, error, split
from fencehold.errors import SessionExpired, UsageError

SETTLE_AT = 64
"""Pushed answers that are settled in one command."""
LATE_S = 1.0
"""How much later than its timeout a queued acquire gives up by itself, should the server not say so."""

_NOTHING = object()


class SessionProtocol:
    """One client's side of the conversation."""

    def __init__(self, settings: Settings, rotation: Rotation) -> None:
        self.settings = settings
        self.session = Session(settings.ttl, settings.grace)
        self.pipeline = Pipeline()
        self.reach = Reach(rotation, settings.connect_timeout)
        self.attached = False
        """Whether a connection carries the session, which every request asks."""
        self.wake_at = inf
        """When `on_timer` is to be called."""
        self.on_event: Callable[[dict[bytes, Any]], None] | None = None
        """Told of pushed events."""
        self.subscriptions: Callable[[], list[bytes]] = list
        """What to ask for again on each new connection."""
        self.unusable = ""
        """Why nothing can be asked any more; empty while it can."""
        self.now = 0.0
        self._reader = Reader(notEnoughData=_NOTHING)
        self._waits: list[tuple[float, Acquire]] = []
        self._beat_at = self._close_by = inf
        self._beating = False
        self._closers: list[Promise] = []
        """Who waits for the client to be closed."""

    # What the application wants.

    def ready(self, promise: Promise, now: float) -> None:
        """Ask for a session to be open; connects if need be."""
        self.now = now
        if self.attached:
            promise.set_result(None)
        else:
            self.submit(Ready(promise, now))

    def acquire(self, terms: Terms, owner: bytes, promise: Promise, now: float) -> Acquire:
        """Ask for names. Keep what is returned: it is what `abandon` takes."""
        self.now = now
        session = self.session
        if session.overdue or (session.ends and session.ends[0][0] <= now):
            self._give_back_overdue()
        request = Acquire(terms, owner, promise, now)
        self.submit(request)
        return request

    def abandon(self, request: Acquire, now: float) -> None:
        """Nobody waits for this acquire any more: nothing may stay held or queued because of it."""
        self.now = now
        if request.stage == DONE:
            if request.grant is not None and not request.grant.ending:
                self.release(request.grant, None, now)
            return
        if request.stage != UNSENT:
            self.withdraw(request)
        request.stage = DONE

    def release(self, grant: Grant, promise: Promise | None, now: float) -> None:
        """Give a grant back. From here on it is not trusted, whatever the answer."""
        self.now = now
        self.forget(grant)
        self.submit(Release(grant, promise, now))

    def forget(self, grant: Grant) -> None:
        """Trust a grant no longer, and leave it to run out at the server."""
        grant.ending = "released"
        grant.on_lost = None
        self.session.holds.pop(grant.fence, None)

    def extend(self, grant: Grant, ttl_ms: int, promise: Promise, now: float) -> None:
        """Let a grant end `ttl_ms` from now; 0: with its session."""
        self.now = now
        self.submit(Extend(grant, ttl_ms, promise, now))

    def read(self, words: bytes, promise: Promise | None, now: float) -> None:
        """Send a command that may be sent twice."""
        self.now = now
        self.submit(Read(words, promise, now))

    def close(self, promise: Promise, now: float) -> None:
        """End the session cleanly, if the service can be reached in time, and then the connection."""
        self.now = now
        if self.unusable:
            promise.set_result(None)
            return
        self._closers.append(promise)
        if not self.session.id:
            self.on_closed()
        elif len(self._closers) == 1:
            # The server lets go when it hears of this, and the answer comes later: trust ends with the asking.
            self.session.trust.on_over()
            self.session.lose_all("the client was closed")
            self._close_by = now + self.settings.connect_timeout
            self.wake_by(self._close_by)
            self.submit(Close(None, now))

    def submit(self, request: Request) -> None:
        """Send a request, or let it wait for its turn."""
        pipeline = self.pipeline
        if self.attached and not pipeline.unsent and len(pipeline.expected) < WINDOW:
            pipeline.send(request, self.session, self.now)
            return
        if self.unusable:
            raise UsageError(self.unusable)
        pipeline.unsent.append(request)
        if not self.attached:
            self.wake_by(self.reach.give_up_at(request.asked_at))
            if self.reach.phase is Phase.IDLE:
                self._connect()

    # What happened to the connection.

    def on_connected(self, now: float) -> None:
        """The connection ordered last is made."""
        self.now = now
        self.reach.on_connected()
        self._expect(Hello(), self.settings.hello())
        self._open()

    def on_disconnected(self, now: float) -> None:
        """The connection ordered last could not be made, or is gone, and not by our doing."""
        self.now = now
        self._detach()
        self._retry()

    def on_connection_closed(self, now: float) -> None:
        """A parked connection had to be closed before the session was taken up on another."""
        self.session.trust.on_closed(now)
        self.wake_by(self.session.next_end())

    def on_data(self, data: bytes, now: float) -> None:
        """Bytes came in over the connection ordered last."""
        self.now = self.pipeline.heard_at = now
        if now >= self.session.trust.end:
            self._distrust()
        reader = self._reader
        reader.feed(data)
        messages = 0
        try:
            while (reply := reader.gets()) is not _NOTHING:
                messages += 1
                self._on_message(reply)
                if self._reader is not reader:
                    return
        except ProtocolError:
            self._give_up(park=True)
        self.pipeline.is_lone = messages == 1 and not self.pipeline.expected
        if self.pipeline.unsent and self.attached:
            self.pipeline.pump(self.session, now)

    def on_timer(self, now: float) -> None:
        """It is `wake_at`, or later."""
        self.now = now
        if now >= self.session.trust.end:
            self._distrust()
        self._lose_due()
        self._end_waits()
        if self.attached:
            self._beat()
        else:
            self._reach()
        if now >= self._close_by:
            self.on_closed()
        self.wake_at = self._next_deadline()

    def on_forked(self) -> None:
        """This is a child process: nothing here is its own, and nothing is said to the server."""
        self.unusable = "this client was made before a fork: the child makes a client of its own"
        self.reach.rest(Phase.CLOSED)
        self.attached = False
        self.session.trust.on_over()
        for grant in self.session.holds.values():
            # Whoever is to be told of losses lives in the parent.
            grant.on_lost = None
        self.session.lose_all("it is the parent's: a child process inherits no hold")

    # What replies mean; called by what was expected.

    def on_attached(self, reply: dict[bytes, Any], sent_at: float) -> None:
        """The session is carried by this connection: repeat what was not answered, then go on."""
        session = self.session
        session.on_opened(reply, sent_at)
        self.reach.on_attached()
        self.attached = True
        self._beat_at = sent_at + session.trust.ttl / 3
        self._beating = False
        for request_id in session.cancels:
            self._cancel(request_id)
        self.pipeline.repeat(session, self.now)
        for words in self.subscriptions():
            self._expect(Expected(), words)
        self.pipeline.pump(session, self.now)
        self.wake_by(min(self._beat_at, self.now + self._patience() / 2))

    def on_refused(self, code: str, detail: str) -> None:
        """The greeting or the session was refused: trying again will not help, so nobody is kept waiting."""
        self._drop(park=False)
        self.reach.rest(Phase.IDLE)
        for request in self.pipeline.take_all(self.session):
            request.fail(error(code, detail))

    def on_kept_alive(self, sent_at: float, at_ms: int) -> None:
        """A keep-alive was answered."""
        self._beating = False
        self.session.trust.on_answer(sent_at, at_ms)

    def on_queued(self, request: Acquire) -> None:
        """The answer to an acquire will be pushed."""
        self.session.waiting[request.id] = request
        timeout = request.terms.timeout
        if timeout is not None and not request.repeated:
            late_at = request.asked_at + timeout + LATE_S
            self._waits.append((late_at, request))
            self.wake_by(late_at)

    def on_closed(self) -> None:
        """The client is closed: nothing is held, nothing is wanted."""
        self.unusable = "the client is closed"
        self._drop(park=False)
        self.reach.rest(Phase.CLOSED)
        self.reach.orders.append(Sweep())
        self._close_by = inf
        self.session.trust.on_over()
        self.session.lose_all("the client was closed")
        for request in self.pipeline.take_all(self.session):
            request.fail(SessionExpired("the client was closed"))
        closers, self._closers = self._closers, []
        for promise in closers:
            if not promise.done():
                promise.set_result(None)

    def withdraw(self, request: Acquire) -> None:
        """Cancel an acquire that was sent, now and until the server has said that it is."""
        session = self.session
        session.waiting.pop(request.id, None)
        session.cancels[request.id] = None
        if self.attached:
            self._cancel(request.id)

    def lose(self, grant: Grant, reason: str) -> None:
        """The server has ended a hold. What is left of it, if it had several names, is given back."""
        if self.session.holds.pop(grant.fence, None) is not None:
            grant.lose(reason)
            if len(grant.terms.names) > 1:
                self.submit(Release(grant, None, self.now))

    def settle(self, request_id: int) -> None:
        """A pushed answer has arrived, and need not be remembered."""
        unsettled = self.session.unsettled
        unsettled.append(request_id)
        if len(unsettled) >= SETTLE_AT and self.attached:
            self._settle()

    def wake_by(self, instant: float) -> None:
        """Something is due then."""
        self.wake_at = min(self.wake_at, instant)

    # Messages.

    def _on_message(self, reply: Any) -> None:
        kind = type(reply)
        if kind is PushNotification:
            self._on_push(reply)
            return
        if not self.pipeline.expected:
            # A last word: the server is ending this connection, and says why.
            self._give_up(park=True)
            return
        expected = self.pipeline.expected.popleft()
        if kind is ReplyError:
            self._on_error(expected, str(reply))
            return
        if expected.numbered:
            self.session.acknowledge(expected.id, expected.number)
        expected.on_reply(self, reply)

    def _on_error(self, expected: Expected, message: str) -> None:
        code, detail = split(message)
        if code in ELSEWHERE:
            self.pipeline.expected.appendleft(expected)
            if code == "NOTLEADER":
                self.reach.on_leader(detail.rpartition(" ")[2])
            # One that refused to take the session up certainly does not carry it.
            self._give_up(park=self.attached or code == "UNKNOWN")
        elif code == "NOSESSION":
            self.pipeline.expected.appendleft(expected)
            self._on_session_over("expired")
        else:
            if expected.numbered:
                self.session.acknowledge(expected.id, expected.number)
            expected.on_error(self, code, detail)

    def _on_push(self, push: list[Any]) -> None:
        kind = push[0]
        if kind == b"grant":
            self._on_answer(push[1], push[2])
        elif kind in (b"timeout", b"cancelled"):
            self._on_answer(push[1], None)
        elif kind == b"event" and self.on_event is not None:
            self.on_event(push[1])
        elif kind == b"ended" and push[1] == self.session.id:
            self._on_session_over(push[2].decode())
        elif kind == b"lost":
            self._on_lost(push[1].decode(), push[2], push[3].decode())

    def _on_lost(self, name: str, fence: int, how: str) -> None:
        self.session.overdue.pop(fence, None)
        grant = self.session.holds.get(fence)
        if grant is not None:
            self.lose(grant, f"{name!r} was {how}")

    def _on_answer(self, request_id: int, reply: dict[bytes, Any] | None) -> None:
        # Its own reply may still be behind that of an earlier command: a push waits for nobody.
        request = self.session.waiting.pop(request_id, None) or self.pipeline.find_acquire(request_id)
        if request is None:
            # Withdrawn: settled when the withdrawal is answered, lest the server forget what it has to undo.
            return
        self.settle(request_id)
        if reply is None:
            request.finish(None)
        else:
            request.on_granted(self, reply)

    def _on_session_over(self, reason: str) -> None:
        over = self.session
        greeting = self.reach.phase is Phase.GREETING
        pending = self.pipeline.take_sent(over)
        self.session = Session(self.settings.ttl, self.settings.grace)
        over.trust.on_over()
        over.lose_all(f"the session was {reason}")
        if self._closers:
            self.on_closed()
            for request in pending:
                request.fail(SessionExpired("the client was closed"))
            return
        if greeting:
            self._open()
        else:
            # A connection carries one session in its life.
            self._drop(park=False)
            self._connect()
        failure = SessionExpired(f"the session was {reason}: nothing it waited for will be granted")
        for request in pending:
            request.on_session_over(self, failure)

    # Housekeeping.

    def _expect(self, entry: Expected, words: bytes) -> None:
        self.pipeline.expect(entry, words, self.now)

    def _cancel(self, request_id: int) -> None:
        self._expect(Cancel(request_id), command("LOCK.CANCEL", request_id))

    def _settle(self) -> None:
        ids = self.session.unsettled
        self.session.unsettled = []
        self._expect(Settle(ids), command("LOCK.SETTLE", *ids))

    def _open(self) -> None:
        session = self.session
        if session.id:
            self._expect(Opening(self.now), command("SESSION.RESUME", session.id, session.secret))
        else:
            self._expect(Opening(self.now), self.settings.opening())

    # Connecting.

    def _connect(self) -> None:
        self.reach.connect(self.now)
        self.wake_by(self.reach.next_deadline())

    def _retry(self) -> None:
        self.reach.retry(self.now)
        self.wake_by(self.reach.next_deadline())

    def _give_up(self, *, park: bool) -> None:
        """Turn to another connection; park this one if it may carry the session still."""
        self._drop(park=park)
        self._retry()

    def _drop(self, *, park: bool) -> None:
        self.reach.drop(park=park)
        self._detach()

    def _detach(self) -> None:
        if self.attached:
            self.attached = False
            self.session.trust.attached = False
            self.reach.down_since = self.now
            self.wake_by(self.reach.give_up_at(self.now))
        self._reader = Reader(notEnoughData=_NOTHING)
        self.pipeline.interrupt(self)

    # Time.

    def _distrust(self) -> None:
        """Trust has ended. Should the session live on at the server, what it holds there is given back."""
        for grant in self.session.lose_all("no keep-alive was answered in time"):
            self.submit(Release(grant, None, self.now))

    def _give_back_overdue(self) -> None:
        """Release what has run out here, before the server counts it against its owner who asks again.

        Not sooner: if nobody asks, it is to be seen that it ran out.
        """
        self._lose_due()
        for grant in self.session.take_overdue():
            self.submit(Release(grant, None, self.now))

    def _lose_due(self) -> None:
        """Lose what has run out here, and let it end at the server where it might be held for longer."""
        for grant in self.session.lose_due(self.now):
            # One with a delay is to run out: after a release none would be kept.
            is_delayed = grant.terms.is_delayed
            self.submit(Extend(grant, 1, None, self.now) if is_delayed else Release(grant, None, self.now))

    def _end_waits(self) -> None:
        due = [request for late_at, request in self._waits if late_at <= self.now and request.stage == QUEUED]
        self._waits = [wait for wait in self._waits if wait[0] > self.now and wait[1].stage != DONE]
        for request in due:
            self.withdraw(request)
            request.finish(None)

    def _beat(self) -> None:
        if self._silence_at() <= self.now:
            self.reach.on_silent()
            self._give_up(park=True)
        elif self.now >= self._beat_at:
            self._beat_at = self.now + self.session.trust.ttl / 3
            if not self._beating:
                self._beating = True
                self._expect(KeepAlive(self.now), b"*1\r\n$17\r\nSESSION.KEEPALIVE\r\n")
            if self.session.unsettled:
                self._settle()

    def _silence_at(self) -> float:
        """When to turn away from the connection, or to look again should something be asked meanwhile."""
        since = self.pipeline.silent_since()
        # Half of it: what is asked the moment after is looked at before its time is over.
        return self.now + self._patience() / 2 if since is None else since + self._patience()

    def _patience(self) -> float:
        """How long a connection may be silent when it has something to answer.

        Where there are other nodes it is so short that they can be tried before a request gives up.
        """
        return min(self.reach.turn(), self.session.trust.ttl / 3)

    def _reach(self) -> None:
        if self.reach.has_hung(self.now):
            self.reach.on_silent()
            self._give_up(park=self.reach.phase is Phase.GREETING)
        if self.reach.is_due(self.now):
            self._connect()
        for request, give_up_at in self._awaited():
            if give_up_at <= self.now:
                request.on_unreachable(self)

    def _awaited(self) -> list[tuple[Request, float]]:
        """Requests that somebody waits for while the service is not reached, and when they have waited enough."""
        sent = [*self.pipeline.interrupted, *self.session.waiting.values()]
        asked = [(request, 0.0) for request in sent]
        asked += [(request, request.asked_at) for request in self.pipeline.unsent]
        return [(request, self.reach.give_up_at(at)) for request, at in asked if request.is_awaited()]

    def _next_deadline(self) -> float:
        deadlines = [self.session.next_end(), self._close_by, *(late_at for late_at, _ in self._waits)]
        if self.attached:
            return min(*deadlines, self._beat_at, self._silence_at())
        deadlines += [give_up_at for _, give_up_at in self._awaited()]
        return min(*deadlines, self.reach.next_deadline())
