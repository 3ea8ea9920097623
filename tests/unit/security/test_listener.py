"""A listener that speaks TLS: who is let in, what is bounded, and what each side is told."""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import hiredis
import pytest
import uvloop

from fencehold import Unavailable, UsageError, aio
from fencehold.cli.wire import connect as wire_to
from fencehold.doors.resp.bounds import Bounds
from fencehold.drivers.address import TlsFiles
from fencehold.drivers.tls import ClientTls
from fencehold.security.tls import Clients, ServerTls, server_context
from fencehold.server import Config, Server
from tests.unit.client.service import until
from tests.unit.security.authority import Authority, Pair, tls_of, url_of

LOOPS = pytest.mark.parametrize(
    "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
Loop = Callable[[], asyncio.AbstractEventLoop]


class Secured:
    """A server that speaks TLS, and why it let somebody not in."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.port = server.port
        self.refused: list[str] = []
        self.complaints: list[object] = []
        server.door.on_refused = lambda _, why: self.refused.append(why)

    async def until(self, true: Callable[[], object]) -> None:
        await until(lambda: bool(true()))


@asynccontextmanager
async def secured(tls: ServerTls | None, bounds: Bounds | None = None) -> AsyncIterator[Secured]:
    """A server of its own; whatever the loop complains of fails the test."""
    complaints: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with asyncio.timeout(60), Server(Config(port=0, tls=tls, listener=bounds or Bounds())) as server:
        yield Secured(server)
    assert not complaints, complaints


def run(loop_factory: Loop, scenario: Callable[[], object]) -> None:
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(scenario())  # type: ignore[arg-type]


async def refusal(url: str) -> str:
    """What a client is told that cannot connect."""
    with pytest.raises(Unavailable) as failed:
        async with aio.connect(url, connect_timeout=2):
            pass
    return str(failed.value)


@LOOPS
def test_locks_are_had_over_tls(tmp_path: Path, loop_factory: Loop) -> None:
    """With a certificate that its authority vouches for; the same verbs, the same fences."""
    authority = Authority(tmp_path)

    async def scenario() -> None:
        async with secured(tls_of(authority)) as box, aio.connect(url_of(box.port, authority)) as client:
            async with client.lock("orders") as hold:
                assert hold.fence == 1
            for connection in box.server.door.connections:
                assert connection.peer.startswith("127.0.0.1:")

    run(loop_factory, scenario)


@LOOPS
def test_what_is_long_comes_through_whole(tmp_path: Path, loop_factory: Loop) -> None:
    """Many commands at once, and replies larger than a TLS record."""
    authority = Authority(tmp_path)

    async def scenario() -> None:
        async with secured(tls_of(authority)) as box:
            context = ClientTls(TlsFiles(authority.file))()
            reader, writer = await asyncio.open_connection("127.0.0.1", box.port, ssl=context)
            text = b"x" * 50_000
            writer.write(b"*2\r\n$4\r\nECHO\r\n$%d\r\n%b\r\n" % (len(text), text) * 40)
            parser = hiredis.Reader()
            replies: list[object] = []
            while len(replies) < 40:
                parser.feed(await reader.read(1 << 16))
                while (reply := parser.gets()) is not False:
                    replies.append(reply)
            assert set(replies) == {text}
            writer.close()
            await writer.wait_closed()

    run(loop_factory, scenario)


@LOOPS
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_certificate_is_wanted(tmp_path: Path, loop_factory: Loop, version: ssl.TLSVersion) -> None:
    """Who has none is told to name one, and the server says that it was shown none."""
    authority = Authority(tmp_path)
    tls = tls_of(authority, clients=Clients.REQUIRED)
    mine = authority.client("billing")

    async def scenario() -> None:
        async with secured(tls) as box:
            context = ClientTls(TlsFiles(authority.file))()
            context.maximum_version = version
            with pytest.raises(Unavailable, match="client certificate"):
                async with aio.connect(f"fenceholds://127.0.0.1:{box.port}", tls=context, connect_timeout=1):
                    pass
            await box.until(lambda: box.refused)
            assert set(box.refused) == {"it showed no client certificate, and one is required"}
            async with aio.connect(url_of(box.port, authority, mine)) as client, client.lock("orders"):
                pass

    run(loop_factory, scenario)


@LOOPS
def test_tls_to_a_plain_listener(tmp_path: Path, loop_factory: Loop) -> None:
    """The client is told which scheme to use, and the server says what came."""
    authority = Authority(tmp_path)

    async def scenario() -> None:
        async with secured(None) as box:
            assert "it does not speak TLS: use fencehold://" in await refusal(url_of(box.port, authority))
            assert set(box.refused) == {"it speaks TLS, and this listener does not"}

    run(loop_factory, scenario)


@LOOPS
def test_plain_to_a_tls_listener(tmp_path: Path, loop_factory: Loop) -> None:
    """A client that does not speak TLS is told so in its own protocol: ours, redis-cli, any."""
    authority = Authority(tmp_path)

    async def scenario() -> None:
        async with secured(tls_of(authority)) as box:
            reader, writer = await asyncio.open_connection("127.0.0.1", box.port)
            writer.write(b"*1\r\n$4\r\nPING\r\n")
            assert (await reader.read()).startswith(b"-ERR this listener of a Fencehold server speaks TLS")
            writer.close()
            with pytest.raises((Unavailable, UsageError), match="fenceholds://"):
                async with aio.connect(f"fencehold://127.0.0.1:{box.port}", connect_timeout=1):
                    pass
            assert set(box.refused) == {"it does not speak TLS"}

    run(loop_factory, scenario)


@LOOPS
@pytest.mark.parametrize(
    ("pair", "host", "told", "noted"),
    [
        ("expired", "127.0.0.1", "certificate has expired", "has expired"),
        ("elsewhere", "127.0.0.1", "IP address mismatch", "is the host it calls in it?"),
        ("stranger", "127.0.0.1", "its certificate is not trusted", "knows no authority that signed it"),
    ],
)
def test_a_server_certificate_that_is_not_right(
    tmp_path: Path, loop_factory: Loop, pair: str, host: str, told: str, noted: str
) -> None:
    """Expired, of another host, of an unknown authority: each side says which."""
    authority, stranger = Authority(tmp_path / "own"), Authority(tmp_path / "stranger")
    good = authority.server()
    if pair == "elsewhere":
        good = authority.server("locks.example.org", name="elsewhere")
    if pair == "stranger":
        good = stranger.server()
    tls = tls_of(authority, good)

    async def scenario() -> None:
        async with secured(tls) as box:
            if pair == "expired":
                # No server starts with one: it may expire while it runs.
                old = authority.server(expired=True, name="expired")
                certificates = box.server.door.certificates
                assert certificates is not None
                certificates.context.load_cert_chain(old.cert, old.key)
            assert told in await refusal(url_of(box.port, authority, host=host))
            await box.until(lambda: box.refused)
            # Event loops close without a word; all others say why.
            assert all("perhaps it does not trust" in why for why in box.refused), box.refused
            box.refused.clear()
            with pytest.raises(Unavailable, match=told):
                await asyncio.to_thread(greeted, url_of(box.port, authority, host=host))
            # Of a first client that had tried once more, something may come in between.
            await box.until(lambda: any(noted in why for why in box.refused))

    run(loop_factory, scenario)


@LOOPS
@pytest.mark.parametrize(("kind", "told"), [("expired", "has expired"), ("stranger", "knows no authority")])
def test_a_client_certificate_that_is_not_right(tmp_path: Path, loop_factory: Loop, kind: str, told: str) -> None:
    """Expired, or of an unknown authority: the client is told so, and the server says so."""
    authority, stranger = Authority(tmp_path / "own"), Authority(tmp_path / "stranger")
    mine = authority.client("billing", expired=True) if kind == "expired" else stranger.client("billing")

    async def scenario() -> None:
        async with secured(tls_of(authority, clients=Clients.OPTIONAL)) as box:
            assert told in await refusal(url_of(box.port, authority, mine))
            assert all("its client certificate is not trusted" in why for why in box.refused), box.refused

    run(loop_factory, scenario)


@LOOPS
def test_a_thousand_half_open_handshakes_harm_nobody(tmp_path: Path, loop_factory: Loop) -> None:
    """Half of them say nothing, half of them half a hello. Others connect meanwhile, and none stays open."""
    authority = Authority(tmp_path)

    async def scenario() -> None:
        bounds = Bounds(handshakes_max=200, handshake_seconds_max=8.0)
        async with secured(tls_of(authority), bounds) as box:
            before = len(os.listdir("/proc/self/fd"))
            idle = [socket.create_connection(("127.0.0.1", box.port)) for _ in range(500)]
            for _ in range(500):
                idle.append(socket.create_connection(("127.0.0.1", box.port)))
                idle[-1].sendall(b"\x16\x03\x01\x02\x00\x01")
            listener = box.server.door._listener
            assert listener is not None
            await box.until(lambda: listener.dropped >= 800)
            assert listener.handshakes <= 200
            url = url_of(box.port, authority)
            async with asyncio.timeout(7), aio.connect(url) as client, client.lock("orders"):
                pass
            await box.until(lambda: not listener.handshakes)
            for each in idle:
                each.close()
            await box.until(lambda: len(os.listdir("/proc/self/fd")) <= before + 3)
            assert len(box.refused) <= 20

    run(loop_factory, scenario)


@LOOPS
def test_a_handshake_has_its_seconds(tmp_path: Path, loop_factory: Loop) -> None:
    """Then it is ended from this end, and said."""
    authority = Authority(tmp_path)

    async def scenario() -> None:
        async with secured(tls_of(authority), Bounds(handshake_seconds_max=0.2)) as box:
            for first in (b"", b"\x16\x03\x01"):
                reader, writer = await asyncio.open_connection("127.0.0.1", box.port)
                writer.write(first)
                async with asyncio.timeout(2):
                    with contextlib.suppress(ConnectionResetError):
                        assert await reader.read() == b""
                writer.close()
            assert box.refused == ["the handshake was not finished within 0.2 s"] * 2

    run(loop_factory, scenario)


@LOOPS
def test_certificates_are_replaced_without_dropping_anybody(tmp_path: Path, loop_factory: Loop) -> None:
    """Who is connected stays; who comes is shown the new one; a bad one is not taken, and that is said."""
    authority = Authority(tmp_path)
    tls = tls_of(authority)

    def replace(pair: Pair) -> None:
        for new, old in ((pair.cert, tls.cert), (pair.key, tls.key)):
            os.replace(new, old)

    async def scenario() -> None:
        async with secured(tls) as box, aio.connect(url_of(box.port, authority)) as client:
            certificates = box.server.door.certificates
            assert certificates is not None
            told: list[tuple[str, bool]] = []
            certificates.on_reloaded = lambda words, is_trouble: told.append((words, is_trouble))
            first = await shown(box.port, authority)
            async with client.lock("orders") as hold:
                replace(authority.server(name="new"))
                assert certificates.reload()
                second = await shown(box.port, authority)
                tls.cert.write_text("no certificate")
                assert not certificates.reload()
                assert await shown(box.port, authority) == second != first
                hold.check()
            assert [is_trouble for _, is_trouble in told] == [False, True]
            assert "the old certificate stays in use" in told[1][0]

    run(loop_factory, scenario)


def test_files_that_change_are_read_without_being_asked(tmp_path: Path) -> None:
    """A key that is not that of the certificate yet, while both are being replaced, changes nothing."""
    authority = Authority(tmp_path)
    tls = tls_of(authority)

    async def scenario() -> None:
        async with secured(tls) as box:
            certificates = box.server.door.certificates
            assert certificates is not None
            told: list[bool] = []
            certificates.on_reloaded = lambda _, is_trouble: told.append(is_trouble)
            first = await shown(box.port, authority)
            new = authority.server(name="new")
            os.replace(new.cert, tls.cert)
            await box.until(lambda: told)
            assert (told, await shown(box.port, authority)) == ([True], first)
            os.replace(new.key, tls.key)
            await box.until(lambda: len(told) > 1)
            assert told == [True, False]
            assert await shown(box.port, authority) != first

    run(asyncio.new_event_loop, scenario)


async def shown(port: int, authority: Authority) -> bytes:
    """The certificate that somebody is shown who connects now."""
    context = ClientTls(TlsFiles(authority.file))()
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    found: bytes | None = writer.get_extra_info("ssl_object").getpeercert(True)
    writer.close()
    await writer.wait_closed()
    assert found is not None
    return found


def test_a_client_shows_its_renewed_certificate(tmp_path: Path) -> None:
    """The next connection uses what the files hold then; while they are half written, what was there before."""
    authority = Authority(tmp_path)
    mine = authority.client("billing")
    tls = ClientTls(TlsFiles(authority.file, mine.cert, mine.key))
    first = tls()
    assert tls() is first
    whole = mine.cert.read_bytes()
    mine.cert.write_bytes(whole[:100])
    assert tls() is first
    mine.cert.write_bytes(whole)
    assert tls() is not first


def test_no_session_is_taken_up_by_a_ticket(tmp_path: Path) -> None:
    """A certificate that was taken away, or has expired, would live on in it."""
    authority = Authority(tmp_path)
    mine = authority.client("billing")

    def shaken(port: int, context: ssl.SSLContext, session: ssl.SSLSession | None) -> ssl.SSLSession | None:
        with (
            socket.create_connection(("127.0.0.1", port)) as raw,
            context.wrap_socket(raw, server_hostname="127.0.0.1", session=session) as client,
        ):
            client.sendall(b"*1\r\n$4\r\nPING\r\n")
            assert client.recv(100) == b"+PONG\r\n"
            assert not client.session_reused
            return client.session

    async def scenario() -> None:
        async with secured(tls_of(authority, clients=Clients.REQUIRED)) as box:
            context = ClientTls(TlsFiles(authority.file, mine.cert, mine.key))()
            first = await asyncio.to_thread(shaken, box.port, context, None)
            await asyncio.to_thread(shaken, box.port, context, first)

    run(asyncio.new_event_loop, scenario)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("no cert", "cannot read"),
        ("other key", "is not that of the certificate"),
        ("no pem", "no certificate and its unlocked key"),
        ("expired", "expired at"),
        ("no ca", "needs --tls-ca"),
        ("bad ca", "holds no certificate of an authority"),
    ],
)
def test_what_a_listener_cannot_be_secured_with(tmp_path: Path, wrong: str, told: str) -> None:
    """The message says which file, and what is wrong with it."""
    authority = Authority(tmp_path)
    tls = tls_of(authority, clients=Clients.REQUIRED)
    match wrong:
        case "no cert":
            tls = tls._replace(cert=tmp_path / "nowhere.pem")
        case "other key":
            tls = tls._replace(key=authority.server(name="other").key)
        case "no pem":
            tls.key.write_text("hello")
        case "expired":
            old = authority.server(expired=True, name="old")
            tls = tls._replace(cert=old.cert, key=old.key)
        case "no ca":
            tls = tls._replace(ca=None)
        case "bad ca":
            authority.file.write_text("hello")
    with pytest.raises(UsageError, match=told):
        server_context(tls)


def test_the_command_line_speaks_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With files by the URL, or by the environment."""
    authority = Authority(tmp_path)
    mine = authority.client("operator")

    async def scenario() -> None:
        async with secured(tls_of(authority, clients=Clients.REQUIRED)) as box:
            for url in (url_of(box.port, authority, mine), f"fenceholds://127.0.0.1:{box.port}"):
                assert await asyncio.to_thread(greeted, url)
                for name, path in (("CA", authority.file), ("CERT", mine.cert), ("KEY", mine.key)):
                    monkeypatch.setenv(f"FENCEHOLD_{name}", str(path))

    run(asyncio.new_event_loop, scenario)


def greeted(url: str) -> bool:
    wire = wire_to(url)
    try:
        return wire.leads and wire.url.startswith("fenceholds://127.0.0.1:") and wire.certificate is not None
    finally:
        wire.close()
