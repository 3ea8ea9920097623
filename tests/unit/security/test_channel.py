"""The layer that speaks TLS: what comes is handed on whole and in order, whatever pieces it came in."""

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Any

import pytest

from fencehold.drivers.address import TlsFiles
from fencehold.drivers.tls import client_context
from fencehold.security.channel import Buffers, NotTls, TlsChannel, TlsHandshake
from fencehold.security.tls import server_context
from tests.unit.security.authority import Authority, tls_of


class Pipe:
    """The transport below: what was written to it, and how it was ended."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.ends: list[str] = []
        self.protocol: Any = None

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def write_eof(self) -> None:
        self.ends.append("eof")

    def close(self) -> None:
        self.ends.append("close")

    def abort(self) -> None:
        self.ends.append("abort")

    def is_closing(self) -> bool:
        return bool(set(self.ends) & {"close", "abort"})

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("192.0.2.1", 4711)}.get(name, default)


class App(asyncio.Protocol):
    """The protocol above."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.ends: list[object] = []

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)

    def eof_received(self) -> None:
        self.ends.append("eof")

    def connection_lost(self, error: Exception | None) -> None:
        self.ends.append(error)


class Ends:
    """Both ends of a connection: a client by OpenSSL, and what is under test."""

    def __init__(self, authority: Authority, buffers: Buffers, version: ssl.TLSVersion | None = None) -> None:
        self.pipe, self.app, self._buffers = Pipe(), App(), buffers
        server, client = server_context(tls_of(authority)), client_context(TlsFiles(authority.file))
        if version is not None:
            client.maximum_version = version
        self.handshake = TlsHandshake(lambda: server, lambda: self.app, buffers)
        self.handshake.connection_made(self.pipe)  # type: ignore[arg-type]
        self.pipe.protocol = self.handshake
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(self._in, self._out, server_hostname="127.0.0.1")

    def shake(self, *, last: bytes = b"") -> "Ends":
        """Shake hands; `last` comes in one piece with the end of the handshake."""
        for _ in range(4):
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                self.give(self._out.read())
                continue
            if last:
                self.client.write(last)
            self.give(self._out.read())
            break
        self.hear()
        assert self.handshake.over.done()
        assert isinstance(self.pipe.protocol, TlsChannel)
        return self

    @property
    def channel(self) -> TlsChannel:
        return self.app.transport  # type: ignore[no-any-return]

    def encrypted(self, *plain: bytes) -> bytes:
        for each in plain:
            self.client.write(each)
        return self._out.read()

    def give(self, data: bytes) -> None:
        """What the client's end sent arrives."""
        if data:
            self.pipe.protocol.data_received(data)
        # What was left would be taken for the next one's.
        assert not self._buffers.incoming.pending
        assert not self._buffers.outgoing.pending
        for sent in self.pipe.sent:
            self._in.write(sent)
        self.pipe.sent.clear()

    def hear(self) -> bytes:
        """What the client's end makes of what was sent; empty if that is nothing."""
        self.give(b"")
        heard = b""
        with contextlib.suppress(ssl.SSLWantReadError):
            while piece := self.client.read(1 << 16):
                heard += piece
        return heard

    def says_end(self) -> bool:
        """Whether the end was said to the client."""
        self.give(b"")
        try:
            return self.client.read(1) == b""
        except ssl.SSLZeroReturnError:
            return True
        except ssl.SSLWantReadError:
            return False


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki"))


VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


@VERSIONS
async def test_what_comes_is_handed_on_whole_whatever_pieces_it_came_in(
    authority: Authority, version: ssl.TLSVersion
) -> None:
    """Cut anywhere, two connections by turns over the same buffers; many records in one read are one piece."""
    buffers = Buffers()
    one, other = (Ends(authority, buffers, version).shake() for _ in range(2))
    sent = one.encrypted(b"first", b"second" * 10)
    for cut in range(1, len(sent), 7):
        mine, theirs = one.encrypted(b"a" * cut, b"b" * 70), other.encrypted(b"c" * cut)
        if cut > 1:
            one.give(mine[:cut])
            other.give(theirs[: cut // 2])
            one.give(mine[cut:])
            other.give(theirs[cut // 2 :])
        else:
            one.give(sent + mine)
            other.give(theirs)
        assert b"".join(one.app.pieces).endswith(b"a" * cut + b"b" * 70)
        assert b"".join(other.app.pieces).endswith(b"c" * cut)
    before = len(one.app.pieces)
    one.give(one.encrypted(*[b"x" * 16_000] * 9))
    assert one.app.pieces[before:] == [b"x" * 16_000 * 9]


@VERSIONS
async def test_what_is_written_goes_out_in_one_write(authority: Authority, version: ssl.TLSVersion) -> None:
    """However long it is."""
    ends = Ends(authority, Buffers(), version).shake()
    for size in (1, 100, 16_384, 16_385, 1_000_000):
        ends.channel.write(b"r" * size)
        assert len(ends.pipe.sent) == 1
        assert ends.hear() == b"r" * size
    ends.channel.write(b"")
    assert not ends.pipe.sent


async def test_what_came_with_the_end_of_the_handshake_is_handed_on(authority: Authority) -> None:
    """A client need not wait before it speaks."""
    ends = Ends(authority, Buffers()).shake(last=b"PING\r\n")
    assert ends.app.pieces == [b"PING\r\n"]
    assert ends.channel.get_extra_info("ssl_object").version() == "TLSv1.3"
    assert ends.channel.get_extra_info("peername") == ("192.0.2.1", 4711)


@VERSIONS
async def test_both_ends_say_when_they_end(authority: Authority, version: ssl.TLSVersion) -> None:
    """The client's end is told once, after what it said last; this one says so before it closes."""
    ends = Ends(authority, Buffers(), version).shake()
    last = ends.encrypted(b"last")
    with contextlib.suppress(ssl.SSLWantReadError):
        ends.client.unwrap()
    ends.give(last + ends._out.read())
    assert (ends.app.pieces, ends.app.ends, ends.pipe.ends) == ([b"last"], ["eof"], ["close"])
    for close in ("close", "write_eof"):
        ends = Ends(authority, Buffers(), version).shake()
        getattr(ends.channel, close)()
        assert ends.says_end()
        ends.channel.write(b"too late")
        assert not ends.pipe.sent
    # Half closed, it still hears the client.
    assert ends.pipe.ends == ["eof"]
    if version is ssl.TLSVersion.TLSv1_3:
        ends.give(ends.encrypted(b"still here"))
        assert ends.app.pieces == [b"still here"]
    ends.channel.close()
    assert ends.pipe.ends == ["eof", "close"]


async def test_a_client_that_closes_without_a_word_has_closed(authority: Authority) -> None:
    """Half a record that came before is nobody's."""
    buffers = Buffers()
    ends, other = (Ends(authority, buffers).shake() for _ in range(2))
    ends.give(ends.encrypted(b"half a record")[:-1])
    ends.pipe.protocol.eof_received()
    ends.pipe.protocol.connection_lost(None)
    assert (ends.app.pieces, ends.app.ends) == ([], ["eof", None])
    other.give(other.encrypted(b"whole"))
    assert other.app.pieces == [b"whole"]


async def test_what_the_client_did_not_send_ends_the_connection(authority: Authority) -> None:
    """It is told why by an alert; what came before is handed on, and no other connection notices."""
    buffers = Buffers()
    ends, other = (Ends(authority, buffers).shake() for _ in range(2))
    right, wrong = ends.encrypted(b"right"), bytearray(ends.encrypted(b"wrong"))
    wrong[-1] ^= 1
    ends.give(right + bytes(wrong) + ends.encrypted(b"after it"))
    assert (ends.app.pieces, ends.pipe.ends) == ([b"right"], ["close"])
    with pytest.raises(ssl.SSLError, match=r"(?i)bad.record.mac"):
        ends.client.read(1)
    ends.pipe.protocol.connection_lost(None)
    [error] = ends.app.ends
    assert isinstance(error, ConnectionError)
    other.give(other.encrypted(b"unharmed"))
    other.channel.write(b"still")
    assert (other.app.pieces, other.hear()) == ([b"unharmed"], b"still")


async def test_a_handshake_that_fails_leaves_nothing_to_others(authority: Authority, tmp_path: Path) -> None:
    """Garbage after a hello, and plain text; the alert is sent, and the next handshake is not harmed."""
    buffers = Buffers()
    broken = Ends(authority, buffers)
    with contextlib.suppress(ssl.SSLWantReadError):
        broken.client.do_handshake()
    hello = broken._out.read()
    broken.give(hello[:40])
    broken.give(b"\x00" * 200 + hello)
    assert isinstance(broken.handshake.over.exception(), ssl.SSLError)
    plain = Ends(authority, buffers)
    plain.give(b"*1\r\n$4\r\nPING\r\n")
    assert isinstance(plain.handshake.over.exception(), NotTls)
    plain.handshake.say(b"-ERR TLS\r\n")
    assert plain.pipe.ends == ["eof"]
    gone = Ends(authority, buffers)
    gone.handshake.connection_lost(None)
    assert isinstance(gone.handshake.over.exception(), ConnectionError)
    fine = Ends(authority, buffers).shake(last=b"fine")
    assert fine.app.pieces == [b"fine"]
