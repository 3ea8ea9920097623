"""Lines: single connections of a gateway to nodes of the service, and the addresses in its URL."""

import asyncio
import ssl
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

import hiredis

from fencehold.drivers.resp.wire import command, error, split
from fencehold.errors import Unavailable, UsageError
from fencehold.gateway.credentials import Credentials

PORT = 7420


class Place(NamedTuple):
    """Where the service is, by its URL."""

    endpoints: tuple[tuple[str, int], ...]
    credentials: Credentials
    is_tls: bool
    files: dict[str, str] = {}  # noqa: RUF012 - never changed
    """Of TLS: `ca`, `cert` and `key`, if the URL names them."""


def place_of(url: str) -> Place:
    """Read a URL of the service: `fencehold://[user:secret@]host[:port][,host…]`, `fenceholds://` over TLS."""
    scheme, separator, rest = url.partition("://")
    if scheme not in ("fencehold", "fenceholds") or not separator:
        raise UsageError("a listener stands before a Fencehold server: --url fencehold://host:port")
    rest, _, options = rest.partition("?")
    login, _, hosts = rest.partition("/")[0].rpartition("@")
    user, _, secret = login.partition(":")
    endpoints = tuple(endpoint_of(host) for host in hosts.split(",") if host)
    if not endpoints:
        raise UsageError("a URL names at least one host")
    return Place(
        endpoints, Credentials(unquote(user), unquote(secret)), scheme == "fenceholds", dict(parse_qsl(options))
    )


def tls_to(place: Place) -> ssl.SSLContext | None:
    """How a connection there is encrypted; None: not at all."""
    if not place.is_tls:
        return None
    try:
        context = ssl.create_default_context(cafile=place.files.get("ca"))
        if "cert" in place.files:
            context.load_cert_chain(place.files["cert"], place.files.get("key"))
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the files of TLS that the URL names cannot be used: {error}") from None
    return context


def endpoint_of(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = text, str(PORT)
    if not port.isdecimal():
        raise UsageError(f"a port is a number, got {text!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


class Line:
    """One connection to a node, greeted, in RESP3."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = hiredis.Reader()
        self._pushes: list[Any] = []
        self._turn = asyncio.Lock()
        self._made_at = asyncio.get_running_loop().time()
        self.hello: dict[bytes, Any] = {}

    @property
    def leads(self) -> bool:
        """Whether its node led when it greeted us."""
        return self.hello.get(b"role") == b"leader"

    @property
    def shards(self) -> int:
        """How many the service has, by the greeting."""
        return int(self.hello.get(b"shards", 1))

    @property
    def age_s(self) -> float:
        """How long ago its login was sent."""
        return asyncio.get_running_loop().time() - self._made_at

    async def call(self, *words: str | int) -> Any:
        """The reply to a command.

        Raises:
            Unavailable: the connection was lost.
            FenceholdError: the error of the service.
        """
        async with self._turn:
            try:
                self._writer.write(command(*words))
                while isinstance(reply := await self._next(), hiredis.PushNotification):
                    self._pushes.append(reply)
            except BaseException as lost:
                # Also when it is cancelled: the reply would be taken for that of the next question.
                self.close()
                if isinstance(lost, OSError | hiredis.ProtocolError):
                    raise Unavailable(f"the connection to the service was lost: {lost}") from lost
                raise
        if isinstance(reply, hiredis.ReplyError):
            raise error(*split(str(reply)))
        return reply

    async def push(self) -> Any:
        """The next push.

        Raises:
            Unavailable: the connection was lost.
        """
        if self._pushes:
            return self._pushes.pop(0)
        try:
            return await self._next()
        except (OSError, hiredis.ProtocolError) as lost:
            raise Unavailable(f"the connection to the service was lost: {lost}") from lost

    @property
    def is_closed(self) -> bool:
        return self._writer.is_closing() or self._reader.at_eof()

    def close(self) -> None:
        self._writer.close()

    async def _next(self) -> Any:
        while (reply := self._parser.gets()) is False:
            data = await self._reader.read(1 << 16)
            if not data:
                raise ConnectionResetError("it closed the connection")
            self._parser.feed(data)
        return reply
