"""The HTTP listener: Starlette on uvicorn, and what it needs to reach the service.

1. It runs in a process of its own, as every listener does that could hold up a node.
2. Everything has a bound: bodies and their time, headers, concurrent requests, how long one waits.
3. Pages of other origins are refused: the listener is on by default on loopback, where browsers run, too.
4. Errors are problem+json, with the same reason as in gRPC.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote_to_bytes

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from fencehold.dashboard import paths as paths  # noqa: PLC0414 - it registers `anything`
from fencehold.dashboard.routes import Dashboard
from fencehold.doors.http.bounded_protocol import bounded
from fencehold.doors.http.handlers import ClientGone, Handlers
from fencehold.doors.http.requests import said_in
from fencehold.doors.http.same_site import Application, SameSite
from fencehold.doors.http.table import OPERATIONS, Operation
from fencehold.errors import FenceholdError, LockTimeout, UsageError
from fencehold.gateway.bounds import GatewayBounds
from fencehold.gateway.credentials import Voucher, caller
from fencehold.gateway.listener import TlsEntrance, tell_refused
from fencehold.gateway.problems import facts_of, problem_of
from fencehold.gateway.questions import Questions
from fencehold.gateway.upstream import Upstream
from fencehold.security.tls import ServerTls

PORT = 7422
REQUESTS_MAX = 2_048
"""Concurrent requests, those that wait and event streams included; beyond, 503."""
HEADER_BYTES_MAX = 16_384
IDLE_S_MAX = 30
CLOSING_S_MAX = 3
_LOG = logging.getLogger("fencehold.http")
# It warns of every invalid request: a log that any stranger could fill.
logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
_SPEAKS_TLS = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/problem+json\r\nconnection: close\r\n\r\n"
    b'{"type": "about:blank", "title": "this listener speaks TLS", "status": 400, "detail": "use https://", '
    b'"reason": "USAGE"}'
)
"""Sent to a plaintext client."""
_REVOKED = "the client certificate was revoked"


class HttpDoor:
    """Started with `start`, served until `stop`."""

    def __init__(
        self,
        url: str,
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        tls: ServerTls | None = None,
        upstream_tls: ssl.SSLContext | None = None,
        voucher: Voucher | None = None,
        gateway: GatewayBounds = GatewayBounds(),  # noqa: B008 - a value
        trace_url: str = "",
    ) -> None:
        self.host = host
        self.port = port
        self._tls = tls
        self._questions = Questions(url, upstream_tls, gateway, voucher=voucher)
        self._upstream = Upstream(
            url, via="http", tls=upstream_tls, bounds=gateway, voucher=voucher, questions=self._questions
        )
        self._handlers = Handlers(self._upstream, self._questions)
        self._dashboard = Dashboard(self._upstream, self._questions, problem, trace_url)
        self._server: _Server
        self._entrance: TlsEntrance | None = None

    async def start(self) -> None:
        """Accept requests; `port` says where.

        Raises:
            OSError: the address is in use, or not this machine's.
            UsageError: its certificate cannot be used.
        """
        served = SameSite(_knowing_callers(_only_text(application(self._handlers, self._dashboard))), self.host)
        self._server = _Server(uvicorn.Config(served, **_options(self._is_revoked)))
        if self._tls is None:
            family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
            listening = socket.create_server((self.host, self.port), family=family)
            self.port = listening.getsockname()[1]
            await self._server.begin([listening])
        else:
            self._entrance = TlsEntrance(
                self._tls,
                self._server.connection,
                alpn="http/1.1",
                plain_reply=_SPEAKS_TLS,
                on_revoked=self._end_revoked,
            )
            await self._server.begin([])
            await self._open(self._entrance)
        self._dashboard.start()

    async def _open(self, entrance: TlsEntrance) -> None:
        try:
            self.port = await entrance.open(self.host, self.port)
        except OSError:
            await self._server.end()
            raise

    async def stop(self) -> None:
        """Accept no more requests, let those in flight finish, disconnect."""
        if self._entrance is not None:
            self._entrance.close()
        await self._server.end()
        await self._dashboard.close()
        await self._questions.close()
        await self._upstream.close()

    def reload(self) -> None:
        """Read the certificates again, as at SIGHUP."""
        if self._entrance is not None:
            self._entrance.reload()

    def _end_revoked(self) -> None:
        """End the connections whose certificates are on the revocation list now."""
        for connection in tuple(self._server.server_state.connections):
            if self._is_revoked(connection.transport):
                connection.transport.abort()

    def _is_revoked(self, transport: asyncio.BaseTransport) -> bool:
        if self._entrance is None or not self._entrance.is_revoked(transport.get_extra_info("ssl_object")):
            return False
        host, port = (transport.get_extra_info("peername") or ("", 0))[:2]
        tell_refused(f"{host}:{port}", _REVOKED)
        return True


class _Server(uvicorn.Server):
    """Signals are handled by the process, not by its listener."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._is_taking = asyncio.Event()
        self._serving: asyncio.Task[None]

    async def begin(self, sockets: list[socket.socket]) -> None:
        """Serve these sockets, and what `connection` adds."""
        self._serving = asyncio.create_task(self.serve(sockets))
        await self._is_taking.wait()

    async def end(self) -> None:
        """Let requests in flight finish, and disconnect."""
        self.should_exit = True
        await self._serving

    def connection(self) -> asyncio.Protocol:
        """The protocol of a connection that came in over TLS."""
        made: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = made(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._is_taking.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def application(handlers: Handlers, dashboard: Dashboard | None = None) -> Starlette:
    """The application that is made of the table, with the dashboard beside it."""
    routes: list[BaseRoute] = [
        Route(_path(operation), _endpoint(operation, handlers), methods=[operation.method])
        for operation in OPERATIONS
    ]
    made = Starlette(routes=routes, exception_handlers={HTTPException: _not_a_route})
    if dashboard is not None:
        made.router.routes.append(dashboard.mount(made))
    return made


def _path(operation: Operation) -> str:
    # A name may have slashes, and line ends.
    return operation.path.replace("{name}", "{name:anything}")


def _endpoint(operation: Operation, handlers: Handlers) -> Any:
    handle = getattr(handlers, operation.handler)

    async def endpoint(request: Request) -> Response:
        try:
            response: Response = await handle(request, await said_in(request, operation))
        except (ClientGone, ClientDisconnect):
            # No client reads it; it is counted.
            response = Response(status_code=499)
        except Exception as error:
            response = problem(error)
        handlers.answered[operation.handler, response.status_code] += 1
        return response

    return endpoint


def problem(error: Exception) -> Response:
    """An error as RFC 9457 has it."""
    if not isinstance(error, FenceholdError):
        _LOG.error("a request failed by a bug", exc_info=error)
    known = problem_of(error)
    detail = (
        str(error) if isinstance(error, FenceholdError) else "an error of the listener itself; its log says more"
    )
    told: dict[str, Any] = {
        "type": "about:blank",
        "title": known.meaning,
        "status": known.http,
        "detail": detail,
        "reason": known.reason,
        **facts_of(error),
    }
    if isinstance(error, LockTimeout):
        told["names"] = error.names
    headers = {"retry-after": str(max(1, round(known.retry_after_s)))} if known.retry_after_s else {}
    if known.http == 401:
        headers["www-authenticate"] = 'Basic realm="fencehold", Bearer realm="fencehold"'
    return JSONResponse(told, known.http, headers, "application/problem+json")


async def _not_a_route(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    reason = {404: "NOT_FOUND", 405: "METHOD_NOT_ALLOWED"}.get(status, "USAGE")
    headers = error.headers if isinstance(error, HTTPException) else None
    allowed = (headers or {}).get("Allow", "")
    detail = f"allowed here: {allowed}" if allowed else "not found: / lists what there is"
    told = {"type": "about:blank", "title": str(error), "status": status, "detail": detail, "reason": reason}
    return JSONResponse(told, status, headers, "application/problem+json")


def _knowing_callers(served: Application) -> Application:
    """The same, knowing each caller's address: from its connection, as any client can forge a header."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        host, _ = scope.get("client") or ("", 0)
        caller.set(host)
        await served(scope, receive, send)

    return serve


def _only_text(served: Application) -> Application:
    """The same, but refusing requests whose path or query is not UTF-8: two names must not be read as one."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        for what, raw in (("path", scope.get("raw_path", b"")), ("query", scope.get("query_string", b""))):
            if not _is_text(raw):
                told = problem(UsageError(f"the {what} is not UTF-8: percent-encode the bytes of its UTF-8"))
                await told(scope, receive, send)
                return
        await served(scope, receive, send)

    return serve


def _is_text(encoded: bytes) -> bool:
    try:
        unquote_to_bytes(encoded).decode()
    except UnicodeDecodeError:
        return False
    return True


def _options(is_refused: Callable[[asyncio.BaseTransport], bool]) -> dict[str, Any]:
    return {
        "http": bounded(is_refused=is_refused),
        "ws": "none",
        "lifespan": "off",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "limit_concurrency": REQUESTS_MAX,
        "h11_max_incomplete_event_size": HEADER_BYTES_MAX,
        "timeout_keep_alive": IDLE_S_MAX,
        "timeout_graceful_shutdown": CLOSING_S_MAX,
    }
