"""One way to say the same over RESP, gRPC and HTTP, each by a plain client of that protocol, without the SDK.

A *speaker* is somebody with a login. What it is answered is put into the same words whatever the protocol: those
that gRPC and HTTP call the `reason`, which RESP has as the first word of an error.
"""

import base64
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import grpc
import hiredis
import httpx

from fencehold.drivers.resp.wire import command
from fencehold.wire import messages as m
from fencehold.wire.services import LOCK, SESSION, WATCH, Stub
from tests.e2e.grpc_client import reason_of

PATIENCE_S = 60
HELD, NOT_ACQUIRED, DONE = "held", "not acquired", "done"
REASONS = {
    "NOTOWNER": "NOT_OWNER",
    "RELEASED": "ALREADY_RELEASED",
    "QUEUEFULL": "QUEUE_FULL",
    "NOSESSION": "NO_SESSION",
    "WRONGPASS": "UNAUTHENTICATED",
    "NOAUTH": "UNAUTHENTICATED",
}
"""What RESP calls otherwise."""


class Told(NamedTuple):
    """An answer: what became of it, and the hold if there is one."""

    word: str
    fence: int = 0
    names: tuple[str, ...] = ()


class Seen(NamedTuple):
    """What is seen of a name: fences and modes of who holds it, and how many wait."""

    holders: tuple[tuple[int, str], ...]
    waiters: int


class Wish(NamedTuple):
    """An acquire."""

    names: tuple[str, ...]
    wait_ms: int = 0
    ttl_ms: int = 60_000
    mode: str = "X"
    permits: int = 0
    owner: str = ""
    request: int = 0


class Speaker(Protocol):
    """Who speaks a protocol, with a login of its own."""

    refusal: str
    """Why the login was not taken; empty: it was."""

    def acquire(self, wish: Wish) -> Told: ...
    def release(self, names: tuple[str, ...], fence: int) -> Told: ...
    def extend(self, name: str, fence: int, ttl_ms: int) -> Told: ...
    def force_release(self, name: str, fence: int) -> Told: ...
    def look(self, name: str) -> Seen: ...
    def watch(self, prefix: str) -> "Watch": ...
    def leave(self) -> None: ...


Login = tuple[str, str]
Make = Callable[[Login], Speaker]


class Watch:
    """What is told of names, as (kind, fence), in a thread of its own until it is closed."""

    def __init__(self, told: Iterator[tuple[str, int]], close: Callable[[], None]) -> None:
        self.told: list[tuple[str, int]] = []
        self.close = close
        threading.Thread(target=self._read, args=(told,), daemon=True).start()

    def _read(self, told: Iterator[tuple[str, int]]) -> None:
        # However it is closed: by then the test has what it waited for.
        with contextlib.suppress(OSError, grpc.RpcError, httpx.HTTPError, ValueError):
            self.told.extend(told)


class RespSpeaker:
    """A bare connection, as any library for Redis has."""

    def __init__(self, port: int, login: Login) -> None:
        self._port, self._login = port, login
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self._parser = hiredis.Reader()
        self.refusal = self._refused(self.call("HELLO", 3, "AUTH", *login))

    def opened(self) -> "RespSpeaker":
        """With a session, which ends with its connection."""
        self.call("SESSION.OPEN", "TTL", 30_000, "GRACE", 0)
        return self

    def call(self, *words: str | int) -> Any:
        """The reply to a command; an error is returned, not raised."""
        self._socket.sendall(command(*words))
        while isinstance(reply := self._next(), hiredis.PushNotification):
            pass
        return reply

    def acquire(self, wish: Wish) -> Told:
        many: list[str | int] = ["LOCK.ACQUIRE", *wish.names]
        if len(wish.names) > 1:
            many = ["LOCK.MACQUIRE", len(wish.names), *wish.names]
        words = [*many, "WAIT", wish.wait_ms, "TTL", wish.ttl_ms]
        if wish.permits:
            words += ["LIMIT", wish.permits]
        else:
            words += ["MODE", wish.mode]
        words += ["OWNER", wish.owner] if wish.owner else []
        words += ["REQUEST", wish.request] if wish.request else []
        reply = self.call(*words)
        if reply is None:
            return Told(NOT_ACQUIRED)
        if self._refused(reply):
            return Told(self._refused(reply))
        return Told(HELD, reply[b"fence"], tuple(sorted(name.decode() for name in reply[b"names"])))

    def release(self, names: tuple[str, ...], fence: int) -> Told:
        if len(names) > 1:
            return self._done("LOCK.MRELEASE", len(names), *names, fence)
        return self._done("LOCK.RELEASE", *names, fence)

    def extend(self, name: str, fence: int, ttl_ms: int) -> Told:
        return self._done("LOCK.EXTEND", name, fence, ttl_ms)

    def force_release(self, name: str, fence: int) -> Told:
        return self._done("LOCK.BREAK", name, "FENCE", fence)

    def look(self, name: str) -> Seen:
        seen = self.call("LOCK.INFO", name)
        held = tuple((hold[b"fence"], hold[b"mode"].decode()) for hold in seen[b"holds"])
        return Seen(held, seen[b"waiter_count"])

    def watch(self, prefix: str) -> Watch:
        other = RespSpeaker(self._port, self._login)
        other.call("LOCK.WATCH", prefix)
        return Watch(other._events(), other.leave)

    def leave(self) -> None:
        # Shut down, not only closed: a thread that waits for an answer would keep it open.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _events(self) -> Iterator[tuple[str, int]]:
        while True:
            push = self._next()
            yield push[1][b"kind"].decode(), push[1][b"fence"]

    def _done(self, *words: str | int) -> Told:
        return Told(self._refused(self.call(*words)) or DONE)

    def _refused(self, reply: Any) -> str:
        if not isinstance(reply, hiredis.ReplyError):
            return ""
        code = str(reply).partition(" ")[0]
        return REASONS.get(code, code)

    def _next(self) -> Any:
        while (reply := self._parser.gets()) is False:
            data = self._socket.recv(1 << 16)
            if not data:
                raise ConnectionResetError
            self._parser.feed(data)
        return reply


class GrpcSpeaker:
    """A channel and a session."""

    MODES = {"X": m.MODE_EXCLUSIVE, "S": m.MODE_SHARED}  # noqa: RUF012 - never changed
    WORDS = {m.MODE_EXCLUSIVE: "X", m.MODE_SHARED: "S", m.MODE_PERMIT: "P"}  # noqa: RUF012

    def __init__(self, port: int, login: Login) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._login = (("authorization", basic(login)),)
        self._locks, self._watches = Stub(self._channel, LOCK), Stub(self._channel, WATCH)
        self.refusal = self.session = ""
        try:
            opened = Stub(self._channel, SESSION).Open(m.OpenRequest(), **self._call)
            self.session = opened.session
        except grpc.RpcError as error:
            self.refusal = reason_of(error)

    @property
    def _call(self) -> dict[str, Any]:
        return {"metadata": self._login, "timeout": PATIENCE_S}

    def acquire(self, wish: Wish) -> Told:
        said: dict[str, Any] = {"session": self.session, "wait_ms": wish.wait_ms, "ttl_ms": wish.ttl_ms}
        said |= {"owner": wish.owner, "request_id": str(wish.request or "")}
        said["mode"] = m.MODE_PERMIT if wish.permits else self.MODES[wish.mode]
        try:
            if len(wish.names) > 1:
                answer = self._locks.MultiLock(m.MultiLockRequest(names=wish.names, **said), **self._call)
            else:
                request = m.LockRequest(name=wish.names[0], permits=wish.permits, **said)
                answer = self._locks.Lock(request, **self._call)
        except grpc.RpcError as error:
            return Told(reason_of(error))
        if not answer.HasField("hold"):
            return Told(NOT_ACQUIRED)
        return Told(HELD, answer.hold.fence, tuple(answer.hold.names))

    def release(self, names: tuple[str, ...], fence: int) -> Told:
        request = m.UnlockRequest(session=self.session, name=names[0], fence=fence)
        return self._done(self._locks.Unlock, request)

    def extend(self, name: str, fence: int, ttl_ms: int) -> Told:
        request = m.ExtendRequest(session=self.session, name=name, fence=fence, ttl_ms=ttl_ms)
        return self._done(self._locks.Extend, request)

    def force_release(self, name: str, fence: int) -> Told:
        return self._done(self._locks.Break, m.BreakRequest(name=name, fence=fence))

    def look(self, name: str) -> Seen:
        seen = self._locks.Explain(m.ExplainRequest(name=name), **self._call).explanation
        return Seen(tuple((each.fence, self.WORDS[each.mode]) for each in seen.holders), seen.waiter_count)

    def watch(self, prefix: str) -> Watch:
        call = self._watches.Watch(m.WatchRequest(prefix=prefix), metadata=self._login)
        assert next(call).HasField("watching")
        return Watch(((each.event.kind_text, each.event.fence) for each in call), call.cancel)

    def leave(self) -> None:
        self._channel.close()

    def _done(self, call: Any, request: Any) -> Told:
        try:
            call(request, **self._call)
        except grpc.RpcError as error:
            return Told(reason_of(error))
        return Told(DONE)


class HttpSpeaker:
    """A client that sends one request at a time, as a script does."""

    MODES = {"X": "exclusive", "S": "shared"}  # noqa: RUF012 - never changed
    WORDS = {"exclusive": "X", "shared": "S", "permit": "P"}  # noqa: RUF012

    def __init__(self, port: int, login: Login) -> None:
        self._port, self._headers = port, {"authorization": basic(login)}
        self._base = f"http://127.0.0.1:{port}"
        self._http = self._client()
        answer = self._http.get("/v1/locks", params={"page_size": 1})
        self.refusal = "" if answer.status_code == 200 else answer.json()["reason"]
        self._waiting: list[Any] = []

    def _client(self) -> httpx.Client:
        # In the clear: else each reads a hundred certificates and more, which takes 20 ms of a processor.
        return httpx.Client(base_url=self._base, headers=self._headers, timeout=PATIENCE_S, verify=False)

    def acquire(self, wish: Wish) -> Told:
        said: dict[str, Any] = {"wait_ms": wish.wait_ms, "ttl_ms": wish.ttl_ms}
        said |= {"owner": wish.owner} if wish.owner else {}
        said |= {"request_id": str(wish.request)} if wish.request else {}
        if len(wish.names) > 1:
            status, told = self._post("/v1/multi", {**said, "names": wish.names, "mode": self.MODES[wish.mode]})
        else:
            said |= {"permits": wish.permits} if wish.permits else {"mode": self.MODES[wish.mode]}
            status, told = self._post(f"/v1/locks/{wish.names[0]}", said)
        if status == 200:
            return Told(HELD, told["hold"]["fence"], tuple(told["hold"]["names"]))
        return Told(NOT_ACQUIRED if told["reason"] == "NOT_ACQUIRED" else told["reason"])

    def release(self, names: tuple[str, ...], fence: int) -> Told:
        return self._done(self._http.delete(f"/v1/locks/{names[0]}", params={"fence": fence}))

    def extend(self, name: str, fence: int, ttl_ms: int) -> Told:
        return self._done(self._http.patch(f"/v1/locks/{name}", json={"fence": fence, "ttl_ms": ttl_ms}))

    def force_release(self, name: str, fence: int) -> Told:
        return self._done(self._http.post(f"/v1/break/{name}", json={"fence": fence}))

    def look(self, name: str) -> Seen:
        seen = self._http.get(f"/v1/locks/{name}").json()
        held = tuple((each["fence"], self.WORDS[each["mode"]]) for each in seen["holders"])
        return Seen(held, seen["waiter_count"])

    def watch(self, prefix: str) -> Watch:
        client = self._client()
        stream = client.send(client.build_request("GET", "/v1/events", params={"prefix": prefix}), stream=True)
        lines = stream.iter_lines()
        assert next(lines).startswith(": from")
        return Watch(_sse(lines), client.close)

    def leave(self) -> None:
        for waiting in self._waiting:
            with contextlib.suppress(OSError):
                waiting.shutdown(socket.SHUT_RDWR)
        self._http.close()

    def _post(self, path: str, said: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """By a connection of its own, which can be closed while it waits."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_S)
        connection.connect()
        self._waiting.append(connection.sock)
        try:
            connection.request("POST", path, json.dumps(said), self._headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            self._waiting.remove(connection.sock)
            connection.close()

    def _done(self, answer: httpx.Response) -> Told:
        return Told(DONE if answer.is_success else answer.json()["reason"])


def _sse(lines: Iterator[str]) -> Iterator[tuple[str, int]]:
    for line in lines:
        if line.startswith("data: "):
            told = json.loads(line.removeprefix("data: "))
            yield told["kind"], told["fence"] or 0


def basic(login: Login) -> str:
    """The header of a login."""
    return "Basic " + base64.b64encode(":".join(login).encode()).decode()


SPEAKERS: dict[str, Callable[[int, Login], Any]] = {
    "resp": lambda port, login: RespSpeaker(port, login).opened(),
    "grpc": GrpcSpeaker,
    "http": HttpSpeaker,
}
