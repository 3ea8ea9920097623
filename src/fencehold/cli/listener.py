"""`fencehold listener`: a listener for another protocol, in its own process, that reaches the service as a client
does.

1. It may run beside a node or anywhere else, any number of times; `serve --grpc` starts one beside itself.
2. SIGTERM and SIGINT: no more is accepted, its sessions are closed; exit 0. SIGHUP: its certificates are read
   again.
3. Started by a server, it ends with it: its standard input is a pipe, and closes when the server is gone.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail
from fencehold.cli.options import URL, Url, port_number
from fencehold.cli.port_file import tell_port
from fencehold.cli.server_process import log_to_stderr, loop_factory, tell
from fencehold.cli.settings import check_trace_url
from fencehold.drivers.address import service_address
from fencehold.gateway.credentials import KEY_VARIABLE, Voucher, forget_own_logins
from fencehold.gateway.listener import check_listener, tls_of
from fencehold.security.tls import ServerTls

GRPC_PORT, HTTP_PORT = 7421, 7422
NICE = 5


class Listener(Protocol):
    """Accepts connections, of any protocol."""

    host: str
    port: int

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def reload(self) -> None: ...


Host = Annotated[str, typer.Option("--host", help="The address to listen on.")]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="Listen where other machines can connect, though nothing is encrypted.")
]
TlsCert = Annotated[
    Path | None,
    typer.Option("--tls-cert", metavar="FILE", help="Speak TLS, with this certificate (and its chain)."),
]
TlsKey = Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="The key of that certificate.")]
TlsCa = Annotated[
    Path | None, typer.Option("--tls-ca", metavar="FILE", help="The CA that signs the certificates of clients.")
]
TlsCrl = Annotated[
    Path | None,
    typer.Option("--tls-crl", metavar="FILE", help="Which of those certificates were revoked: a CRL, in PEM."),
]
TlsClients = Annotated[
    str,
    typer.Option("--tls-clients", metavar="WHETHER", help="Whether clients are asked for a certificate."),
]
ListenerToken = Annotated[
    Path | None,
    typer.Option(
        "--listener-token-file",
        metavar="FILE",
        help="A token of listener/NAME, by which this listener vouches for its clients' certificates.",
    ),
]
PortFile = Annotated[
    Path | None,
    typer.Option("--port-file", metavar="FILE", help="Write the port to this file once connections are accepted."),
]
LogJson = Annotated[bool, typer.Option("--json", help="Write the log as lines of JSON.")]
Traces = Annotated[
    bool,
    typer.Option(
        "--traces", help="Send a span of every acquire by OTLP, as $OTEL_… say.", envvar="FENCEHOLD_TRACES"
    ),
]
WithParent = Annotated[bool, typer.Option("--with-parent", hidden=True, help="End when standard input is closed.")]


def _port() -> Any:
    return typer.Option("--port", parser=port_number, metavar="PORT", help="The port; 0: any that is free.")


def grpc(
    url: Url = URL,
    host: Host = "127.0.0.1",
    port: Annotated[int, _port()] = GRPC_PORT,
    insecure: Insecure = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    tls_crl: TlsCrl = None,
    tls_clients: TlsClients = "none",
    listener_token_file: ListenerToken = None,
    port_file: PortFile = None,
    as_json: LogJson = False,
    traces: Traces = False,
    with_parent: WithParent = False,
) -> None:
    """Listen for gRPC, and forward requests to the service at --url."""
    key = os.environ.get(KEY_VARIABLE, "")
    tls = _checked(url, host, tls_of(tls_cert, tls_key, tls_ca, tls_clients, tls_crl), insecure)
    with _extra("grpc"):
        from fencehold.doors.grpc.door import GrpcDoor  # noqa: PLC0415
    listener = GrpcDoor(url, host=host, port=port, tls=tls, voucher=Voucher(listener_token_file, key))
    with _traced("grpc", traces):
        ListenerProcess(listener, "grpc", as_json=as_json, with_parent=with_parent).run(port_file)


def http(
    url: Url = URL,
    host: Host = "127.0.0.1",
    port: Annotated[int, _port()] = HTTP_PORT,
    insecure: Insecure = False,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    tls_crl: TlsCrl = None,
    tls_clients: TlsClients = "none",
    listener_token_file: ListenerToken = None,
    port_file: PortFile = None,
    as_json: LogJson = False,
    traces: Traces = False,
    with_parent: WithParent = False,
    trace_url: Annotated[
        str,
        typer.Option("--trace-url", metavar="URL", help="Where the dashboard links traces to; {trace} is the id."),
    ] = "",
) -> None:
    """Listen for HTTP, and forward requests to the service at --url."""
    key = os.environ.get(KEY_VARIABLE, "")
    tls = _checked(url, host, tls_of(tls_cert, tls_key, tls_ca, tls_clients, tls_crl), insecure)
    with _extra("http"):
        from fencehold.doors.http.door import HttpDoor  # noqa: PLC0415
    listener = HttpDoor(
        url,
        host=host,
        port=port,
        tls=tls,
        voucher=Voucher(listener_token_file, key),
        trace_url=check_trace_url(trace_url),
    )
    with _traced("http", traces):
        ListenerProcess(listener, "http", as_json=as_json, with_parent=with_parent).run(port_file)


LISTENER: dict[str, Callable[..., None]] = {"grpc": grpc, "http": http}


def _checked(url: str, host: str, tls: ServerTls | None, insecure: bool) -> ServerTls | None:
    forget_own_logins(os.environ)
    service_address(url)
    check_listener(host, tls, insecure=insecure)
    return tls


@contextlib.contextmanager
def _traced(kind: str, wanted: bool) -> Iterator[None]:
    """With the spans of its acquires sent, if that is wanted; what is left of them at the end."""
    if not wanted:
        yield
        return
    from fencehold.locks.trace_export import export_traces  # noqa: PLC0415

    finish = export_traces(kind)
    try:
        yield
    finally:
        finish()


@contextlib.contextmanager
def _extra(name: str) -> Any:
    """What is imported inside comes with an extra."""
    try:
        yield
    except ModuleNotFoundError as missing:
        hint = f"pip install 'fencehold[{name}]'"
        raise fail(Exit.UNAVAILABLE, f"{missing.name} is not installed", hint) from None


class ListenerProcess:
    """One listener, from its start to its end."""

    def __init__(self, listener: Listener, kind: str, *, as_json: bool, with_parent: bool) -> None:
        self._listener = listener
        self._kind = kind
        self._with_parent = with_parent
        self._stopping = asyncio.Event()
        # Where both want the same core, a node comes first: it serves all clients, this one only some.
        os.nice(NICE)
        log_to_stderr(as_json)
        if with_parent and sys.stderr.isatty() and not as_json:
            # A user reads the server's output there; this one only reports problems.
            logging.getLogger("fencehold").setLevel(logging.WARNING)

    def run(self, port_file: Path | None) -> None:
        """Listen until told to stop."""
        try:
            with asyncio.Runner(loop_factory=loop_factory()) as runner:
                runner.run(self._listen(port_file))
        finally:
            if port_file is not None:
                port_file.unlink(missing_ok=True)

    async def _listen(self, port_file: Path | None) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        loop.add_signal_handler(signal.SIGHUP, self._listener.reload)
        if self._with_parent:
            loop.add_reader(sys.stdin.fileno(), self._on_parent)
        try:
            await self._listener.start()
        except OSError as error:
            hint = "something may listen there already: choose another --port"
            raise fail(Exit.UNAVAILABLE, str(error), hint) from None
        try:
            tell_port(port_file, self._listener.port)
            tell("listening", kind=self._kind, host=self._listener.host, port=self._listener.port, pid=os.getpid())
            await self._stopping.wait()
        finally:
            await self._listener.stop()
        tell("stopped", kind=self._kind)

    def _on_signal(self, number: signal.Signals) -> None:
        if not self._stopping.is_set():
            self._stop(f"signal {number.name}")
        elif not self._with_parent:
            # Of a server's listener the second one is usual: ctrl-c signals both, then the server its listener.
            os._exit(Exit.SIGNAL + number)

    def _on_parent(self) -> None:
        if not os.read(sys.stdin.fileno(), 1 << 10):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self._stop("the server that started it has ended")

    def _stop(self, why: str) -> None:
        self._stopping.set()
        tell("stopping", kind=self._kind, why=why)
