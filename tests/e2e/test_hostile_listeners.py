"""Listeners and those who mean them ill: clear errors, bounded memory, and nobody else is harmed."""

import contextlib
import gzip
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import grpc
import hpack
import httpx
import pytest

from fencehold.wire import etcd_messages as e
from fencehold.wire import messages as m
from fencehold.wire.services import LOCK, Stub
from tests.e2e.served import PATIENCE_S, Served, ended, start, until

RSS_MIB_MORE = 150
"""By how much a listener may grow, whatever is sent."""
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS, RESET, SETTINGS, DATA = 1, 3, 4, 0
END_HEADERS, END_STREAM = 4, 1


class Listener(NamedTuple):
    port: int
    pid: int

    def rss_mib(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@contextlib.contextmanager
def listening(server: Served, place: Path, kind: str) -> Iterator[Listener]:
    port_file = place / "port"
    process = start("listener", kind, "--url", server.url, "--port", "0", "--port-file", str(port_file))
    try:
        until(lambda: port_file.exists() or process.poll() is not None)
        yield Listener(int(port_file.read_text()), process.pid)
        assert process.poll() is None
    finally:
        process.terminate()
        ended(process)


@pytest.fixture(scope="module")
def grpc_listener(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listener]:
    with listening(server, tmp_path_factory.mktemp("grpc"), "grpc") as found:
        yield found


@pytest.fixture(scope="module")
def http_listener(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listener]:
    with listening(server, tmp_path_factory.mktemp("http"), "http") as found:
        yield found


@contextlib.contextmanager
def unharmed_grpc(listener: Listener) -> Iterator[grpc.Channel]:
    """A channel for the hostile one; somebody else is served meanwhile, and the listener has not grown."""
    before = listener.rss_mib()
    options = (("grpc.use_local_subchannel_pool", 1),)
    address = f"127.0.0.1:{listener.port}"
    with grpc.insecure_channel(address, options) as hostile, grpc.insecure_channel(address, options) as other:
        yield hostile
        locks = Stub(other, LOCK)
        hold = locks.Lock(m.LockRequest(name="unharmed", ttl_ms=9_000), timeout=PATIENCE_S).hold
        locks.Unlock(m.UnlockRequest(name="unharmed", fence=hold.fence), timeout=PATIENCE_S)
    assert listener.rss_mib() < before + RSS_MIB_MORE


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def opened(listener: Listener) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", listener.port), PATIENCE_S)
    connection.sendall(PREFACE + frame(SETTINGS, 0, 0))
    return connection


def head(encoder: hpack.Encoder, method: str = "/fencehold.v1.LockService/List") -> bytes:
    said = [(":method", "POST"), (":scheme", "http"), (":path", method), (":authority", "x")]
    return bytes(encoder.encode([*said, ("content-type", "application/grpc"), ("te", "trailers")]))


def test_grpc_streams_that_are_reset_at_once(grpc_listener: Listener) -> None:
    """Thousands of calls, each withdrawn before it is answered (CVE-2023-44487)."""
    with unharmed_grpc(grpc_listener), opened(grpc_listener) as connection:
        encoder = hpack.Encoder()
        with contextlib.suppress(OSError):
            # It may well close the connection: that is an answer.
            for stream in range(1, 10_000, 2):
                call = frame(HEADERS, END_HEADERS, stream, head(encoder))
                connection.sendall(call + frame(RESET, 0, stream, struct.pack(">I", 8)))


def test_grpc_streams_that_never_end(grpc_listener: Listener) -> None:
    """Half a message on each of more streams than a connection may have: the rest is refused."""
    with unharmed_grpc(grpc_listener), opened(grpc_listener) as connection:
        encoder = hpack.Encoder()
        with contextlib.suppress(OSError):
            for stream in range(1, 6_000, 2):
                half = frame(DATA, 0, stream, b"\0" + struct.pack(">I", 60_000) + b"x" * 10)
                connection.sendall(frame(HEADERS, END_HEADERS, stream, head(encoder)) + half)


def test_grpc_thousands_of_calls_that_wait(grpc_listener: Listener) -> None:
    """As many as are sent wait, or are refused by a limit that is named; cancelled, none of them waits."""
    with unharmed_grpc(grpc_listener) as channel:
        locks = Stub(channel, LOCK)
        locks.Lock(m.LockRequest(name="crowded", ttl_ms=120_000), timeout=PATIENCE_S)
        calls = [locks.Lock.future(m.LockRequest(name="crowded", ttl_ms=1_000)) for _ in range(2_000)]
        seen = m.ExplainRequest(name="crowded", limit=1)
        with grpc.insecure_channel(f"127.0.0.1:{grpc_listener.port}", (("grpc.x", 1),)) as other:
            look = Stub(other, LOCK).Explain
            until(lambda: look(seen, timeout=PATIENCE_S).explanation.waiter_count >= 500)
            for call in calls:
                call.cancel()
            until(lambda: look(seen, timeout=PATIENCE_S).explanation.waiter_count == 0)


def test_grpc_a_small_message_that_unpacks_to_a_large_one(grpc_listener: Listener) -> None:
    """Refused by its size unpacked."""
    with unharmed_grpc(grpc_listener), opened(grpc_listener) as connection:
        bomb = gzip.compress(b"\0" * 64_000_000)
        said = [(":method", "POST"), (":scheme", "http"), (":path", "/fencehold.v1.LockService/List")]
        said += [(":authority", "x"), ("content-type", "application/grpc"), ("te", "trailers")]
        block = hpack.Encoder().encode([*said, ("grpc-encoding", "gzip")])
        connection.sendall(frame(HEADERS, END_HEADERS, 1, block))
        packed = b"\1" + struct.pack(">I", len(bomb)) + bomb
        for at in range(0, len(packed), 16_000):
            is_last = at + 16_000 >= len(packed)
            connection.sendall(frame(DATA, END_STREAM if is_last else 0, 1, packed[at : at + 16_000]))
        assert b"8" in _status(connection)


def _status(connection: socket.socket) -> bytes:
    """What the trailers of the first call say: 8 is RESOURCE_EXHAUSTED."""
    decoder, data = hpack.Decoder(), b""
    while True:
        while len(data) < 9 or len(data) < 9 + int.from_bytes(data[:3], "big"):
            more = connection.recv(1 << 16)
            assert more, "it was closed without an answer"
            data += more
        size = 9 + int.from_bytes(data[:3], "big")
        kind, payload, data = data[3], data[9:size], data[size:]
        if kind == HEADERS:
            told = {bytes(key): bytes(value) for key, value in decoder.decode(payload, raw=True)}
            if b"grpc-status" in told:
                return told[b"grpc-status"]


def test_grpc_noise_and_names_that_are_no_text(grpc_listener: Listener) -> None:
    """What is no HTTP/2 is closed; a name that is no UTF-8 is a usage error, in etcd's interface, too."""
    with unharmed_grpc(grpc_listener) as channel:
        for noise in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 4_096, PREFACE + b"\xff" * 4_096):
            with socket.create_connection(("127.0.0.1", grpc_listener.port), PATIENCE_S) as connection:
                connection.sendall(noise)
                with contextlib.suppress(ConnectionResetError):
                    while connection.recv(1 << 16):
                        pass
        with pytest.raises(grpc.RpcError) as error:
            Stub(channel, "v3lockpb.Lock", e.pool).Lock(e.LockRequest(name=b"\xff"), timeout=PATIENCE_S)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        for method in ("/v3lockpb.Lock/Nothing", "/no.such.Service/Lock", "/nothing"):
            with pytest.raises(grpc.RpcError) as error:
                channel.unary_unary(method)(b"", timeout=PATIENCE_S)
            assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED


@contextlib.contextmanager
def unharmed_http(listener: Listener) -> Iterator[str]:
    before, base = listener.rss_mib(), f"http://127.0.0.1:{listener.port}"
    yield base
    with httpx.Client(base_url=base, timeout=PATIENCE_S) as other:
        hold = other.post("/v1/locks/unharmed-http", json={"ttl_ms": 9_000}).json()["hold"]
        assert other.delete("/v1/locks/unharmed-http", params={"fence": hold["fence"]}).status_code == 204
    assert listener.rss_mib() < before + RSS_MIB_MORE


def test_http_more_connections_than_there_are_places(http_listener: Listener) -> None:
    """Opened and left, or left in the middle of a head: who comes with a request is answered."""
    with contextlib.ExitStack() as open_ones, unharmed_http(http_listener):
        for at in range(2_300):
            connection = socket.create_connection(("127.0.0.1", http_listener.port), PATIENCE_S)
            open_ones.enter_context(contextlib.closing(connection))
            if at % 2:
                connection.sendall(b"POST /v1/locks/slow HTTP/1.1\r\nhost: x\r\n")


def test_http_connections_that_are_reset(http_listener: Listener) -> None:
    """In the middle of a body, and while they wait: what they asked for is withdrawn."""
    with unharmed_http(http_listener) as base:
        assert httpx.post(f"{base}/v1/locks/reset", json={"ttl_ms": 60_000}).status_code == 200
        body = b'{"ttl_ms": 1000, "wait_ms": 60000}'
        for sent in (body, body[:5]):
            for _ in range(100):
                connection = socket.create_connection(("127.0.0.1", http_listener.port), PATIENCE_S)
                said = b"POST /v1/locks/reset HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)
                connection.sendall(said + sent)
                # Closed by a reset, and not by an end.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection.close()
        until(lambda: httpx.get(f"{base}/v1/locks/reset").json()["waiter_count"] == 0)


def test_http_what_is_no_request(http_listener: Listener) -> None:
    """Noise, two lengths, a length that lies, text that is no UTF-8, depth without end: 4xx, and on it goes."""
    posted = b"POST /v1/locks/a HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
    bodies = (
        b"\xff\xfe\x00",
        b"POST /v1/locks/a HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
        b"POST /v1/locks/a HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n",
        b"GET /v1/locks/%ff%fe HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        posted % 20_000 + b"[" * 20_000,
        posted % 16 + b'{"ttl_ms": 1e99}',
    )
    with unharmed_http(http_listener):
        for body in bodies:
            with socket.create_connection(("127.0.0.1", http_listener.port), PATIENCE_S) as connection:
                connection.sendall(body + b"\r\n\r\n")
                with contextlib.suppress(ConnectionResetError):
                    told = connection.recv(1 << 16)
                    assert told.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200")), (body[:80], told)
