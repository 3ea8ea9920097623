"""The listeners for gRPC and HTTP over TLS: they let in whom a node lets in, and say why not in the same way."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from fencehold.doors.grpc.door import GrpcDoor
from fencehold.doors.http.door import HttpDoor
from fencehold.drivers.address import TlsFiles
from fencehold.drivers.http2.frames import PREFACE, SETTINGS, frame
from fencehold.drivers.tls import client_context
from fencehold.gateway.listener import tls_of
from fencehold.security.issuer import Pair
from fencehold.security.listener import HandshakeBounds
from fencehold.security.tls import ServerTls
from tests.unit.client.service import until
from tests.unit.security.test_revocation import Office as Authority

KINDS = pytest.mark.parametrize("kind", ["grpc", "http"])
Listener = GrpcDoor | HttpDoor
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
GREETINGS = {"grpc": PREFACE + frame(SETTINGS), "http": b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"}
"""What a client begins with, to which it has an answer."""


class Office(Authority):
    """One whose certificates a listener asks for, and does without."""

    @property
    def tls(self) -> ServerTls:
        tls = tls_of(*self.server, self.issuer.ca.cert, "optional", self.crl)
        assert tls is not None
        return tls

    def context(self, pair: Pair | None = None) -> ssl.SSLContext:
        return client_context(TlsFiles(self.issuer.ca.cert, *(pair or ())))


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


@asynccontextmanager
async def listening(kind: str, tls: ServerTls | None) -> AsyncIterator[Listener]:
    """One before a service that is away: what is looked at here happens before it is asked."""
    made = GrpcDoor if kind == "grpc" else HttpDoor
    door = made("fencehold://127.0.0.1:1", port=0, tls=tls)
    await door.start()
    try:
        async with asyncio.timeout(60):
            yield door
    finally:
        await door.stop()


async def greeted(kind: str, door: Listener, context: ssl.SSLContext | None) -> Stream:
    """A connection that was answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port, ssl=context)
    writer.write(GREETINGS[kind])
    assert await reader.read(1)
    return reader, writer


async def answer_to(door: Listener, words: bytes) -> bytes:
    """All that is said to who speaks plainly."""
    reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
    writer.write(words)
    try:
        return await reader.read()
    finally:
        writer.close()


async def ended(stream: Stream) -> None:
    """Read until the other side closes."""
    with suppress(OSError):
        while await stream[0].read(1 << 12):
            pass
    stream[1].close()


@KINDS
async def test_a_revoked_certificate_is_not_let_in_and_one_that_is_in_is_put_out(
    kind: str, office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    """By every listener, as by a node; nobody else is dropped, and the log says why."""
    caplog.set_level(logging.INFO, "fencehold")
    async with listening(kind, office.tls) as door:
        good, bad = [await greeted(kind, door, office.context(each)) for each in (office.good, office.bad)]
        office.issuer.revoke("bad")
        door.reload()
        await ended(bad)
        with pytest.raises(OSError, match="revoked"):
            # In TLS 1.3 a client has shaken hands before it is told.
            await ended_with_error(await greeted(kind, door, office.context(office.bad)))
        good[1].write(GREETINGS["http"] if kind == "http" else frame(SETTINGS))
        assert await good[0].read(1)
        good[1].close()
        (await greeted(kind, door, office.context()))[1].close()
        why = [record.facts["why"] for record in caplog.records if record.msg == "refused"]  # type: ignore[attr-defined]
        assert why == [
            "the client certificate was revoked",
            "its client certificate is not trusted: certificate revoked",
        ]


async def ended_with_error(stream: Stream) -> None:
    while await stream[0].read(1 << 12):
        pass


@KINDS
async def test_certificates_are_read_again_when_a_file_changes(
    kind: str, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who connects from then on is shown the new one; who is there stays."""
    monkeypatch.setattr("fencehold.security.tls.WATCH_S", 0.05)
    async with listening(kind, office.tls) as door:
        before = await greeted(kind, door, office.context())
        shown = before[1].get_extra_info("ssl_object").getpeercert(True)
        renewed = office.issuer.for_node("renewed", ["127.0.0.1"])
        for old, new in zip(office.server, renewed, strict=True):
            old.write_bytes(new.read_bytes())
        seen = shown
        while seen == shown:
            now = await greeted(kind, door, office.context())
            seen = now[1].get_extra_info("ssl_object").getpeercert(True)
            now[1].close()
        before[1].write(GREETINGS["http"] if kind == "http" else frame(SETTINGS))
        assert await before[0].read(1)
        before[1].close()


@KINDS
async def test_handshakes_that_are_left_open_keep_nobody_out(kind: str, office: Office) -> None:
    """There are so many at once: the oldest makes room for the next."""
    async with listening(kind, office.tls) as door:
        most = HandshakeBounds().handshakes_max
        opened = [await asyncio.open_connection("127.0.0.1", door.port) for _ in range(most + 8)]
        await ended(opened[0])
        (await greeted(kind, door, office.context(office.good)))[1].close()
        for _, writer in opened:
            writer.close()


async def test_who_speaks_plainly_to_http_over_tls_is_told_so(office: Office) -> None:
    """In its own protocol."""
    async with listening("http", office.tls) as door:
        said = await answer_to(door, GREETINGS["http"])
        assert said.startswith(b"HTTP/1.1 400")
        assert b"https://" in said


async def test_a_request_over_tls_is_known_as_one(office: Office) -> None:
    """By its scheme: cookies of the dashboard are for such requests only."""
    async with listening("http", office.tls) as door:
        assert isinstance(door, HttpDoor)
        _, writer = await greeted("http", door, office.context())
        made: list[Any] = list(door._server.server_state.connections)
        assert [each.scheme for each in made] == ["https"]
        writer.close()


async def test_who_speaks_plainly_to_grpc_over_tls_is_left_and_told_of_in_the_log(
    office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer would have gRPC libraries connect again at once, and again; without one they pause."""
    async with (
        listening("grpc", office.tls) as door,
        grpc.aio.insecure_channel(f"127.0.0.1:{door.port}") as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=20)
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
        told = [record.facts["why"] for record in caplog.records if record.msg == "refused"]  # type: ignore[attr-defined]
        assert set(told) == {"it does not speak TLS"}
        assert len(told) < 4


@KINDS
async def test_who_speaks_tls_where_it_is_not_spoken_is_told_of_in_the_log(
    kind: str, office: Office, caplog: pytest.LogCaptureFixture
) -> None:
    """The client's own library says that this is no TLS."""
    async with listening(kind, None) as door:
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", door.port, ssl=office.context())
        await until(lambda: "refused" in [record.msg for record in caplog.records])
        (record,) = [record for record in caplog.records if record.msg == "refused"]
        assert record.facts["why"] == "it speaks TLS, and this listener does not"  # type: ignore[attr-defined]


async def test_who_speaks_http_1_to_the_grpc_listener_can_read_why_not(office: Office) -> None:
    """Nothing stands before the answer, over TLS neither."""
    async with listening("grpc", None) as door:
        assert (await answer_to(door, GREETINGS["http"])).startswith(b"HTTP/1.1 400 Bad Request\r\n")
    async with listening("grpc", office.tls) as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port, ssl=office.context())
        writer.write(GREETINGS["http"])
        assert (await reader.read()).startswith(b"HTTP/1.1 400 Bad Request\r\n")
        writer.close()
