"""Living: how a connection, and the session that it carries, begin and end.

1. A session outlives its connections: it is taken up again on the next, where what was not answered is repeated.
2. A connection carries one session in its life. One that may carry the session still is parked, not closed, until
   another does.
3. What was heard of half a message is forgotten with its connection.
4. A session dies whole: its holds are lost, its queued acquires fail, the rest is asked again in the next.
"""

from typing import TYPE_CHECKING, Any

from hiredis import Reader

from fencehold.client.housekeeping import Cancel, Hello, Opening, Subscribe
from fencehold.client.orders import Sweep
from fencehold.client.reach import Phase
from fencehold.client.session import Session
from fencehold.drivers.resp.wire import command
from fencehold.errors import SessionExpired
from fencehold.locks.trust import CLOSED

if TYPE_CHECKING:
    from fencehold.client.protocol import SessionProtocol

NOTHING = object()
"""What a reader answers when it has no whole message."""


def new_reader() -> Reader:
    """One for each connection."""
    return Reader(notEnoughData=NOTHING)


# Connections.


def connect(protocol: "SessionProtocol") -> None:
    """Try the next node now."""
    protocol.reach.connect(protocol.now)
    protocol.wake_by(protocol.reach.next_deadline())


def retry(protocol: "SessionProtocol", least_s: float = 0.0) -> None:
    """Try the next node after a pause, of so long at the least."""
    protocol.reach.retry(protocol.now, least_s)
    protocol.wake_by(protocol.reach.next_deadline())


def give_up(protocol: "SessionProtocol", *, park: bool) -> None:
    """Turn to another connection; park this one if it may carry the session still."""
    drop(protocol, park=park)
    retry(protocol)


def drop(protocol: "SessionProtocol", *, park: bool) -> None:
    """Turn away from the connection."""
    protocol.reach.drop(park=park)
    detach(protocol)


def detach(protocol: "SessionProtocol") -> None:
    """No connection carries the session."""
    if protocol.attached:
        protocol.attached = False
        protocol.session.trust.attached = False
        protocol.reach.down_since = protocol.now
        protocol.wake_by(protocol.reach.give_up_at(protocol.now))
    protocol.reader = new_reader()
    protocol.pipeline.interrupt(protocol)
    protocol.pipeline.interrupted += protocol.backoff.interrupt()


# Sessions.


def greet(protocol: "SessionProtocol") -> None:
    """Say the first words on a connection that was made."""
    protocol.expect(Hello(), protocol.settings.hello())
    open_session(protocol)


def open_session(protocol: "SessionProtocol") -> None:
    """Ask for a session, or for the one there is."""
    session = protocol.session
    if session.id:
        protocol.expect(Opening(protocol.now), command("SESSION.RESUME", session.id, session.secret))
    else:
        protocol.expect(Opening(protocol.now), protocol.settings.opening())


def attach(protocol: "SessionProtocol", reply: dict[bytes, Any], sent_at: float) -> None:
    """The session is carried by this connection: repeat what was not answered, then go on."""
    session = protocol.session
    session.on_opened(reply, sent_at)
    protocol.reach.on_attached()
    protocol.attached = True
    for request_id in session.cancels:
        protocol.cancel(Cancel(request_id))
    protocol.pipeline.repeat(session, protocol.now)
    for words in protocol.subscriptions():
        protocol.expect(Subscribe(words), words)
    protocol.pipeline.pump(session, protocol.now)
    protocol.wake_by(protocol.backoff.next_at())


def end_session(protocol: "SessionProtocol", reason: str) -> None:
    """The server has ended the session: go on in a new one, unless the client is being closed."""
    over = protocol.session
    greeting = protocol.reach.phase is Phase.GREETING
    pending = protocol.pipeline.take_sent(over) + protocol.backoff.take_bound()
    protocol.session = Session(protocol.settings.ttl, protocol.settings.grace)
    over.trust.on_over()
    over.lose_all(f"the session was {reason}")
    if protocol.closers:
        protocol.on_closed()
        for request in pending:
            request.fail(SessionExpired("the client was closed"))
        return
    if greeting:
        open_session(protocol)
    else:
        # A connection carries one session in its life.
        protocol.reach.on_trouble(f"the session was {reason}")
        drop(protocol, park=False)
        connect(protocol)
    failure = SessionExpired(f"the session was {reason}: nothing it waited for will be granted")
    for request in pending:
        request.on_session_over(protocol, failure)


def shut(protocol: "SessionProtocol") -> None:
    """The client has ended its session, or will not wait for that any longer."""
    drop(protocol, park=False)
    protocol.reach.rest(Phase.CLOSED)
    protocol.reach.orders.append(Sweep())
    protocol.session.trust.on_over()
    protocol.session.lose_all(CLOSED)
    for request in protocol.take_all():
        request.fail(SessionExpired("the client was closed"))
