"""A conversation with the session protocol: the test plays the server, the network and the clock."""

from typing import Any

from hiredis import Reader

from fencehold.client.endpoints import Rotation
from fencehold.client.protocol.connection import Connect, Drop, Settings, Sweep
from fencehold.client.protocol.requests import Acquire
from fencehold.client.protocol.session import SessionProtocol
from fencehold.drivers.address import Endpoint
from fencehold.drivers.resp.wire import bulk
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant

NODES = (Endpoint("one", 1), Endpoint("two", 2))
OWNER = b"$5\r\nOWNER\r\n$4\r\ntask\r\n"


class Slot:
    """A promise that a test can look at."""

    def __init__(self) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self.kept = False

    def done(self) -> bool:
        return self.kept

    def set_result(self, result: Any, /) -> None:
        self.result, self.kept = result, True

    def set_exception(self, error: BaseException, /) -> None:
        self.error, self.kept = error, True


class Talk:
    """A protocol with a 30 s session, asked over one of two nodes. Time is what the test says."""

    def __init__(self, *, ttl: float = 30.0, grace: float = 1.0, nodes: tuple[Endpoint, ...] = NODES) -> None:
        self.now = 100.0
        self.at_ms = 1_000
        self.session = 7
        self.protocol = SessionProtocol(Settings(ttl=ttl, grace=grace), Rotation(nodes, lambda: 1.0))
        self.connected_to: Endpoint | None = None
        self.parked = self.closed = 0

    # The network.

    def sent(self) -> list[list[str]]:
        """The commands sent since the last look, in words."""
        reader = Reader()
        reader.feed(b"".join(self.protocol.pipeline.outbox))
        self.protocol.pipeline.outbox.clear()
        words = []
        while (command := reader.gets()) is not False:
            words.append([word.decode() for word in command])
        return words

    def carry_out(self) -> None:
        for order in self.protocol.connection.orders:
            if isinstance(order, Connect):
                self.connected_to = order.endpoint
            elif isinstance(order, Drop):
                self.connected_to = None
                self.parked += order.park
                self.closed += not order.park
            elif isinstance(order, Sweep):
                self.parked = 0
        self.protocol.connection.orders.clear()

    def greet(self) -> list[list[str]]:
        """Accept the connection that was ordered; says what was sent first."""
        self.carry_out()
        assert self.connected_to is not None
        self.protocol.on_connected(self.now)
        words = self.sent()
        self.reply({"server": "fencehold"})
        return words

    def open(self) -> None:
        """Ask for a session and get it."""
        self.protocol.ready(Slot(), self.now)
        self.greet()
        self.opened()

    def opened(self) -> None:
        ttl_ms = round(self.protocol.settings.ttl * 1000)
        grace_ms = round(self.protocol.settings.grace * 1000)
        self.reply(
            {"session": self.session, "secret": "s", "ttl_ms": ttl_ms, "grace_ms": grace_ms, "at": self.at_ms}
        )
        self.carry_out()

    def lose_connection(self) -> None:
        self.connected_to = None
        self.protocol.on_disconnected(self.now)

    def resume(self, ended: tuple[int, ...] = ()) -> list[list[str]]:
        """Wait for the next connection, take the session up on it, and say what was sent after that.

        Holds are asked about first: those with the fences `ended` are told to have ended.
        """
        self.carry_out()
        while self.connected_to is None:
            self.wait(max(0.0, self.protocol.wake_at - self.now))
            self.carry_out()
        greeting = self.greet()
        assert greeting[1] == ["SESSION.RESUME", str(self.session), "s"]
        self.opened()
        words = self.sent()
        while words and words[0][0] == "SESSION.HELD":
            self.reply([fence for fence in ended if str(fence) in words[0]])
            # What has run out meanwhile is released behind it.
            words = words[1:] + self.sent()
        return words

    # The server.

    def reply(self, *replies: Any) -> None:
        self.protocol.on_data(b"".join(encode(reply) for reply in replies), self.now)

    def push(self, *words: Any) -> None:
        self.protocol.on_data(b">%d\r\n" % len(words) + b"".join(encode(word) for word in words), self.now)

    def fail(self, message: str) -> None:
        self.protocol.on_data(f"-{message}\r\n".encode(), self.now)

    def grant(self, fence: int, *, ttl_ms: int = 0) -> dict[str, Any]:
        """A grant as the server words it."""
        return {"names": ["a"], "name": "a", "fence": fence, "ttl_ms": ttl_ms or 30_000, "at": self.at_ms} | {
            "own_ttl": int(bool(ttl_ms))
        }

    # The clock.

    def wait(self, seconds: float) -> None:
        """Let time pass, calling the timer whenever it is due."""
        until = self.now + seconds
        while self.protocol.wake_at <= until:
            self.now = max(self.now, self.protocol.wake_at)
            self.protocol.on_timer(self.now)
        self.now = until

    def wait_alive(self, seconds: float) -> None:
        """Let time pass on both sides, answering keep-alives."""
        until = self.now + seconds
        while self.protocol.wake_at <= until:
            self.at_ms += round((self.protocol.wake_at - self.now) * 1000)
            self.wait(self.protocol.wake_at - self.now)
            for command in self.sent():
                self.reply({"at": self.at_ms, "ttl_ms": 30_000} if command[0] == "SESSION.KEEPALIVE" else "OK")
        self.now = until

    # The application.

    def ask(self, name: str = "a", **terms: Any) -> tuple[Acquire, Slot]:
        slot = Slot()
        return self.protocol.acquire(Terms((name,), **terms), OWNER, slot, self.now), slot

    def hold(self, fence: int = 1, *, ttl_ms: int = 0) -> Grant:
        """Ask for a name and get it."""
        _, slot = self.ask()
        self.sent()
        self.reply(self.grant(fence, ttl_ms=ttl_ms))
        assert isinstance(slot.result, Grant)
        return slot.result


def encode(value: Any) -> bytes:
    """A value as a server says it."""
    if value is None:
        return b"_\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, dict):
        return b"%%%d\r\n" % len(value) + b"".join(encode(key) + encode(item) for key, item in value.items())
    if isinstance(value, list):
        return b"*%d\r\n" % len(value) + b"".join(encode(item) for item in value)
    return bulk(value.encode())
