"""Session requests: what the protocol sends for the session itself, and what each reply means.

1. No caller waits for any of it. What a lost connection has left unanswered is sent anew on the next one.
2. On BUSY, the opening of a session is repeated within the connect timeout. A keep-alive is repeated soon, and
   trust counts from the one that is answered. A withdrawal, a query and a subscription are repeated until they
   are answered; a settlement is merged into the next one.
"""

from typing import TYPE_CHECKING, Any

from fencehold.client.protocol.requests import Expected, Release
from fencehold.drivers.resp.wire import command
from fencehold.errors import Overloaded
from fencehold.locks.trust import Grant

if TYPE_CHECKING:
    from fencehold.client.protocol.session import SessionProtocol


class Hello(Expected):
    """The greeting. If it is refused, everything is."""

    __slots__ = ()

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        if isinstance(reply, dict):
            protocol.shards = reply.get(b"shards", 1)
            protocol.cell_map = reply.get(b"cells", 0)

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        protocol._on_refused(code, detail)

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        protocol._on_greeting_busy(busy)


class Opening(Expected):
    """A session is opened, or resumed."""

    __slots__ = ("sent_at",)

    def __init__(self, sent_at: float) -> None:
        self.sent_at = sent_at

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        protocol._on_attached(reply, self.sent_at)

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        protocol._on_refused(code, detail)

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        protocol._on_opening_busy(busy)


class KeepAlive(Expected):
    """One for all holds of the session."""

    __slots__ = ("sent_at",)

    def __init__(self, sent_at: float) -> None:
        self.sent_at = sent_at

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        protocol._on_kept_alive(self.sent_at, reply)

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        protocol._on_not_kept_alive(busy)


class HeldQuestion(Expected):
    """Query which holds have ended while no connection carried the session, as by a force-release.

    A server that does not know the query replies with an error, which is ignored.
    """

    __slots__ = ("busy_times", "grants")

    def __init__(self, grants: list[Grant]) -> None:
        self.grants = grants
        self.busy_times = 0

    def encode(self) -> bytes:
        """The command."""
        pairs = [word for grant in self.grants for name in grant.terms.names for word in (name, grant.fence)]
        return command("SESSION.HELD", *pairs)

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        for fence in reply:
            protocol._on_gone(fence)

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        self.busy_times += 1
        protocol._rest(self, busy, self.busy_times)

    def on_rested(self, protocol: "SessionProtocol") -> None:
        protocol._expect(self, self.encode())


class Cancel(Expected):
    """Withdraw an acquire. Refused only if it was acknowledged: then this was processed once before, or its grant
    is known, and is released."""

    __slots__ = ("busy_times", "request")

    def __init__(self, request: int) -> None:
        self.request = request
        self.busy_times = 0

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        protocol.session.cancels.pop(self.request, None)
        protocol.session.let_go(self.request)
        protocol._settle(self.request)

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        self.busy_times += 1
        protocol._rest(self, busy, self.busy_times)

    def on_rested(self, protocol: "SessionProtocol") -> None:
        protocol._cancel(self)

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        grant = protocol.session.cancels.get(self.request)
        self.on_reply(protocol, None)
        if grant is not None:
            protocol._submit(Release(grant, None, protocol._now))


class Settle(Expected):
    """Confirm that pushed answers have arrived."""

    __slots__ = ("ids",)

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def on_interrupted(self, protocol: "SessionProtocol") -> None:
        protocol.session.unsettled += self.ids

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        protocol.session.unsettled += self.ids
        protocol._on_not_settled(busy)


class Subscribe(Expected):
    """Subscribe on a new connection to what was watched on the one before."""

    __slots__ = ("busy_times", "words")

    def __init__(self, words: bytes) -> None:
        self.words = words
        self.busy_times = 0

    def on_busy(self, protocol: "SessionProtocol", busy: Overloaded) -> None:
        self.busy_times += 1
        protocol._rest(self, busy, self.busy_times)

    def on_rested(self, protocol: "SessionProtocol") -> None:
        protocol._expect(self, self.words)

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        if code == "USAGE":
            # The journal ends before what was seen: it was made anew, as that of a server in memory.
            for words in protocol.on_behind():
                protocol._expect(SubscribeAnew(words), words)


class SubscribeAnew(Subscribe):
    """Subscribe from now on: what was watched belongs to a journal that no longer exists."""

    __slots__ = ()

    def on_reply(self, protocol: "SessionProtocol", reply: Any) -> None:
        protocol.on_anew((reply[b"position"], reply[b"index"]))

    def on_error(self, protocol: "SessionProtocol", code: str, detail: str) -> None:
        """Watching is no longer permitted."""
