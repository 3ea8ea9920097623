"""The session protocol: replies, connection events and `now` in; bytes, orders and kept promises out. Its laws:

1.  *It is fed.* It has no clock, no socket and no dice: what it knows of them it was told.
2.  *One session, one connection, one heart.* Sessions outlive connections: a lost connection is replaced, the
    session taken up again, and one keep-alive every third of the ttl serves all holds.
3.  *The client lets go first* (G7): no hold is trusted beyond what `trust` allows; what was lost stays lost.
4.  *Every request ends* (G9): granted, refused, timed out, lost, unavailable or outcome unknown; within the
    connect timeout when the service cannot be reached.
5.  *A request is repeated under its own id*, in the order of ids, after withdrawals, until it is answered; the
    server acts on it once. An answer that says "elsewhere" or "unknown" is none. Nor is BUSY: what was told so
    rests, and is asked again for as long as its caller waits.
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

Where each law lives: here, and in `living` (2, 7, 8: connections and sessions), `trust` (3), `expected` and
`requests` (4, 6), `deadlines` (2, 4, 6: time), `hearing` (5: messages), `backoff` (5: BUSY), `pipeline` (5, 9),
`reach` (7), `session` (8).
"""

from collections.abc import Callable
from math import inf
from typing import Any

from hiredis import ProtocolError

from fencehold.client.backoff import Backoff
from fencehold.client.deadlines import (
    LATE_S,
    Deadlines,
    beat_again,
    beat_sooner,
    give_back_overdue,
    lose_due,
    meet,
    next_deadline,
    settle_later,
    start_beating,
)
from fencehold.client.endpoints import Rotation
from fencehold.client.expected import DONE, SENT, UNSENT, Expected, Promise, Request
from fencehold.client.hearing import on_message
from fencehold.client.housekeeping import Cancel, Close, Ready, Settle
from fencehold.client.living import NOTHING, attach, connect, detach, drop, give_up, greet, new_reader, retry, shut
from fencehold.client.pipeline import WINDOW, Pipeline
from fencehold.client.reach import HUNG_UP, LOST, NO_PROTOCOL, Phase, Reach
from fencehold.client.requests import Acquire, Extend, Read, Release
from fencehold.client.session import Session
from fencehold.client.settings import Settings
from fencehold.drivers.resp.wire import command, refused
from fencehold.errors import Overloaded, UsageError
from fencehold.locks.terms import Terms
from fencehold.locks.trust import CLOSED, Grant

SETTLE_AT = 64
"""Pushed answers that are settled in one command."""


class SessionProtocol:
    """One client's side of the conversation."""

    def __init__(self, settings: Settings, rotation: Rotation) -> None:
        self.settings = settings
        self.session = Session(settings.ttl, settings.grace)
        self.pipeline = Pipeline()
        self.backoff = Backoff(rotation.draw)
        self.reach = Reach(rotation, settings.connect_timeout)
        self.attached = False
        """Whether a connection carries the session, which every request asks."""
        self.wake_at = inf
        """When `on_timer` is to be called."""
        self.on_event: Callable[[dict[bytes, Any]], None] | None = None
        """Told of pushed events."""
        self.on_busy: Callable[[Overloaded, float], None] | None = None
        """Told that the service is busy, and for how many seconds it will be asked again."""
        self.busy_s_max = inf
        """How long an acquire is asked again while the service is busy, if its own timeout is not shorter."""
        self.subscriptions: Callable[[], list[bytes]] = list
        """What to ask for again on each new connection."""
        self.unusable = ""
        """Why nothing can be asked any more; empty while it can."""
        self.now = 0.0
        self.reader = new_reader()
        self.deadlines = Deadlines()
        self.closers: list[Promise] = []
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
            give_back_overdue(self)
        request = Acquire(terms, owner, promise, now)
        self.submit(request)
        return request

    def abandon(self, request: Acquire, now: float) -> None:
        """Nobody waits for this acquire any more: nothing may stay held or queued because of it."""
        self.now = now
        if request.stage == DONE:
            if request.grant is not None and not request.grant.ending:
                self.undo(request, request.grant)
            return
        if request.stage != UNSENT:
            self.withdraw(request)
        request.stage = DONE

    def release(self, grant: Grant, promise: Promise | None, now: float) -> None:
        """Give a grant back. From here on it is not trusted, whatever the answer."""
        self.now = now
        self._forget(grant)
        self.submit(Release(grant, promise, now))

    def undo(self, request: Acquire, grant: Grant) -> None:
        """Give back a grant that nobody has heard of: nothing was done under it."""
        if request.terms.at_least:
            # A release would keep the names for their least time; what is withdrawn was never granted.
            self._forget(grant)
            self.withdraw(request)
        else:
            self.release(grant, None, self.now)

    def _forget(self, grant: Grant) -> None:
        """Trust a grant no longer."""
        grant.ending = "released"
        grant.on_lost = None
        self.session.holds.pop(grant.fence, None)

    def extend(self, grant: Grant, ttl_ms: int, promise: Promise, now: float) -> None:
        """Let a grant end `ttl_ms` from now; 0: with its session."""
        self.now = now
        self.submit(Extend(grant, ttl_ms, promise, now))
        self.watch_end(grant)

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
        self.closers.append(promise)
        if not self.session.id:
            self.on_closed()
        elif len(self.closers) == 1:
            # The server lets go when it hears of this, and the answer comes later: trust ends with the asking.
            self.session.trust.on_over()
            self.session.lose_all(CLOSED)
            self.deadlines.close_by = now + self.settings.connect_timeout
            self.wake_by(self.deadlines.close_by)
            self.submit(Close(None, now))

    def submit(self, request: Request) -> None:
        """Send a request, or let it wait for its turn."""
        pipeline = self.pipeline
        if self.attached and not pipeline.unsent and len(pipeline.expected) < WINDOW and not self.session.kept:
            pipeline.send(request, self.session, self.now)
            return
        if self.unusable:
            raise UsageError(self.unusable)
        pipeline.unsent.append(request)
        if not self.attached:
            self.wake_by(self.reach.give_up_at(request.asked_at))
            if self.reach.phase is Phase.IDLE:
                connect(self)
        else:
            pipeline.pump(self.session, self.now)

    def rest(self, entry: Expected, busy: Overloaded, times: int, patient_until: float = inf) -> None:
        """Something was told BUSY for the `times`-th time: look again when it has rested, or nobody waits."""
        now = self.now
        if self.on_busy is not None:
            self.on_busy(busy, patient_until - now)
        until = min(now + self.backoff.rest_of(busy, times), patient_until)
        if until <= now:
            entry.on_rested(self)
        else:
            self.backoff.rest(entry, until)
            self.wake_by(until)

    def take_all(self) -> list[Request]:
        """All that is not answered: it will not be."""
        return self.pipeline.take_all(self.session) + self.backoff.take_all()

    # What happened to the connection.

    def on_connected(self, now: float) -> None:
        """The connection ordered last is made."""
        self.now = now
        self.reach.on_connected()
        greet(self)

    def on_disconnected(self, now: float, why: str = "") -> None:
        """The connection ordered last could not be made, for this reason; or is gone, and not by our doing."""
        self.now = now
        self.reach.on_trouble(why or (HUNG_UP if self.reach.phase is Phase.GREETING else LOST))
        detach(self)
        retry(self)

    def on_connection_closed(self, now: float) -> None:
        """A parked connection had to be closed before the session was taken up on another."""
        self.session.trust.on_closed(now)
        self.wake_by(self.session.next_end())

    def on_data(self, data: bytes, now: float) -> None:
        """Bytes came in over the connection ordered last."""
        self.now = self.pipeline.heard_at = now
        if now >= self.session.trust.end:
            self._distrust()
        if self.session.ends and self.session.ends[0][0] <= now:
            # Before anything is heard: what ran out while this process was stopped stays lost, extended or not.
            lose_due(self)
        reader = self.reader
        reader.feed(data)
        messages = 0
        try:
            while (reply := reader.gets()) is not NOTHING:
                messages += 1
                on_message(self, reply)
                if self.reader is not reader:
                    return
        except ProtocolError:
            self.reach.on_trouble(NO_PROTOCOL)
            give_up(self, park=True)
        self.pipeline.is_lone = messages == 1 and not self.pipeline.expected
        if self.pipeline.unsent and self.attached:
            self.pipeline.pump(self.session, now)

    def on_timer(self, now: float) -> None:
        """It is `wake_at`, or later."""
        self.now = now
        if now >= self.session.trust.end:
            self._distrust()
        meet(self)
        self.wake_at = next_deadline(self)

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
        """The session is carried by this connection."""
        attach(self, reply, sent_at)
        start_beating(self, sent_at)

    def on_refused(self, code: str, detail: str) -> None:
        """The greeting or the session was refused: trying again will not help, so nobody is kept waiting."""
        node = self.reach.node
        drop(self, park=False)
        self.reach.rest(Phase.IDLE)
        for request in self.take_all():
            request.fail(refused(node, code, detail))

    def on_greeting_busy(self, busy: Overloaded) -> None:
        """The node has no time to greet: it, or another, is tried later."""
        self.reach.on_busy(busy)
        drop(self, park=False)
        retry(self, self._rest_of_opening(busy))

    def on_opening_busy(self, busy: Overloaded) -> None:
        """The node has no time for a session: it is asked again on this connection."""
        self.reach.on_busy(busy)
        self.reach.open_later(self.now, self._rest_of_opening(busy))
        self.wake_by(self.reach.next_deadline())

    def _rest_of_opening(self, busy: Overloaded) -> float:
        if self.on_busy is not None:
            self.on_busy(busy, self.settings.connect_timeout)
        return self.backoff.rest_of(busy, self.reach.busy_times)

    def on_kept_alive(self, sent_at: float, reply: dict[bytes, Any]) -> None:
        """A keep-alive was answered."""
        self.deadlines.beating = False
        self.deadlines.beats_busy = 0
        # Renewals wait for the next entry: when it came says more than when it was entered, if the server tells.
        self.session.trust.on_renewed(sent_at, reply.get(b"came_at", reply[b"at"]))

    def on_not_kept_alive(self, busy: Overloaded) -> None:
        """The service had no time for a keep-alive."""
        beat_again(self, busy)

    def on_not_settled(self, busy: Overloaded) -> None:
        """The service had no time for a settlement."""
        settle_later(self, busy)

    def on_queued(self, request: Acquire, reply: dict[bytes, Any]) -> None:
        """The answer to an acquire will be pushed."""
        self.session.waiting[request.id] = request
        if request.terms.ttl is not None and b"at" in reply:
            self.session.trust.on_answer(request.sent_at, reply[b"at"])
            beat_sooner(self, request.terms.ttl)
        # The shell looks then whether it still waits.
        self.wake_by(request.asked_at + self.settings.long_wait)
        timeout = request.terms.timeout
        if timeout is not None and not request.repeated:
            late_at = request.asked_at + timeout + LATE_S
            self.deadlines.waits.append((late_at, request))
            self.wake_by(late_at)

    def on_closed(self) -> None:
        """The client is closed: nothing is held, nothing is wanted."""
        self.unusable = "the client is closed"
        shut(self)
        self.deadlines.close_by = inf
        closers, self.closers = self.closers, []
        for promise in closers:
            if not promise.done():
                promise.set_result(None)

    def withdraw(self, request: Acquire) -> None:
        """Cancel an acquire that was sent, now and until the server has said that it is."""
        session = self.session
        session.waiting.pop(request.id, None)
        session.cancels[request.id] = request.grant
        if request.stage == SENT:
            # The server must not forget what it may have to undo, should it have no time to do so now.
            session.keep(request.id)
        if self.attached:
            self.cancel(Cancel(request.id))

    def lose(self, grant: Grant, reason: str) -> None:
        """The server has ended a hold. What is left of it, if it had several names, is given back."""
        if self.session.holds.pop(grant.fence, None) is not None:
            grant.lose(reason)
            if len(grant.terms.names) > 1:
                self.submit(Release(grant, None, self.now))

    def lose_due(self) -> None:
        """Lose what has run out here, though the timer has not gone off yet."""
        lose_due(self)

    def watch_end(self, grant: Grant) -> None:
        """The end of a grant's own ttl was moved."""
        self.session.watch_end(grant)
        self.wake_by(grant.own_end)

    def settle(self, request_id: int) -> None:
        """A pushed answer has arrived, and need not be remembered."""
        unsettled = self.session.unsettled
        unsettled.append(request_id)
        if len(unsettled) >= SETTLE_AT and self.attached and self.now >= self.deadlines.settle_at:
            self.settle_all()

    def settle_all(self) -> None:
        """Tell the server which pushed answers have arrived."""
        ids = self.session.unsettled
        self.session.unsettled = []
        self.expect(Settle(ids), command("LOCK.SETTLE", *ids))

    def cancel(self, withdrawal: Cancel) -> None:
        """Send a withdrawal."""
        self.expect(withdrawal, command("LOCK.CANCEL", withdrawal.request))

    def expect(self, entry: Expected, words: bytes) -> None:
        """Send housekeeping."""
        self.pipeline.expect(entry, words, self.now)

    def wake_by(self, instant: float) -> None:
        """Something is due then."""
        self.wake_at = min(self.wake_at, instant)

    def _distrust(self) -> None:
        """Trust has ended. Should the session live on at the server, what it holds there is given back."""
        for grant in self.session.lose_all("no keep-alive was answered in time"):
            self.submit(Release(grant, None, self.now))
