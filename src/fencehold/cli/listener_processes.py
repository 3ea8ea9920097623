"""Listeners beside a node: processes that `serve` starts, watches, and ends with it.

1. A listener never runs in the node's process: what it does cannot hold up the node's event loop.
2. One that ends is started again, with back-off while it ends early. The node keeps serving meanwhile.
3. They end with the node: told to, when it stops; by the end of their standard input, when it is killed.
"""

import asyncio
import contextlib
import ipaddress
import logging
import os
import socket
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from fencehold.drivers.address import endpoint
from fencehold.errors import UsageError
from fencehold.security.tls import Clients, ServerTls
from fencehold.server import Config

KINDS = {
    "grpc": ("hpack", "google.protobuf", "google.rpc"),
    "http": ("starlette", "uvicorn", "prometheus_client"),
}
"""Each kind of listener, and what it needs to be installed."""
HTTP_PORT = 7422
"""The default port of HTTP."""
PAUSE_S_FIRST, PAUSE_S_MAX = 0.5, 30.0
LIVED_S = 60.0
"""One that ran this long did not end early."""
_STOP_S = 5.0
_LOG = logging.getLogger("fencehold")


def check_installed(kinds: Mapping[str, int]) -> None:
    """Refuse, before anything is started, what would end at once.

    Raises:
        UsageError: something is not installed.
    """
    for kind in kinds:
        for module in KINDS[kind]:
            if not _is_there(module):
                raise UsageError(f"--{kind} needs {module}: pip install 'fencehold[{kind}]'")


def is_installed(kind: str) -> bool:
    """Whether everything that a kind of listener needs is installed."""
    return all(_is_there(module) for module in KINDS[kind])


def can_listen(host: str, port: int) -> bool:
    """Whether the address is free to listen on."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError:
        return False
    return True


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def command_of(
    kind: str,
    port: int,
    config: Config,
    node_port: int,
    *,
    as_json: bool,
    listener_token: Path | None = None,
    traces: bool = False,
    trace_url: str = "",
) -> list[str]:
    """The command of a listener beside a node: it gets the node's own options of where and how to listen."""
    words = [sys.executable, "-m", "fencehold.cli", "listener", kind, "--with-parent"]
    words += ["--url", url_of(config, node_port), "--host", config.host, "--port", str(port)]
    words += ["--insecure"] if config.insecure else []
    words += _tls_words(config.tls)
    if listener_token is not None:
        words += ["--listener-token-file", str(listener_token.expanduser()), *_clients_words(config.tls)]
    words += ["--traces"] if traces else []
    words += ["--trace-url", trace_url] if trace_url and kind == "http" else []
    return words + (["--json"] if as_json else [])


def _tls_words(tls: ServerTls | None) -> list[str]:
    if tls is None:
        return []
    words = ["--tls-cert", str(tls.cert), "--tls-key", str(tls.key)]
    return words + (["--tls-ca", str(tls.ca)] if tls.ca is not None else [])


def _clients_words(tls: ServerTls | None) -> list[str]:
    """Whether clients are asked for a certificate, and which of those were revoked."""
    if tls is None or tls.clients is not Clients.OPTIONAL:
        return []
    return ["--tls-clients", "optional", *(["--tls-crl", str(tls.crl)] if tls.crl is not None else [])]


def check_upstream(config: Config, what: str = "--grpc and --http", instead: str = "fencehold listener") -> None:
    """Refuse listeners, or sinks, that could not connect to their node.

    A listener passes on its clients' credentials: their users, secrets and tokens. It has no certificate of its
    own: with the node's, all of them would be taken for a node.

    Raises:
        UsageError: the node requires a certificate of every client.
    """
    if config.tls is not None and config.tls.clients is Clients.REQUIRED:
        raise UsageError(
            f"{what} have no certificate to show to a node with --tls-clients required: use optional, "
            f"or start `{instead}` by itself, with cert= and key= in its --url"
        )


def url_of(config: Config, port: int) -> str:
    """Where a process on the same machine reaches a node that listens there.

    With TLS it is the advertised address, if there is one: the certificate is for that.
    """
    if config.tls is None:
        return f"fencehold://{_reached(config.host)}:{port}"
    host = endpoint(config.advertise).host if config.advertise else config.host
    query = f"?ca={quote(str(config.tls.ca))}" if config.tls.ca is not None else ""
    return f"fenceholds://{_reached(host)}:{port}{query}"


def _reached(host: str) -> str:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return f"[{host}]" if address.version == 6 else host


class Listeners:
    """The listeners of one node."""

    def __init__(
        self,
        commands: Mapping[str, list[str]],
        on_ended: Callable[[str, int, float], None],
        environments: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        """`environments`: extra environment variables of some of them."""
        self._commands = commands
        self._environments = environments
        self._on_ended = on_ended
        self._keeping: list[asyncio.Task[None]] = []
        self.processes: dict[str, Any] = {}

    def start(self) -> None:
        """Start them, and keep them running."""
        self._keeping = [asyncio.create_task(self._keep(kind, words)) for kind, words in self._commands.items()]

    async def stop(self) -> None:
        """Stop them, and wait until they have ended."""
        for task in self._keeping:
            task.cancel()
        await asyncio.gather(*self._keeping, return_exceptions=True)
        await asyncio.gather(*(_ended(process) for process in self.processes.values()))

    async def _keep(self, kind: str, words: list[str]) -> None:
        pause_s, loop = PAUSE_S_FIRST, asyncio.get_running_loop()
        # Nothing of the server's settings is meant for it.
        clean = {key: value for key, value in os.environ.items() if not key.startswith("FENCEHOLD_")}
        clean |= self._environments.get(kind, {})
        while True:
            started_at = loop.time()
            # It ends when its standard input closes: held open here, and closed by the kernel if we die.
            process = await asyncio.create_subprocess_exec(*words, stdin=asyncio.subprocess.PIPE, env=clean)
            self.processes[kind] = process
            code = await process.wait()
            pause_s = PAUSE_S_FIRST if loop.time() - started_at > LIVED_S else pause_s
            self._on_ended(kind, code, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)


async def _ended(process: Any) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(_STOP_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def tell_ended(kind: str, code: int, pause_s: float) -> None:
    """Log that a listener has ended, and when it is started again."""
    _LOG.warning("listener_ended", extra={"facts": {"kind": kind, "code": code, "again_in_s": pause_s}})
