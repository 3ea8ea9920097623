"""What the protocol sends for its own sake: greetings, keep-alives, withdrawals, settlements, the close."""

from typing import TYPE_CHECKING, Any

from fencehold.client.requests import DONE, Expected, Release, Request
from fencehold.client.session import Session
from fencehold.errors import FenceholdError

if TYPE_CHECKING:
    from fencehold.client.protocol import SessionProtocol


class Hello(Expected):
    """The greeting. If it is refused, so is everything."""

    __slots__ = ()

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        protocol.on_refused(code, detail)


class Opening(Expected):
    """A session is opened, or taken up again."""

    __slots__ = ("sent_at",)

    def __init__(self, sent_at: float) -> None:
        self.sent_at = sent_at

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        protocol.on_attached(reply, self.sent_at)

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        protocol.on_refused(code, detail)


class KeepAlive(Expected):
    """One for all holds of the session."""

    __slots__ = ("sent_at",)

    def __init__(self, sent_at: float) -> None:
        self.sent_at = sent_at

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        protocol.on_kept_alive(self.sent_at, reply)


class Cancel(Expected):
    """Withdraw an acquire. Refused only if it was acknowledged: then this came through once before, or what it was
    granted is known, and is released."""

    __slots__ = ("request",)

    def __init__(self, request: int) -> None:
        self.request = request

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        protocol.session.cancels.pop(self.request, None)
        protocol.settle(self.request)

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

    def on_unreachable(self, protocol: "SessionProtocol") -> None:
        self.on_reply(protocol, None)

    def on_session_over(self, protocol: "SessionProtocol", lost: FenceholdError) -> None:
        self.on_reply(protocol, None)


class Ready(Request):
    """Nothing is sent: whoever waits for it wants to know that a session is open. Kept with None."""

    __slots__ = ()
