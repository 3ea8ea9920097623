"""Questions to the service that the SDK has no verb for: lists, nodes, and events from a position.

1. They open no session: a question needs none. Each login has a connection of its own.
2. They go to the node that leads, which the nodes of the URL may know. A question changes nothing, so it is
   asked again elsewhere when a connection is lost, as long as there is time.
3. Events are told once each and in order, over as many connections as it takes; what is missing is told as a gap.
"""

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

import hiredis

from fencehold import __version__
from fencehold.drivers.resp.wire import command, error, split
from fencehold.errors import FenceholdError, LimitExceeded, PermissionDenied, Unavailable, UsageError
from fencehold.gateway.bounds import GatewayBounds
from fencehold.gateway.credentials import ANONYMOUS, Credentials, Voucher, refuse_to_lend
from fencehold.gateway.problems import Unauthenticated
from fencehold.locks.views import WHOLE, Event, event
from fencehold.types import CORRECTNESS, Tier

PORT = 7420
_AGAIN_S = 0.1
_AWAY_S_MAX = 30.0
"""For so long a watch looks for a node that leads before its client is told to try again."""


class Place(NamedTuple):
    """Where the service is, as its URL says."""

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
    endpoints = tuple(_endpoint(host) for host in hosts.split(",") if host)
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


def _endpoint(text: str) -> tuple[str, int]:
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
        self.hello: dict[bytes, Any] = {}

    @property
    def leads(self) -> bool:
        """Whether its node led when it greeted us."""
        return self.hello.get(b"role") == b"leader"

    async def call(self, *words: str | int) -> Any:
        """The reply to a command.

        Raises:
            Unavailable: the connection was lost.
            FenceholdError: what the service said.
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
        """The next thing it says unasked.

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


class Questions:
    """Who asks, for all clients of a gateway."""

    def __init__(
        self,
        url: str,
        tls: ssl.SSLContext | None,
        bounds: GatewayBounds,
        *,
        voucher: Voucher | None = None,
        connect_timeout_s: float = 5.0,
    ) -> None:
        self._voucher = voucher or Voucher()
        self._place = place_of(url)
        self._tls = (tls or tls_to(self._place)) if self._place.is_tls else None
        self._bounds = bounds
        self._timeout_s = connect_timeout_s
        self._lines: OrderedDict[tuple[Credentials | None, Tier], Line] = OrderedDict()
        self._lines_here: OrderedDict[Credentials | None, Line] = OrderedDict()
        self.watching = 0
        """How many watch."""

    async def ask(self, credentials: Credentials | None, tier: Tier, *words: str | int) -> Any:
        """The reply to a question of a client, or of the gateway itself (None), by the node that leads.

        Raises:
            Unavailable: none was reached in time.
            FenceholdError: what the service said.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    try:
                        return await (await self._line(credentials, tier)).call(*words)
                    except Unavailable:
                        self._drop(credentials, tier)
                        await asyncio.sleep(_AGAIN_S)
        except TimeoutError:
            raise Unavailable(f"the service was not reached within {self._timeout_s:g} s") from None
        except PermissionDenied as denied:
            raise _told(denied, credentials) from denied

    async def events(
        self, credentials: Credentials, tier: Tier, prefix: str, since: int, after_index: int | None
    ) -> AsyncGenerator[tuple[int, Event | None], None]:
        """First the position it begins at, with None; then events, each with its index within its position.

        Raises:
            Unavailable: the service is away for long.
            LimitExceeded: too many watch.
        """
        if self.watching >= self._bounds.watches_max:
            raise LimitExceeded(f"at most {self._bounds.watches_max} clients watch by this listener")
        self.watching += 1
        try:
            place = (since, WHOLE if after_index is None else after_index) if since else None
            is_first = True
            while True:
                async with self._watched(credentials, tier, prefix, place, is_first) as (line, begun):
                    place = place or begun
                    if is_first:
                        yield begun[0], None
                        is_first = False
                    with suppress(Unavailable):
                        while True:
                            seen = _event_of(await line.push())
                            if seen is not None and seen.place > place:
                                place = seen.place
                                yield seen.index, seen
        finally:
            self.watching -= 1

    async def ask_here(self, credentials: Credentials | None, *words: str | int) -> Any:
        """The reply of the first node that the URL names, whether it leads or not: about that node itself.

        Raises:
            Unavailable: it was not reached in time.
            FenceholdError: what it said.
        """
        host, port = self._place.endpoints[0]
        who = None if credentials == ANONYMOUS else credentials
        try:
            async with asyncio.timeout(self._timeout_s):
                known = self._lines_here.get(who)
                if known is not None and not known.is_closed:
                    # It may have been lost without a word, when the node was started again.
                    with suppress(Unavailable):
                        return await known.call(*words)
                line = self._lines_here[who] = await self._greeted(host, port, who, None)
                self._lines_here.move_to_end(who)
                while len(self._lines_here) > self._bounds.logins_max:
                    self._lines_here.popitem(last=False)[1].close()
                return await line.call(*words)
        except OSError as away:
            raise Unavailable(f"{host}:{port} was not reached: {away or 'it took too long'}") from None
        except PermissionDenied as denied:
            raise _told(denied, credentials) from denied

    async def roles(self) -> dict[str, str]:
        """The role of each node that the URL names; empty for one that was not reached."""
        return {f"{host}:{port}": await self._role(host, port) for host, port in self._place.endpoints}

    async def close(self) -> None:
        for line in (*self._lines.values(), *self._lines_here.values()):
            line.close()
        self._lines.clear()
        self._lines_here.clear()

    @asynccontextmanager
    async def _watched(
        self, credentials: Credentials, tier: Tier, prefix: str, place: tuple[int, int] | None, is_first: bool
    ) -> AsyncIterator[tuple[Line, tuple[int, int]]]:
        """A connection that watches, from where the last one was left."""
        try:
            async with asyncio.timeout(self._timeout_s if is_first else _AWAY_S_MAX):
                while True:
                    try:
                        line = await self._connect(credentials, tier)
                        more = () if place is None else ("FROM", place[0], "INDEX", place[1])
                        reply = await line.call("LOCK.WATCH", prefix, *more)
                        break
                    except Unavailable:
                        await asyncio.sleep(_AGAIN_S)
        except TimeoutError:
            raise Unavailable("the service was not reached; watch again from the last position") from None
        except PermissionDenied as denied:
            raise _told(denied, credentials) from denied
        try:
            yield line, (reply[b"position"], reply[b"index"])
        finally:
            line.close()

    async def _line(self, credentials: Credentials | None, tier: Tier) -> Line:
        key = credentials, tier
        line = self._lines.get(key)
        if line is None or line.is_closed:
            line = self._lines[key] = await self._connect(credentials, tier)
            while len(self._lines) > self._bounds.logins_max:
                self._lines.popitem(last=False)[1].close()
        self._lines.move_to_end(key)
        return line

    def _drop(self, credentials: Credentials | None, tier: Tier) -> None:
        line = self._lines.pop((credentials, tier), None)
        if line is not None:
            line.close()

    async def _connect(self, credentials: Credentials | None, tier: Tier) -> Line:
        """A connection to the node that leads.

        Raises:
            Unavailable: none was found.
        """
        to_try, tried, why = list(self._place.endpoints), set[tuple[str, int]](), "no node leads"
        while to_try:
            endpoint = to_try.pop(0)
            if endpoint in tried:
                continue
            tried.add(endpoint)
            try:
                line = await self._greeted(*endpoint, credentials, tier)
            except (OSError, Unavailable) as away:
                why = f"{endpoint[0]}:{endpoint[1]}: {away}"
                continue
            if line.leads:
                return line
            to_try[:0] = await _leader(line)
            line.close()
        raise Unavailable(f"cannot reach the service: {why}")

    async def _greeted(self, host: str, port: int, credentials: Credentials | None, tier: Tier | None) -> Line:
        reader, writer = await asyncio.open_connection(host, port, ssl=self._tls)
        line = Line(reader, writer)
        user, secret = self._voucher.login_of(self._place.credentials if credentials is None else credentials)
        if credentials is not None:
            refuse_to_lend(user, self._place.files)
        login = ("AUTH", user or "default", secret) if user or secret else ()
        of_tier = () if tier in (None, CORRECTNESS) else ("TIER", "EFFICIENCY")
        try:
            words = ("HELLO", 3, *login, *of_tier, "SETNAME", f"fencehold-gateway/{__version__}")
            line.hello = await line.call(*words)
        except PermissionDenied as denied:
            line.close()
            raise Unauthenticated(str(denied)) from denied
        except BaseException:
            line.close()
            raise
        return line

    async def _role(self, host: str, port: int) -> str:
        with suppress(OSError, TimeoutError, FenceholdError):
            async with asyncio.timeout(self._timeout_s):
                line = await self._greeted(host, port, None, None)
                line.close()
                return str(line.hello.get(b"role", b"").decode())
        return ""


def _told(denied: PermissionDenied, credentials: Credentials | None) -> PermissionDenied:
    """To a client that said nothing of itself: that it should."""
    return Unauthenticated(str(denied)) if credentials == ANONYMOUS else denied


def _event_of(push: Any) -> Event | None:
    return event(push[1]) if push[0] == b"event" else None


async def _leader(line: Line) -> list[tuple[str, int]]:
    """Where the node that leads is, if this one knows."""
    with suppress(FenceholdError):
        address = (await line.call("NODE.LIST"))[b"leader_address"].decode()
        return [_endpoint(address)] if address else []
    return []
