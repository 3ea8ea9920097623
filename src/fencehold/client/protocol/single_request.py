"""A lone request: one that its caller sends and whose reply it reads, while nothing else is in flight.

1. It is sent when the next message can only be its reply, or a push (`is_quiet`).
2. Its caller records only what a plain reply means: granted, not acquired, released. Anything else is passed in by
   the shell as bytes, after the request was adopted.
3. Until then the session knows nothing of it but its id. So when its caller is interrupted, at any moment, it can
   be adopted as sent: whether it was, shows when it is repeated under its id. Or it is submitted anew.
4. It is recorded by assignments alone, with no call between the last check of `is_left` and the end: signal
   handlers and finalizers run at calls.
"""

from typing import TYPE_CHECKING, Any, Protocol

from fencehold.client.protocol.connection import UNCERTAIN
from fencehold.client.protocol.requests import DONE, SENT, Acquire, Release
from fencehold.locks.trust import Grant

if TYPE_CHECKING:
    from fencehold.client.protocol.session import SessionProtocol


class Caller(Protocol):
    """The sender: a promise whose result is stored."""

    is_left: bool
    """Whether the loop's thread continues the request."""
    result: Any
    is_done: bool


def is_quiet(protocol: "SessionProtocol", now: float) -> bool:
    """Whether nothing is in flight, and nothing is to be done first."""
    session, pipeline = protocol.session, protocol.pipeline
    return (
        protocol.attached
        and not pipeline.expected
        and not pipeline.unsent
        and not session.kept
        and not session.overdue
        and not session.returning
        and now < session.trust.end
        and not (session.ends and session.ends[0][0] <= now)
        and not pipeline.outbox
        and not protocol.connection.orders
    )


def encode(protocol: "SessionProtocol", request: Acquire | Release, now: float) -> bytes:
    """The bytes to send. From now on a grant that is released is not trusted."""
    if type(request) is Release:
        protocol._forget(request.grant)
    request.take_id(protocol.session, now)
    return request.encode(protocol.session, now)


def finish(
    protocol: "SessionProtocol", request: Acquire | Release, reply: Any, caller: Caller, now: float
) -> bool:
    """Record what the reply means; False if it is not a plain one, or the caller was interrupted."""
    session = protocol.session
    if now >= session.trust.end or (session.ends and session.ends[0][0] <= now):
        # What ran out while this process was stopped is lost before any reply counts.
        return False
    kind = type(reply)
    grant: Grant | None = None
    own_ttl = False
    if type(request) is Acquire and reply is not None:
        if kind is not dict or b"queued" in reply:
            return False
        grant = Grant(request.terms, reply[b"fence"], session.trust)
        own_ttl = reply[b"own_ttl"]
        if own_ttl:
            session.trust.on_answer(request.sent_at, reply[b"at"])
            grant.limit(session.trust.place(reply[b"at"] + reply[b"ttl_ms"]))
    elif kind is not bytes and kind is not int and reply is not None:
        return False
    session.acknowledge(request.id, request.number)
    protocol.pipeline.heard_at = now
    if caller.is_left:
        return False
    if grant is not None:
        request.grant = session.holds[grant.fence] = grant
    request.stage = DONE
    caller.result = grant
    caller.is_done = True
    if grant is not None and own_ttl:
        protocol._watch_end(grant)
    return True


def adopt(protocol: "SessionProtocol", request: Acquire | Release, now: float) -> None:
    """Wait for the reply to what was sent, or may have been."""
    protocol._now = now
    request.stage = SENT
    # The reply of one that was left halfway may have been acknowledged: it has not arrived.
    if protocol.session.answered_id >= request.id:
        protocol.session.unacknowledge(request.id)
    protocol.pipeline.adopt(request, now)


def doubt(protocol: "SessionProtocol", now: float) -> None:
    """What was sent or read last on this connection is not known: continue on another."""
    protocol._now = now
    protocol.connection.on_trouble(UNCERTAIN)
    # At once: no node is at fault, so no back-off is needed.
    protocol._drop(park=True)
    protocol._connect()


def submit(protocol: "SessionProtocol", request: Acquire | Release, now: float) -> None:
    """Submit a request that was not sent."""
    protocol._now = now
    if type(request) is Release:
        protocol._forget(request.grant)
    else:
        protocol._make_way()
    request.id = 0
    protocol._submit(request)
