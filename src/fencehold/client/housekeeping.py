"""What the protocol sends for its own sake: greetings, keep-alives, withdrawals, settlements, the close.

Told BUSY, a session is asked for again within the connect timeout; a keep-alive is repeated soon, and trust counts
from the one that is answered. A withdrawal is repeated until it is answered, the close for as long as closing may
take; a settlement goes with the next one.
"""

from math import inf
from typing import TYPE_CHECKING, Any

from fencehold.client.expected import DONE, Expected, Request
from fencehold.client.requests import Release
from fencehold.client.session import Session
from fencehold.errors import FenceholdError, Overloaded, Unavailable

if TYPE_CHECKING:
    from fencehold.client.protocol import SessionProtocol


class Hello(Expected):
    """The greeting. If it is refused, so is everything."""

    __slots__ = ()

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        protocol.on_refused(code, detail)

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        protocol.on_greeting_busy(busy)


class Opening(Expected):
    """A session is opened, or taken up again."""

    __slots__ = ("sent_at",)

    def __init__(self, sent_at: float) -> None:
        self.sent_at = sent_at

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        protocol.on_attached(reply, self.sent_at)

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        protocol.on_refused(code, detail)

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        protocol.on_opening_busy(busy)


class KeepAlive(Expected):
    """One for all holds of the session."""

    __slots__ = ("sent_at",)

    def __init__(self, sent_at: float) -> None:
        self.sent_at = sent_at

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        protocol.on_kept_alive(self.sent_at, reply)

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        protocol.on_not_kept_alive(busy)


class Cancel(Expected):
    """Withdraw an acquire. Refused only if it was acknowledged: then this came through once before, or what it was
    granted is known, and is released."""

    __slots__ = ("busy_times", "request")

    def __init__(self, request: int) -> None:
        self.request = request
        self.busy_times = 0

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        protocol.session.cancels.pop(self.request, None)
        protocol.session.let_go(self.request)
        protocol.settle(self.request)

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        self.busy_times += 1
        protocol.rest(self, busy, self.busy_times)

    def on_rested(self, protocol: "SessionProtocol") -> None:
        protocol.cancel(self)

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        grant = protocol.session.cancels.get(self.request)
        self.on_reply(protocol, None)
        if grant is not None:
            protocol.submit(Release(grant, None, protocol.now))


class Settle(Expected):
    """Say that pushed answers have arrived."""

    __slots__ = ("ids",)

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def on_interrupted(self, protocol: "SessionProtocol") -> None:
        protocol.session.unsettled += self.ids

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        protocol.session.unsettled += self.ids
        protocol.on_not_settled(busy)


class Subscribe(Expected):
    """Ask on a new connection for what was watched on the one before."""

    __slots__ = ("busy_times", "words")

    def __init__(self, words: bytes) -> None:
        self.words = words
        self.busy_times = 0

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        self.busy_times += 1
        protocol.rest(self, busy, self.busy_times)

    def on_rested(self, protocol: "SessionProtocol") -> None:
        protocol.expect(self, self.words)


class Close(Request):
    """End the session cleanly."""

    __slots__ = ()

    def encode(self, session: Session, now: float) -> bytes:
        return b"*1\r\n$13\r\nSESSION.CLOSE\r\n"

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        self.stage = DONE
        protocol.on_closed()

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        self.on_reply(protocol, None)

    def on_unreachable(self, protocol: "SessionProtocol", why: Unavailable) -> None:
        self.on_reply(protocol, None)

    def patient_until(self, protocol: "SessionProtocol") -> float:
        # The whole client has a time by which it is closed.
        return inf

    def on_session_over(self, protocol: "SessionProtocol", lost: FenceholdError) -> None:
        self.on_reply(protocol, None)


class Ready(Request):
    """Nothing is sent: whoever waits for it wants to know that a session is open. Kept with None."""

    __slots__ = ()
