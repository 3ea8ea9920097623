"""Deadlines: what the protocol does because it is time, whether or not anything is heard.

1. One keep-alive every third of the ttl serves all holds; it takes what is to be settled with it. While an acquire
   with a ttl of its own waits there are more, so that its grant can be placed on the client's clock (`trust`, 4).
2. A connection that has something to answer and is silent is given up, early enough for other nodes to be tried.
3. A queued acquire that the server does not end in time ends by itself, and is withdrawn.
4. A hold whose own time is over is lost, and given back before its owner asks again.
5. What was told BUSY is asked again when it has rested; a keep-alive, soon.
6. While the service is not reached, whoever waits is told within the connect timeout.
"""

from math import inf
from typing import TYPE_CHECKING

from fencehold.client.expected import DONE, QUEUED, Request
from fencehold.client.housekeeping import KeepAlive
from fencehold.client.living import connect, give_up, open_session
from fencehold.client.reach import Phase
from fencehold.client.requests import Acquire, Extend, Release
from fencehold.client.session import Session
from fencehold.errors import Overloaded

if TYPE_CHECKING:
    from fencehold.client.protocol import SessionProtocol

BEAT_S_MIN = 1.0
"""No more keep-alives than one in that time, however short a ttl somebody waits with."""
LATE_S = 1.0
"""How much later than its timeout a queued acquire gives up by itself, should the server not say so."""


class Deadlines:
    """What is due when, as far as neither the session nor the connection knows it."""

    __slots__ = ("beat_at", "beating", "beats_busy", "close_by", "settle_at", "waits")

    def __init__(self) -> None:
        self.beat_at = self.close_by = inf
        self.beating = False
        """Whether a keep-alive is under way."""
        self.beats_busy = 0
        """How often in a row a keep-alive was told BUSY."""
        self.settle_at = 0.0
        """Until then nothing is settled but with a keep-alive."""
        self.waits: list[tuple[float, Acquire]] = []
        """When queued acquires give up by themselves; some are answered before."""


def start_beating(protocol: "SessionProtocol", sent_at: float) -> None:
    """The session was opened, or taken up again, by a command sent at `sent_at`."""
    deadlines = protocol.deadlines
    deadlines.beat_at = sent_at + protocol.session.trust.ttl / 3
    deadlines.beating = False
    protocol.wake_by(min(deadlines.beat_at, protocol.now + _patience(protocol) / 2))


def beat_sooner(protocol: "SessionProtocol", ttl: float) -> None:
    """Somebody waits for a hold with a ttl of its own."""
    deadlines = protocol.deadlines
    deadlines.beat_at = min(deadlines.beat_at, protocol.now + max(ttl, BEAT_S_MIN))
    protocol.wake_by(deadlines.beat_at)


def beat_again(protocol: "SessionProtocol", busy: Overloaded) -> None:
    """A keep-alive was told BUSY: the next one is due soon. Nothing is trusted for longer because of it."""
    deadlines = protocol.deadlines
    deadlines.beating = False
    deadlines.beats_busy += 1
    rest = protocol.backoff.rest_of(busy, deadlines.beats_busy)
    # However busy it is: there must be time for some more before the session ends.
    deadlines.beat_at = min(deadlines.beat_at, protocol.now + min(rest, protocol.session.trust.ttl / 9))
    protocol.wake_by(deadlines.beat_at)


def settle_later(protocol: "SessionProtocol", busy: Overloaded) -> None:
    """A settlement was told BUSY."""
    protocol.deadlines.settle_at = protocol.now + protocol.backoff.rest_of(busy, 1)


def meet(protocol: "SessionProtocol") -> None:
    """Do what is due now."""
    lose_due(protocol)
    _end_waits(protocol)
    protocol.backoff.wake(protocol)
    if protocol.attached:
        _beat(protocol)
    else:
        _reach(protocol)
    if protocol.now >= protocol.deadlines.close_by:
        protocol.on_closed()


def give_back_overdue(protocol: "SessionProtocol") -> None:
    """Release what has run out here, before the server counts it against its owner who asks again.

    Not sooner: if nobody asks, it is to be seen that it ran out.
    """
    lose_due(protocol)
    for grant in protocol.session.take_overdue():
        protocol.submit(Release(grant, None, protocol.now))


def next_deadline(protocol: "SessionProtocol") -> float:
    """When something will be due, unless something is heard or asked before."""
    deadlines = protocol.deadlines
    instants = [protocol.session.next_end(), deadlines.close_by, protocol.backoff.next_at()]
    instants += [late_at for late_at, _ in deadlines.waits]
    if protocol.attached:
        return min(*instants, deadlines.beat_at, _silence_at(protocol))
    instants += [give_up_at for _, give_up_at in _awaited(protocol)]
    return min(*instants, protocol.reach.next_deadline())


def lose_due(protocol: "SessionProtocol") -> None:
    """Lose what has run out here, and let it end at the server where it might be held for longer."""
    now = protocol.now
    for grant in protocol.session.lose_due(now):
        # One with a delay is to run out: after a release none would be kept.
        is_delayed = grant.terms.is_delayed
        protocol.submit(Extend(grant, 1, None, now) if is_delayed else Release(grant, None, now))


def _end_waits(protocol: "SessionProtocol") -> None:
    now, waits = protocol.now, protocol.deadlines.waits
    due = [request for late_at, request in waits if late_at <= now and request.stage == QUEUED]
    protocol.deadlines.waits = [wait for wait in waits if wait[0] > now and wait[1].stage != DONE]
    for request in due:
        protocol.withdraw(request)
        request.finish(None)


def _beat(protocol: "SessionProtocol") -> None:
    now, deadlines = protocol.now, protocol.deadlines
    if _silence_at(protocol) <= now:
        protocol.reach.on_silent(now)
        give_up(protocol, park=True)
    elif now >= deadlines.beat_at:
        deadlines.beat_at = now + _pause(protocol.session)
        if not deadlines.beating:
            deadlines.beating = True
            protocol.expect(KeepAlive(now), b"*1\r\n$17\r\nSESSION.KEEPALIVE\r\n")
        if protocol.session.unsettled:
            protocol.settle_all()


def _pause(session: Session) -> float:
    """How long after a keep-alive the next one is due."""
    shortest = min((request.terms.ttl or inf for request in session.waiting.values()), default=inf)
    return min(session.trust.ttl / 3, max(shortest, BEAT_S_MIN))


def _silence_at(protocol: "SessionProtocol") -> float:
    """When to turn away from the connection, or to look again should something be asked meanwhile."""
    since = protocol.pipeline.silent_since()
    patience = _patience(protocol)
    # Half of it: what is asked the moment after is looked at before its time is over.
    return protocol.now + patience / 2 if since is None else since + patience


def _patience(protocol: "SessionProtocol") -> float:
    """How long a connection may be silent when it has something to answer.

    Where there are other nodes it is so short that they can be tried before a request gives up.
    """
    return min(protocol.reach.turn(), protocol.session.trust.ttl / 3)


def _reach(protocol: "SessionProtocol") -> None:
    now, reach = protocol.now, protocol.reach
    if reach.has_hung(now):
        reach.on_silent(now)
        give_up(protocol, park=reach.phase is Phase.GREETING)
    if reach.is_due(now):
        connect(protocol)
    if reach.is_to_open(now):
        open_session(protocol)
    for request, give_up_at in _awaited(protocol):
        if give_up_at <= now:
            request.on_unreachable(protocol, reach.unavailable())


def _awaited(protocol: "SessionProtocol") -> list[tuple[Request, float]]:
    """Requests that somebody waits for while the service is not reached, and when they have waited enough."""
    pipeline = protocol.pipeline
    asked = [(request, 0.0) for request in [*pipeline.interrupted, *protocol.session.waiting.values()]]
    asked += [(request, request.asked_at) for request in [*pipeline.unsent, *protocol.backoff.requests()]]
    return [(request, protocol.reach.give_up_at(at)) for request, at in asked if request.is_awaited()]
