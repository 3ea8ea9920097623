"""Clients that load a server with raw sockets and remember all that was acknowledged, while it is being killed."""

import socket
import threading
from dataclasses import dataclass, field
from typing import Any

import hiredis

Words = tuple[str | int, ...]


def frame(*words: str | int) -> bytes:
    """One command as bytes."""
    encoded = [str(word).encode() for word in words]
    return b"*%d\r\n" % len(encoded) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded)


class Wire:
    """One blocking connection in RESP3."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._reader = hiredis.Reader(encoding="utf-8")
        self.call("HELLO", 3)

    def call(self, *words: str | int) -> Any:
        """Send a command and wait for its reply; an error is raised."""
        self.send(*words)
        return self.reply()

    def send(self, *words: str | int) -> None:
        self._socket.sendall(frame(*words))

    def reply(self) -> Any:
        """The next reply; pushes are passed over."""
        while (reply := self._reader.gets()) is False or isinstance(reply, hiredis.PushNotification):
            if reply is not False:
                continue
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._reader.feed(data)
        if isinstance(reply, hiredis.ReplyError):
            raise reply
        return reply

    def close(self) -> None:
        self._socket.close()


@dataclass
class Known:
    """What one client knows of its names: which it surely holds, and which it surely gave back."""

    held: dict[str, int] = field(default_factory=dict)
    free: dict[str, int] = field(default_factory=dict)
    """Names it released, with the fence they had."""
    asked: str = ""
    """The name whose acquire or release is under way: nothing is known of it."""
    fences: list[int] = field(default_factory=list)
    """Every fence that was acknowledged, in order."""


class Worker:
    """A session that acquires and releases names of its own until its server is gone, then on the next one."""

    def __init__(self, number: int) -> None:
        self.known = Known()
        self._number = number
        self._turn = 0
        self._session: tuple[int, str] | None = None
        self._wire: Wire | None = None
        self._thread: threading.Thread | None = None

    def begin(self, port: int) -> None:
        """Come back to the session, or open it, and go on."""
        wire = self._wire = Wire(port)
        if self._session is None:
            opened = wire.call("SESSION.OPEN", "TTL", 600_000, "GRACE", 600_000)
            self._session = opened["session"], opened["secret"]
        else:
            wire.call("SESSION.RESUME", *self._session)
            self._find_out(wire)
        self._thread = threading.Thread(target=self._work, args=(wire,), daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Wait until the server's end was noticed."""
        assert self._thread is not None
        self._thread.join(20)
        assert not self._thread.is_alive()

    @property
    def session(self) -> int:
        assert self._session is not None
        return self._session[0]

    def leave(self) -> None:
        if self._wire is not None:
            self._wire.close()

    def _find_out(self, wire: Wire) -> None:
        """Learn what became of the request whose answer was lost."""
        name = self.known.asked
        if not name:
            return
        holds = wire.call("LOCK.INFO", name)["holds"]
        self.known.asked = ""
        if holds:
            assert [hold["session"] for hold in holds] == [self.session]
            self.known.held[name] = holds[0]["fence"]
            self.known.free.pop(name, None)
        else:
            self.known.held.pop(name, None)

    def _work(self, wire: Wire) -> None:
        known = self.known
        try:
            while True:
                self._turn += 1
                name = f"w{self._number}:{self._turn % 40}"
                known.asked = name
                if name in known.held:
                    fence = known.held[name]
                    assert wire.call("LOCK.RELEASE", name, fence) == "OK"
                    del known.held[name]
                    known.free[name] = fence
                else:
                    grant = wire.call("LOCK.ACQUIRE", name, "WAIT", 0)
                    assert grant is not None
                    known.held[name] = grant["fence"]
                    known.free.pop(name, None)
                    known.fences.append(grant["fence"])
                known.asked = ""
        except OSError:
            wire.close()
