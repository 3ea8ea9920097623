"""Hearing: what a message from the server means.

1. Replies come in the order of the commands: each answers the oldest that has none. A push waits for nobody.
2. An answer that says "elsewhere" or "unknown" is none, nor is one that says that the session is over: what it was
   to answer is still to be answered. So is what was told BUSY, which rests until then.
3. A pushed answer is settled; if its acquire was withdrawn, not before the withdrawal is answered.
"""

from typing import TYPE_CHECKING, Any

from hiredis import PushNotification, ReplyError

from fencehold.client.expected import Expected
from fencehold.client.living import end_session, give_up
from fencehold.drivers.resp.wire import ELSEWHERE, error, overloaded, split
from fencehold.locks.views import party

if TYPE_CHECKING:
    from fencehold.client.protocol import SessionProtocol
    from fencehold.client.requests import Acquire


def on_message(protocol: "SessionProtocol", reply: Any) -> None:
    """One message came in."""
    kind = type(reply)
    if kind is PushNotification:
        _on_push(protocol, reply)
        return
    if not protocol.pipeline.expected:
        # A last word: the server is ending this connection, and says why.
        give_up(protocol, park=True)
        return
    expected = protocol.pipeline.expected.popleft()
    if kind is ReplyError:
        _on_error(protocol, expected, str(reply))
        return
    if expected.numbered:
        protocol.session.acknowledge(expected.id, expected.number)
    expected.on_reply(protocol, reply)


def _on_error(protocol: "SessionProtocol", expected: Expected, message: str) -> None:
    code, detail = split(message)
    if code in ELSEWHERE:
        protocol.pipeline.expected.appendleft(expected)
        protocol.reach.on_trouble(f"it serves nobody now: {detail}")
        if code == "NOTLEADER":
            protocol.reach.on_leader(detail.rpartition(" ")[2])
        # One that refused to take the session up certainly does not carry it.
        give_up(protocol, park=protocol.attached or code == "UNKNOWN")
    elif code == "BUSY":
        expected.on_busy(protocol, overloaded(detail))
    elif code == "NOSESSION":
        protocol.pipeline.expected.appendleft(expected)
        end_session(protocol, "expired")
    else:
        if expected.numbered:
            protocol.session.acknowledge(expected.id, expected.number)
        expected.on_error(protocol, code, detail)


def _on_push(protocol: "SessionProtocol", push: list[Any]) -> None:
    kind = push[0]
    if kind == b"grant":
        _on_answer(protocol, push[1], push[2])
    elif kind in (b"timeout", b"cancelled"):
        _on_answer(protocol, push[1], None)
    elif kind == b"refused":
        _on_refused(protocol, push[1], push[2].decode(), push[3].decode())
    elif kind == b"event" and protocol.on_event is not None:
        protocol.on_event(push[1])
    elif kind == b"ended" and push[1] == protocol.session.id:
        end_session(protocol, push[2].decode())
    elif kind == b"lost":
        _on_lost(protocol, push[1].decode(), push[2], _how(push))


def _how(push: list[Any]) -> str:
    """How a hold was lost; of one that was broken, by whom, if the server says so."""
    how, by = push[3].decode(), push[4] if len(push) > 4 else b""
    return f"{how} by {party(0, '', by).described()}" if by else f"{how}"


def _on_lost(protocol: "SessionProtocol", name: str, fence: int, how: str) -> None:
    protocol.session.overdue.pop(fence, None)
    grant = protocol.session.holds.get(fence)
    if grant is not None:
        protocol.lose(grant, f"{name!r} was {how}")


def _asked(protocol: "SessionProtocol", request_id: int) -> "Acquire | None":
    # Its own reply may still be behind that of an earlier command: a push waits for nobody.
    return (
        protocol.session.waiting.pop(request_id, None)
        or protocol.pipeline.find_acquire(request_id)
        or protocol.backoff.find_acquire(request_id)
    )


def _on_refused(protocol: "SessionProtocol", request_id: int, code: str, detail: str) -> None:
    """Its wait was ended by a change of the policy."""
    request = _asked(protocol, request_id)
    if request is not None:
        protocol.settle(request_id)
        request.fail(error(code, detail))


def _on_answer(protocol: "SessionProtocol", request_id: int, reply: dict[bytes, Any] | None) -> None:
    request = _asked(protocol, request_id)
    if request is None:
        # Withdrawn: settled when the withdrawal is answered, lest the server forget what it has to undo.
        return
    protocol.settle(request_id)
    if reply is None:
        request.finish(None)
    else:
        request.on_granted(protocol, reply)
