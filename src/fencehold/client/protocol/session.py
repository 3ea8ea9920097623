"""The session protocol: replies, connection events and `now` in; bytes, orders and resolved promises out. Laws:

1.  *It is fed.* It has no clock, no socket and no randomness: they are passed in.
2.  *One session, one connection, one keep-alive.* Sessions outlive connections: a lost connection is replaced, the
    session resumed, and one keep-alive every third of the ttl serves all holds.
3.  *The client's trust ends first* (G7): no hold is trusted beyond what `trust` allows; what was lost stays lost.
4.  *Every request ends* (G9): granted, refused, timed out, lost, unavailable or outcome unknown; within the
    connect timeout when the service cannot be reached.
5.  *A request is repeated under its own id*, in the order of ids, after withdrawals, until it is answered; the
    server acts on it once. A reply that says "elsewhere" or "unknown" is no answer. Nor is BUSY: the request
    rests, and is sent again for as long as its caller waits.
6.  *Nothing is left behind.* An acquire that no caller waits for is withdrawn in whatever stage it is; a hold that
    was lost for want of trust is released if the session turns out to live; one whose own ttl ran out, before the
    next acquire.
7.  *A connection that may carry the session is not closed until another does*: the server would count the grace.
    It is parked. One that has to be closed anyway costs trust.
8.  *A session dies whole*: its holds are lost, its queued acquires fail; what was not answered is sent again in
    the next session, which is opened automatically.
9.  *Everything has a bound*: so many requests in flight, the others wait their turn.

The shell calls `on_…` for what happened, `acquire`, `release` … for its callers, and after each sends what is in
the pipeline's `outbox`, carries out the `orders` of the connection, and sets its timer to `wake_at`.

Of this object, `requests` are those of the application (laws 4, 5, 6), `session_requests` those of the session
itself (2, 6), `connection` is which node is used, and what is in flight (5, 7, 9), `ledger` what one session holds
and waits for (5, 8), `single_request` what a caller may do by itself. They are parts of it, and access its
internals; nothing else does.
"""

from collections.abc import Callable
from math import inf
from typing import Any

from hiredis import ProtocolError, PushNotification, Reader, ReplyError

from fencehold.client.endpoints import Rotation
from fencehold.client.protocol.connection import (
    HUNG_UP,
    LOST,
    NO_PROTOCOL,
    WINDOW,
    Backoff,
    NodeConnection,
    Phase,
    Pipeline,
    Settings,
    Sweep,
)
from fencehold.client.protocol.ledger import Session
from fencehold.client.protocol.requests import (
    DONE,
    QUEUED,
    SENT,
    UNSENT,
    Acquire,
    Close,
    Expected,
    Extend,
    Promise,
    Read,
    Ready,
    Release,
    Request,
)
from fencehold.client.protocol.session_requests import (
    Cancel,
    HeldQuestion,
    Hello,
    KeepAlive,
    Opening,
    Settle,
    Subscribe,
)
from fencehold.drivers.resp.wire import ELSEWHERE, command, error, overloaded, refused, split
from fencehold.errors import Overloaded, SessionExpired, UsageError
from fencehold.locks.loss_reasons import CLOSED, UNANSWERED, LossKind, LossReason
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant
from fencehold.locks.views import party

KEEP_ALIVE_S_MIN = 1.0
"""At most one keep-alive in that time, however short the ttl of a waiting acquire."""
HASTE = 1 / 6
"""A keep-alive that is due so soon, as a part of the ttl, is sent with another. That is half of the time between
two: of any two sessions one is that close behind the other, so all come together."""
LATE_S = 1.0
"""How much later than its timeout a queued acquire gives up by itself, if the server does not end it."""
SETTLE_AT = 64
"""Pushed answers that are settled in one command."""
HELD_MAX = 128
"""Names in one query for holds that have ended."""
_LOSSES = {"expired": ("expired", LossKind.EXPIRED), "broken": ("force-released", LossKind.BROKEN)}
"""How a single hold can end, by the server's word: a text for people, and its kind."""
_ENDED_UNHEARD = "was released or force-released while the connection was down"
NOTHING = object()
"""What a reader returns when it has no whole message."""


class SessionProtocol:
    """One client's side of the conversation."""

    def __init__(self, settings: Settings, rotation: Rotation) -> None:
        self.settings = settings
        self.session = Session(settings.ttl, settings.grace)
        self.pipeline = Pipeline()
        self._backoff = Backoff(rotation.draw)
        self.connection = NodeConnection(rotation, settings.connect_timeout)
        self.attached = False
        """Whether a connection carries the session; every request checks it."""
        self.wake_at = inf
        """When `on_timer` is to be called."""
        self.on_event: Callable[[dict[bytes, Any]], None] | None = None
        """Called with pushed events."""
        self.on_map: Callable[[], None] | None = None
        """Called when slots move to other shards."""
        self.on_again: Callable[[tuple[int, int]], None] | None = None
        """Called with the place after which events follow from now on."""
        self.on_busy: Callable[[Overloaded, float], None] | None = None
        """Called when the service is busy, with the seconds for which the request will be retried."""
        self.busy_s_max = inf
        """How long an acquire is retried while the service is busy, if its own timeout is not shorter."""
        self.subscriptions: Callable[[], list[bytes]] = list
        """The subscriptions to repeat on each new connection."""
        self.on_behind: Callable[[], list[bytes]] = list
        """Called when the service has not reached the watched place; returns what to subscribe to instead."""
        self.on_anew: Callable[[tuple[int, int]], None] = _ignore
        """Called with the place after which events follow, in a journal that was made anew."""
        self.unusable = ""
        """Why it accepts no more requests; empty while it does."""
        self.shards = 0
        """How many the service has, by the last greeting; 0: there was none yet."""
        self.cell_map = 0
        """The version of its map of cells; 0: it is no cell."""
        self._now = 0.0
        self._reader = _new_reader()
        self._keep_alive_at = self._close_by = inf
        """When the next keep-alive is due; and by when the client is closed in any case."""
        self._is_keeping_alive = False
        """Whether a keep-alive is in flight."""
        self._keep_alives_busy = 0
        """How often in a row a keep-alive got BUSY."""
        self._settle_at = 0.0
        """Until then nothing is settled but with a keep-alive."""
        self._waits: list[tuple[float, Acquire]] = []
        """When queued acquires give up by themselves; some are answered before."""
        self._closers: list[Promise] = []
        """The promises of callers that wait for the client to be closed."""

    # Calls of the application.

    def ready(self, promise: Promise, now: float) -> None:
        """Wait for a session to be open; connects if need be."""
        self._now = now
        if self.attached:
            promise.set_result(None)
        else:
            self._submit(Ready(promise, now))

    def acquire(self, terms: Terms, owner: bytes, promise: Promise, now: float) -> Acquire:
        """Acquire names. Keep what is returned: it is what `withdraw` takes."""
        self._now = now
        self._make_way()
        request = Acquire(terms, owner, promise, now)
        self._submit(request)
        return request

    def withdraw(self, request: Acquire, now: float) -> None:
        """No caller waits for this acquire any more: nothing may stay held or queued because of it."""
        self._now = now
        if request.stage == DONE:
            if request.grant is not None and not request.grant.ending:
                self._undo(request, request.grant)
            return
        if request.stage != UNSENT:
            self._withdraw_sent(request)
        request.stage = DONE

    def release(self, grant: Grant, promise: Promise | None, now: float) -> None:
        """Release a grant. From now on it is not trusted, whatever the answer."""
        self._now = now
        self._forget(grant)
        self._submit(Release(grant, promise, now))

    def _undo(self, request: Acquire, grant: Grant) -> None:
        """Release a grant that was never handed to a caller: nothing was done under it."""
        if request.terms.at_least:
            # A release would keep the names for their least time; what is withdrawn was never granted.
            self._forget(grant)
            self._withdraw_sent(request)
        else:
            self.release(grant, None, self._now)

    def _forget(self, grant: Grant) -> None:
        """Trust a grant no longer."""
        grant.ending = "released"
        grant.on_lost = None
        self.session.holds.pop(grant.fence, None)

    def extend(self, grant: Grant, ttl_ms: int, promise: Promise, now: float) -> None:
        """Let a grant end `ttl_ms` from now; 0: with its session."""
        self._now = now
        self._submit(Extend(grant, ttl_ms, promise, now))
        self._watch_end(grant)

    def read(self, words: bytes, promise: Promise | None, now: float) -> None:
        """Send an idempotent command."""
        self._now = now
        self._submit(Read(words, promise, now))

    def close(self, promise: Promise, now: float) -> None:
        """End the session cleanly, if the service can be reached in time, and then the connection."""
        self._now = now
        if self.unusable:
            promise.set_result(None)
            return
        self._closers.append(promise)
        if not self.session.id:
            self._on_closed()
        elif len(self._closers) == 1:
            # The server releases the holds when it receives this, and replies later: trust ends with the request.
            self.session.trust.on_over()
            self.session.lose_all(CLOSED)
            self._close_by = now + self.settings.connect_timeout
            self._wake_by(self._close_by)
            self._submit(Close(None, now))

    def _submit(self, request: Request) -> None:
        """Send a request, or queue it here for its turn."""
        pipeline = self.pipeline
        if self.attached and not pipeline.unsent and len(pipeline.expected) < WINDOW and not self.session.kept:
            pipeline.send(request, self.session, self._now)
            return
        if self.unusable:
            raise UsageError(self.unusable)
        pipeline.unsent.append(request)
        if not self.attached:
            self._wake_by(self.connection.give_up_at(request.asked_at))
            if self.connection.phase is Phase.IDLE:
                self._connect()
        else:
            pipeline.pump(self.session, self._now)

    def _rest(self, entry: Expected, busy: Overloaded, times: int, patient_until: float = inf) -> None:
        """Something got BUSY for the `times`-th time: handle it when it has rested, or its caller gives up."""
        now = self._now
        if self.on_busy is not None:
            self.on_busy(busy, patient_until - now)
        until = min(now + self._backoff.rest_of(busy, times), patient_until)
        if until <= now:
            entry.on_rested(self)
        else:
            self._backoff.rest(entry, until)
            self._wake_by(until)

    def _take_all(self) -> list[Request]:
        """All that is not answered: it will not be."""
        return self.pipeline.take_all(self.session) + self._backoff.take_all()

    # Events of the connection.

    def on_connected(self, now: float) -> None:
        """The connection ordered last is made."""
        self._now = now
        self.connection.on_connected()
        self._greet()

    def on_disconnected(self, now: float, why: str = "") -> None:
        """The connection ordered last could not be made, for this reason; or it was lost."""
        self._now = now
        self.connection.on_trouble(why or (HUNG_UP if self.connection.phase is Phase.GREETING else LOST))
        self._detach()
        self._retry()

    def on_connection_closed(self, now: float) -> None:
        """A parked connection had to be closed before the session was resumed on another."""
        self.session.trust.on_closed(now)
        self._wake_by(self.session.next_end())

    def on_data(self, data: bytes, now: float) -> None:
        """Bytes came in over the connection ordered last."""
        self._now = self.pipeline.heard_at = now
        if now >= self.session.trust.end:
            self._distrust()
        if self.session.ends and self.session.ends[0][0] <= now:
            # Before any message is read: what ran out while this process was stopped stays lost, extended or not.
            self._lose_due()
        reader = self._reader
        reader.feed(data)
        messages = 0
        try:
            while (reply := reader.gets()) is not NOTHING:
                messages += 1
                self._on_message(reply)
                if self._reader is not reader:
                    return
        except ProtocolError:
            self.connection.on_trouble(NO_PROTOCOL)
            self._give_up(park=True)
        self.pipeline.is_lone = messages == 1 and not self.pipeline.expected
        if self.pipeline.unsent and self.attached:
            self.pipeline.pump(self.session, now)

    def on_timer(self, now: float) -> None:
        """It is `wake_at`, or later."""
        self._now = now
        if now >= self.session.trust.end:
            self._distrust()
        self._do_due()
        self.wake_at = self._next_deadline()

    def is_keep_alive_due(self, now: float) -> bool:
        """Whether the next keep-alive is to be sent now."""
        return self.attached and now >= self._keep_alive_at

    def hasten(self, now: float) -> bool:
        """Let the next keep-alive be due now, if it would be soon; returns whether. Others are being sent."""
        if not self.attached or self._keep_alive_at - now > HASTE * self.session.trust.ttl:
            return False
        self._keep_alive_at = min(self._keep_alive_at, now)
        return True

    def on_forked(self) -> None:
        """This is a child process: nothing here is its own, and nothing is sent to the server."""
        self.unusable = "this client was created before a fork: connect again in the child process"
        self.connection.rest(Phase.CLOSED)
        self.attached = False
        self.session.trust.on_over()
        for grant in self.session.holds.values():
            # The callbacks belong to the parent.
            grant.on_lost = None
        self.session.lose_all("it is the parent's: a child process inherits no hold")

    def quiet_until(self) -> float:
        """Until when it only sends keep-alives; -inf if it has something to do now. For virtual time."""
        if not self.attached or self.pipeline.expected or self.pipeline.unsent or self._closers:
            return -inf
        return min([end for end, _ in self.session.ends] + [late_at for late_at, _ in self._waits], default=inf)

    def leap(self, seconds: float) -> None:
        """Assume that the last keep-alive was sent so many seconds later. For virtual time."""
        self.session.trust.leap(seconds)
        self._keep_alive_at += seconds

    # Outcomes of replies; called by the expected entries.

    def _on_attached(self, reply: dict[bytes, Any], sent_at: float) -> None:
        """The session is carried by this connection: repeat what was not answered, then continue."""
        session = self.session
        session.on_opened(reply, sent_at)
        self.connection.on_attached()
        self.attached = True
        for held in _questions(session):
            self._expect(held, held.encode())
        for request_id in session.cancels:
            self._cancel(Cancel(request_id))
        self.pipeline.repeat(session, self._now)
        for words in self.subscriptions():
            self._expect(Subscribe(words), words)
        self.pipeline.pump(session, self._now)
        self._wake_by(self._backoff.next_at())
        self._keep_alive_at = sent_at + session.trust.ttl / 3
        self._is_keeping_alive = False
        self._wake_by(min(self._keep_alive_at, self._now + self._patience() / 2))

    def _on_refused(self, code: str, detail: str) -> None:
        """The greeting or the session was refused: a retry will not help, so all pending requests fail.

        The session may live on at the server, and be resumed at the next request: another node may know a newer
        policy. So what was sent in it is withdrawn, or released, then.
        """
        node = self.connection.node
        self._drop(park=False)
        self.connection.rest(Phase.IDLE)
        for request in self._take_all():
            request.on_refused(self, refused(node, code, detail))

    def _on_greeting_busy(self, busy: Overloaded) -> None:
        """The node is too busy for the greeting: it, or another, is tried later."""
        self.connection.on_busy(busy)
        self._drop(park=False)
        self._retry(self._rest_of_opening(busy))

    def _on_opening_busy(self, busy: Overloaded) -> None:
        """The node is too busy for a session: the opening is repeated on this connection."""
        self.connection.on_busy(busy)
        self.connection.open_later(self._now, self._rest_of_opening(busy))
        self._wake_by(self.connection.next_deadline())

    def _rest_of_opening(self, busy: Overloaded) -> float:
        if self.on_busy is not None:
            self.on_busy(busy, self.settings.connect_timeout)
        return self._backoff.rest_of(busy, self.connection.busy_times)

    def _on_kept_alive(self, sent_at: float, reply: dict[bytes, Any]) -> None:
        """A keep-alive was answered."""
        self._is_keeping_alive = False
        self._keep_alives_busy = 0
        # Renewals wait for the next entry: when it came says more than when it was entered, if the server says it.
        self.session.trust.on_renewed(sent_at, reply.get(b"came_at", reply[b"at"]))

    def _on_not_kept_alive(self, busy: Overloaded) -> None:
        """A keep-alive got BUSY: the next one is due soon. Nothing is trusted for longer because of it."""
        self._is_keeping_alive = False
        self._keep_alives_busy += 1
        rest = self._backoff.rest_of(busy, self._keep_alives_busy)
        # However busy the service is: there must be time for some more before the session ends.
        self._keep_alive_at = min(self._keep_alive_at, self._now + min(rest, self.session.trust.ttl / 9))
        self._wake_by(self._keep_alive_at)

    def _on_not_settled(self, busy: Overloaded) -> None:
        """A settlement got BUSY."""
        self._settle_at = self._now + self._backoff.rest_of(busy, 1)

    def _on_queued(self, request: Acquire, reply: dict[bytes, Any]) -> None:
        """The answer to an acquire will be pushed."""
        self.session.waiting[request.id] = request
        if request.terms.ttl is not None and b"at" in reply:
            self.session.trust.on_answer(request.sent_at, reply[b"at"])
            self._keep_alive_sooner(request.terms.ttl)
        # The shell checks then whether it still waits.
        self._wake_by(request.asked_at + self.settings.long_wait)
        timeout = request.terms.timeout
        if timeout is not None and not request.repeated:
            late_at = request.asked_at + timeout + LATE_S
            self._waits.append((late_at, request))
            self._wake_by(late_at)

    def _on_closed(self) -> None:
        """The client is closed: nothing is held, nothing is pending."""
        self.unusable = "the client is closed"
        self._drop(park=False)
        self.connection.rest(Phase.CLOSED)
        self.connection.orders.append(Sweep())
        self.session.trust.on_over()
        self.session.lose_all(CLOSED)
        for request in self._take_all():
            request.fail(SessionExpired("the client was closed"))
        self._close_by = inf
        closers, self._closers = self._closers, []
        for promise in closers:
            if not promise.done():
                promise.set_result(None)

    def _withdraw_sent(self, request: Acquire) -> None:
        """Cancel an acquire that was sent, now and until the server has confirmed it."""
        session = self.session
        session.waiting.pop(request.id, None)
        session.cancels[request.id] = request.grant
        if request.stage == SENT:
            # The server must not forget what it may have to undo, in case it is too busy to do so now.
            session.keep(request.id)
        if self.attached:
            self._cancel(Cancel(request.id))

    def _lose(self, grant: Grant, reason: str) -> None:
        """The server has ended a hold. If it had several names, the others are released."""
        if self.session.holds.pop(grant.fence, None) is not None:
            grant.lose(reason)
            if len(grant.terms.names) > 1:
                self._submit(Release(grant, None, self._now))

    def _watch_end(self, grant: Grant) -> None:
        """The end of a grant's own ttl was moved."""
        self.session.watch_end(grant)
        self._wake_by(grant.own_end)

    def _settle(self, request_id: int) -> None:
        """A pushed answer has arrived, and need not be remembered."""
        unsettled = self.session.unsettled
        unsettled.append(request_id)
        if len(unsettled) >= SETTLE_AT and self.attached and self._now >= self._settle_at:
            self._settle_all()

    def _settle_all(self) -> None:
        """Tell the server which pushed answers have arrived."""
        ids = self.session.unsettled
        self.session.unsettled = []
        self._expect(Settle(ids), command("LOCK.SETTLE", *ids))

    def _cancel(self, withdrawal: Cancel) -> None:
        """Send a withdrawal."""
        self._expect(withdrawal, command("LOCK.CANCEL", withdrawal.request))

    def _expect(self, entry: Expected, words: bytes) -> None:
        """Send a request of the session itself."""
        self.pipeline.expect(entry, words, self._now)

    def _wake_by(self, instant: float) -> None:
        """Something is due then."""
        self.wake_at = min(self.wake_at, instant)

    def _distrust(self) -> None:
        """Trust has ended. If the session lives on at the server, what it holds there is released."""
        for grant in self.session.lose_all(UNANSWERED):
            self._submit(Release(grant, None, self._now))

    # Messages from the server. Replies come in the order of the commands; a push may come at any time.

    def _on_message(self, reply: Any) -> None:
        """One message came in."""
        kind = type(reply)
        if kind is PushNotification:
            self._on_push(reply)
            return
        if not self.pipeline.expected:
            # A last message: the server is closing this connection, and says why.
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
            self.connection.on_trouble(f"it is not serving: {detail}")
            if code == "NOTLEADER":
                self.connection.on_leader(detail.rpartition(" ")[2])
            # One that refused to resume the session certainly does not carry it.
            self._give_up(park=self.attached or code == "UNKNOWN")
        elif code == "BUSY":
            expected.on_busy(self, overloaded(detail))
        elif code == "NOSESSION":
            self.pipeline.expected.appendleft(expected)
            self._end_session("expired")
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
        elif kind == b"refused":
            self._on_withheld(push[1], push[2].decode(), push[3].decode())
        elif kind == b"event" and self.on_event is not None:
            self.on_event(push[1])
        elif kind == b"map" and self.on_map is not None:
            self.on_map()
        elif kind == b"again" and self.on_again is not None:
            self.on_again((push[1], push[2]))
        elif kind == b"ended" and push[1] == self.session.id:
            self._end_session(push[2].decode())
        elif kind == b"lost":
            self._on_lost(push[2], _reason(push))

    def _on_lost(self, fence: int, reason: LossReason) -> None:
        self.session.overdue.pop(fence, None)
        grant = self.session.holds.get(fence)
        if grant is not None:
            self._lose(grant, reason)

    def _on_gone(self, fence: int) -> None:
        """A hold ended while no connection carried the session, so there was no notification."""
        grant = self.session.holds.get(fence)
        if grant is not None:
            names = ", ".join(map(repr, grant.terms.names))
            self._lose(grant, LossReason(f"{names} {_ENDED_UNHEARD}", LossKind.BROKEN))

    def _asked(self, request_id: int) -> Acquire | None:
        # Its own reply may still be behind that of an earlier command: a push may overtake it.
        return (
            self.session.waiting.pop(request_id, None)
            or self.pipeline.find_acquire(request_id)
            or self._backoff.find_acquire(request_id)
        )

    def _on_withheld(self, request_id: int, code: str, detail: str) -> None:
        """Its wait was ended by a change of the policy, or by a deadlock through several shards."""
        request = self._asked(request_id)
        if request is not None:
            self._settle(request_id)
            request.fail(error(code, detail))

    def _on_answer(self, request_id: int, reply: dict[bytes, Any] | None) -> None:
        request = self._asked(request_id)
        if request is None:
            # Withdrawn: settled when the withdrawal is answered, or the server would forget what it has to undo.
            return
        self._settle(request_id)
        if reply is None:
            request.finish(None)
        else:
            request.on_granted(self, reply)

    # Connections.

    def _connect(self) -> None:
        """Try the next node now."""
        self.connection.connect(self._now)
        self._wake_by(self.connection.next_deadline())

    def _retry(self, least_s: float = 0.0) -> None:
        """Try the next node after a pause, of at least so long."""
        self.connection.retry(self._now, least_s)
        self._wake_by(self.connection.next_deadline())

    def _give_up(self, *, park: bool) -> None:
        """Switch to another connection; park this one if it may still carry the session."""
        self._drop(park=park)
        self._retry()

    def _drop(self, *, park: bool) -> None:
        """Drop the connection."""
        self.connection.drop(park=park)
        self._detach()

    def _detach(self) -> None:
        """No connection carries the session."""
        if self.attached:
            self.attached = False
            self.session.trust.attached = False
            self.connection.down_since = self._now
            self._wake_by(self.connection.give_up_at(self._now))
        self._reader = _new_reader()
        self.pipeline.interrupt(self)
        self.pipeline.interrupted += self._backoff.interrupt()

    # Sessions.

    def _greet(self) -> None:
        """Send the greeting on a new connection."""
        self._expect(Hello(), self.settings.hello())
        self._open_session()

    def _open_session(self) -> None:
        """Open a session, or resume the one there is."""
        session = self.session
        if session.id:
            self._expect(Opening(self._now), command("SESSION.RESUME", session.id, session.secret))
        else:
            self._expect(Opening(self._now), self.settings.opening())

    def _end_session(self, reason: str) -> None:
        """The server has ended the session: continue in a new one, unless the client is being closed."""
        over = self.session
        greeting = self.connection.phase is Phase.GREETING
        pending = self.pipeline.take_sent(over) + self._backoff.take_bound()
        self.session = Session(self.settings.ttl, self.settings.grace)
        over.trust.on_over()
        over.lose_all(LossReason(f"the session was {reason}", LossKind.SESSION))
        if self._closers:
            self._on_closed()
            for request in pending:
                request.fail(SessionExpired("the client was closed"))
            return
        if greeting:
            self._open_session()
        else:
            # A connection carries one session in its life.
            self.connection.on_trouble(f"the session was {reason}")
            self._drop(park=False)
            self._connect()
        failure = SessionExpired(f"the session was {reason}: nothing it waited for will be granted")
        for request in pending:
            request.on_session_over(self, failure)

    # Timers.

    def _keep_alive_sooner(self, ttl: float) -> None:
        """An acquire with a ttl of its own waits."""
        self._keep_alive_at = min(self._keep_alive_at, self._now + max(ttl, KEEP_ALIVE_S_MIN))
        self._wake_by(self._keep_alive_at)

    def _do_due(self) -> None:
        """Do what is due now."""
        self._lose_due()
        self._end_waits()
        self._backoff.wake(self)
        if self.attached:
            self._keep_alive()
        else:
            self._try_nodes()
        if self._now >= self._close_by:
            self._on_closed()

    def _make_way(self) -> None:
        """Release what has run out here, before the server counts it against its owner that acquires again.

        Not sooner: without another acquire, the hold should be seen to expire.
        """
        session = self.session
        if not session.overdue and not (session.ends and session.ends[0][0] <= self._now):
            return
        self._lose_due()
        for grant in self.session.take_overdue():
            self._submit(Release(grant, None, self._now))

    def _next_deadline(self) -> float:
        """When something will be due, unless there is a message or a request before."""
        instants = [self.session.next_end(), self._close_by, self._backoff.next_at()]
        instants += [late_at for late_at, _ in self._waits]
        if self.attached:
            return min(*instants, self._keep_alive_at, self._silence_at())
        instants += [give_up_at for _, give_up_at in self._awaited()]
        return min(*instants, self.connection.next_deadline())

    def _lose_due(self) -> None:
        """Lose what has run out here, and end it at the server if it might be held for longer there."""
        now = self._now
        for grant in self.session.lose_due(now):
            # One with a delay has to expire: after a release there would be no delay.
            is_delayed = grant.terms.is_delayed
            self._submit(Extend(grant, 1, None, now) if is_delayed else Release(grant, None, now))

    def _end_waits(self) -> None:
        now, waits = self._now, self._waits
        due = [request for late_at, request in waits if late_at <= now and request.stage == QUEUED]
        self._waits = [wait for wait in waits if wait[0] > now and wait[1].stage != DONE]
        for request in due:
            self._withdraw_sent(request)
            request.finish(None)

    def _keep_alive(self) -> None:
        now = self._now
        if self._silence_at() <= now:
            self.connection.on_silent(now)
            self._give_up(park=True)
        elif now >= self._keep_alive_at:
            self._keep_alive_at = now + _pause(self.session)
            if not self._is_keeping_alive:
                self._is_keeping_alive = True
                self._expect(KeepAlive(now), b"*1\r\n$17\r\nSESSION.KEEPALIVE\r\n")
            if self.session.unsettled:
                self._settle_all()

    def _silence_at(self) -> float:
        """When to drop the connection, or to check again in case a request is made meanwhile."""
        since = self.pipeline.silent_since()
        patience = self._patience()
        # Half of it: a request made right after is checked before its time is over.
        return self._now + patience / 2 if since is None else since + patience

    def _patience(self) -> float:
        """How long a connection may be silent while a reply is pending.

        With other nodes it is so short that they can be tried before a request gives up.
        """
        return min(self.connection.turn(), self.session.trust.ttl / 3)

    def _try_nodes(self) -> None:
        now, connection = self._now, self.connection
        if connection.has_hung(now):
            connection.on_silent(now)
            self._give_up(park=connection.phase is Phase.GREETING)
        if connection.is_due(now):
            self._connect()
        if connection.is_to_open(now):
            self._open_session()
        for request, give_up_at in self._awaited():
            if give_up_at <= now:
                request.on_unreachable(self, connection.unavailable())

    def _awaited(self) -> list[tuple[Request, float]]:
        """Requests that a caller waits for while the service is not reached, and when they have waited enough."""
        pipeline = self.pipeline
        asked = [(request, 0.0) for request in [*pipeline.interrupted, *self.session.waiting.values()]]
        asked += [(request, request.asked_at) for request in [*pipeline.unsent, *self._backoff.requests()]]
        return [(request, self.connection.give_up_at(at)) for request, at in asked if request.is_awaited()]


def _ignore(_: object) -> None:
    """There is no watch."""


def _reason(push: list[Any]) -> LossReason:
    """Why a hold was lost; if it was force-released, by whom, if the server says so."""
    ending, by = push[3].decode(), push[4] if len(push) > 4 else b""
    how, kind = _LOSSES.get(ending, (ending, LossKind.OTHER))
    who = f" by {party(0, '', by).described()}" if by else ""
    return LossReason(f"{push[1].decode()!r} was {how}{who}", kind)


def _questions(session: Session) -> list[HeldQuestion]:
    """The queries about the holds of a session that was resumed; none for one that was opened."""
    batches: list[list[Grant]] = []
    names = HELD_MAX
    for grant in session.holds.values():
        names += len(grant.terms.names)
        if names > HELD_MAX:
            batches.append([])
            names = len(grant.terms.names)
        batches[-1].append(grant)
    return [HeldQuestion(batch) for batch in batches]


def _pause(session: Session) -> float:
    """How long after a keep-alive the next one is due."""
    shortest = min((request.terms.ttl or inf for request in session.waiting.values()), default=inf)
    return min(session.trust.ttl / 3, max(shortest, KEEP_ALIVE_S_MIN))


def _new_reader() -> Reader:
    """One for each connection: an incomplete message is discarded with it."""
    return Reader(notEnoughData=NOTHING)
