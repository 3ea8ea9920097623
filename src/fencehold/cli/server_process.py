"""The process of a server: its event loop, the signals that end it, and its log."""

import asyncio
import contextlib
import json
import logging
import os
import platform
import shlex
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fencehold import __version__
from fencehold.cli.exits import Exit
from fencehold.cli.listener_processes import Listeners, can_listen, command_of, tell_ended
from fencehold.cli.output import clean, columns, console, hanging
from fencehold.cli.roles import Change, Roles
from fencehold.cli.sink_processes import SinkSettings, command_of_sink
from fencehold.core.events import Event
from fencehold.doors.resp.traffic import Flood
from fencehold.drivers.address import is_loopback, shown
from fencehold.gateway.credentials import KEY_VARIABLE
from fencehold.locks.log import Teller
from fencehold.locks.views import party
from fencehold.node.node import Node
from fencehold.node.shards import Shards
from fencehold.runtime.tuning import tune_for_serving
from fencehold.security.tls import notes_of
from fencehold.security.tokens import digest_of, new_token
from fencehold.server import Config, Server

_MARGIN = 14
_NO_LOGINS = (
    "no client can log in: there are no users, no tokens and no certificates of clients; "
    "add --tls-ca FILE and --tls-clients optional, or --tokens FILE"
)
_LOG = logging.getLogger("fencehold")


class Serving:
    """One server, from its start to its end."""

    def __init__(
        self,
        config: Config,
        *,
        as_json: bool,
        on_port: Callable[[int], None],
        listeners: Mapping[str, int] = MappingProxyType({}),
        sinks: SinkSettings = SinkSettings(),  # noqa: B008 - it never changes
        optional: frozenset[str] = frozenset(),
        listener_token: Path | None = None,
        traces: bool = False,
        trace_url: str = "",
    ) -> None:
        """`optional` names the listeners that are enabled by default only."""
        self._config = config
        self._breaks = Teller("fencehold.server.broken")
        self._as_json = as_json
        self._sinks = sinks
        self._listener_token = listener_token
        self._traces = traces
        self._trace_url = trace_url
        self._listeners = {
            kind: port for kind, port in listeners.items() if kind not in optional or can_listen(config.host, port)
        }
        self._left_out = {kind: port for kind, port in listeners.items() if kind not in self._listeners}
        self._on_port = on_port
        self._greets = sys.stderr.isatty() and not as_json
        self._stopping: asyncio.Event = asyncio.Event()
        self.was_ready = False
        if not self._greets:
            log_to_stderr(as_json)

    def run(self) -> None:
        """Serve until told to stop. Raises what `Server.start` does, and what ended the node."""
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        server = Server(self._config)
        loop.add_signal_handler(signal.SIGHUP, self._on_hangup, server)
        if await self._started(server):
            await self._serve_on(server)
        self._say("stopped", position=server.node.replica.machine.position)

    async def _serve_on(self, server: Server) -> None:
        tune_for_serving()
        try:
            self.was_ready = True
            self._on_port(server.port)
            self._say_ready(server)
            for kind, port in self._left_out.items():
                self._say_left_out(kind, port)
            for note in notes_of(self._config.tls) if self._config.tls is not None else ():
                self._say_weak(note)
            if server.node.leads and server.door.admits_nobody:
                # A standby may not have read the policy yet, and its users.
                self._say_weak(_NO_LOGINS)
            for host in server.hosts:
                host.node.on_broken = self._say_broken
                host.node.on_room = partial(self._say_room, host.node)
            if server.observer is not None:
                server.observer.on_noted = self._say_noted
            server.door.on_refused = self._say_refused
            if server.door.certificates is not None:
                server.door.certificates.on_reloaded = self._say_reloaded
            server.door.traffic.on_flood = partial(self._say_flood, server)
            if server.is_clustered:
                self._tell_roles(server)
            async with self._listening(server):
                await self._until_stopped(server)
        finally:
            await server.stop()

    @contextlib.asynccontextmanager
    async def _listening(self, server: Server) -> AsyncIterator[None]:
        """With listeners for other protocols, and sinks, beside it, while it serves."""
        commands = {
            f"{kind} listener": command_of(
                kind,
                port,
                self._config,
                server.port,
                as_json=self._as_json,
                listener_token=self._listener_token,
                traces=self._traces,
                trace_url=self._trace_url,
            )
            for kind, port in self._listeners.items()
        }
        # With it they pass on the addresses of logins; no other client is trusted with that
        # (`security/admission.py`).
        key = new_token()
        server.door.admission.own_listeners = frozenset([digest_of(key)])
        environments = {kind: {KEY_VARIABLE: key} for kind in commands}
        for sink in self._sinks.sinks:
            kind = f"sink {sink.name}"
            commands[kind], environments[kind] = command_of_sink(
                sink, self._sinks, self._config, server.port, as_json=self._as_json
            )
        listeners = Listeners(commands, self._say_listener, environments)
        listeners.start()
        try:
            yield
        finally:
            await listeners.stop()

    def _say_left_out(self, kind: str, port: int) -> None:
        """A listener enabled by default is not started: another server has its port."""
        if self._greets:
            words = f"no {kind.upper()}: port {port} is in use. Choose another with --{kind} PORT, or --no-{kind}"
            self._print(words, is_trouble=False)
        else:
            _LOG.info("listener_left_out", extra={"facts": {"kind": kind, "port": port, "why": "port in use"}})

    def _say_listener(self, kind: str, code: int, pause_s: float) -> None:
        if self._greets:
            words = f"the {kind} ended with {code}; it is started again in {pause_s:g} s"
            self._print(words, is_trouble=True)
        else:
            tell_ended(kind.removesuffix(" listener"), code, pause_s)

    async def _started(self, server: Server) -> bool:
        """Start it; False if a signal came first: it may take long until an engine counts as unreachable."""
        starting = asyncio.create_task(server.start())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not starting.done():
            starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        return not starting.cancelled()

    def _tell_roles(self, server: Server) -> None:
        """Log its role now, and each change from here on."""
        roles = Roles(server.node)

        def tell() -> None:
            change = None if self._stopping.is_set() else roles.change()
            if change is not None:
                self._say_change(change)

        server.node.on_changed = tell
        tell()
        if server.shards is not None:
            self._tell_led(server.shards)

    def _tell_led(self, shards: Shards) -> None:
        """Log how many shards it leads, and each change from here on. The first shard is logged separately."""
        told = -1

        def tell() -> None:
            nonlocal told
            if shards.led == told or self._stopping.is_set():
                return
            told, count = shards.led, len(shards.hosts)
            if self._greets:
                self._print(f"leads {told} of {count} shards", is_trouble=False)
            else:
                self._say("shards", led=told, of=count)

        for host in shards.hosts[1:]:
            host.node.on_changed = tell
        tell()

    def _say_change(self, change: Change) -> None:
        if self._greets:
            self._print(change.words, is_trouble=change.is_trouble)
        else:
            level = logging.WARNING if change.is_trouble else logging.INFO
            _LOG.log(level, change.event, extra={"facts": change.facts})

    def _say_room(self, node: Node) -> None:
        """Its journal has no room for new work, or has some again."""
        refusal, room = node.room.refusal(), node.room.room
        if self._greets:
            words = f"refuses new work: {refusal}" if refusal else f"accepts new work again; {room}"
            self._print(words, is_trouble=refusal is not None)
            return
        facts = {"room": str(refusal or room), "used_bytes": room.used_bytes, "allowed_bytes": room.allowed_bytes}
        level = logging.WARNING if refusal else logging.INFO
        _LOG.log(level, "holding_back" if refusal else "taking_new_work", extra={"facts": facts})

    def _say_broken(self, event: Event, principal: str) -> None:
        """An operator force-released a hold: log the operator, the principal, and the holder."""
        holder = clean(party(event.session, event.owner, event.session_meta))
        by = clean(party(0, "", event.by).described()) if event.by else "unknown"
        (name,) = event.names
        if self._greets:
            held = f"held by {holder} with fence {event.fence}"
            self._print(f"{clean(name)}, {held}, was broken by {by}", is_trouble=True)
        else:
            facts = {"name": name, "fence": event.fence, "holder": holder, "session": event.session, "by": by}
            known = {"principal": event.principal, "by_principal": principal}
            facts |= {key: clean(value) for key, value in known.items() if value}
            self._breaks.tell(logging.WARNING, "broken", facts=facts)

    def _say_noted(self, level: int, event: str, facts: dict[str, Any]) -> None:
        """Log something that the observer reports."""
        if self._greets:
            words = ", ".join(f"{key} {clean(str(value))}" for key, value in facts.items())
            self._print(f"{event.replace('_', ' ')}: {words}", is_trouble=level >= logging.WARNING)
        else:
            _LOG.log(level, event, extra={"facts": facts})

    def _say_flood(self, server: Server, flood: Flood) -> None:
        """A client sends more than its share: which one, and how much."""
        name, peer = clean(server.door.called(flood.source)), flood.source.peer
        if self._greets:
            words = f"{name} at {peer} sends {flood.commands_per_s} commands/s and is throttled"
            self._print(words, is_trouble=True)
        else:
            facts = {"client": name, "peer": peer, "commands_per_s": flood.commands_per_s}
            _LOG.warning("throttled", extra={"facts": facts})

    def _say_refused(self, peer: str, why: str) -> None:
        """A client was refused: its address, and why."""
        if self._greets:
            self._print(f"{clean(peer)} was rejected: {clean(why)}", is_trouble=True)
        else:
            _LOG.warning("refused", extra={"facts": {"peer": peer, "why": why}})

    def _say_weak(self, note: str) -> None:
        if self._greets:
            self._print(note, is_trouble=True)
        else:
            _LOG.warning("weak", extra={"facts": {"note": note}})

    def _say_reloaded(self, words: str, is_trouble: bool) -> None:
        if self._greets:
            self._print(words, is_trouble=is_trouble)
        else:
            event = "certificate_kept" if is_trouble else "certificate_reloaded"
            _LOG.log(logging.WARNING if is_trouble else logging.INFO, event, extra={"facts": {"note": words}})

    def _on_hangup(self, server: Server) -> None:
        """SIGHUP: read again what is read from files."""
        if server.door.certificates is not None:
            server.door.certificates.reload()
        else:
            self._say("hangup", note="nothing to read again: this listener does not speak TLS")

    def _print(self, words: str, *, is_trouble: bool) -> None:
        at = time.strftime("%H:%M:%S")
        console(stderr=True).print(f"  {at}    {words}", style="yellow" if is_trouble else "")

    async def _until_stopped(self, server: Server) -> None:
        stopping = asyncio.create_task(self._stopping.wait())
        serving = asyncio.create_task(server.serve())
        await asyncio.wait({stopping, serving}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            stopping.cancel()
            await serving
        # Stopping: `serve` ends when the server is stopped.
        serving.add_done_callback(lambda task: task.cancelled() or task.exception())

    def _on_signal(self, number: signal.Signals) -> None:
        if self._stopping.is_set():
            os._exit(Exit.SIGNAL + number)
        self._stopping.set()
        self._say("stopping", signal=number.name)

    def _say(self, event: str, **facts: object) -> None:
        if not self._greets:
            _LOG.info(event, extra={"facts": facts})
        elif event == "stopping":
            more = ", handing over" if self._config.engine else ""
            console(stderr=True).print(f"\nstopping: answering what was asked{more} …", style="dim")

    def _say_ready(self, server: Server) -> None:
        # If a node cannot open its journal, the notes say why; that is logged with its role.
        notes = () if server.node.role == "waiting" else server.node.notes
        if self._greets:
            _greet(server, notes, self._listeners)
            return
        for note in notes:
            _LOG.warning("repaired", extra={"facts": {"note": note}})
        self._say(
            "listening",
            host=self._config.host,
            port=server.port,
            **_whereabouts(server),
            tls=self._config.tls is not None,
            auth="required"
            if self._config.asks
            else f"none: {_open_to(self._config)} can acquire and break any lock",
            position=server.node.replica.machine.position,
            epoch=server.node.epoch,
            version=__version__,
            pid=os.getpid(),
        )


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """The faster event loop, where it is installed."""
    if find_spec("uvloop") is None:
        return None
    import uvloop  # noqa: PLC0415

    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def _greet(server: Server, notes: tuple[str, ...], listeners: Mapping[str, int]) -> None:
    """The banner for a person who has just started a server."""
    config, state = server.config, server.node.replica.machine.state
    out = console(stderr=True)
    out.print(f"Fencehold {__version__}", style="bold", end="")
    out.print(f"   Python {platform.python_version()}, pid {os.getpid()}", style="dim")
    url = f"{'fencehold' if config.tls is None else 'fenceholds'}://{config.host}:{server.port}"
    _line(out, "listens on", url, "green")
    for kind, port in listeners.items():
        scheme = kind if config.tls is None else f"{kind}s"
        _line(out, kind.upper() if kind == "http" else "gRPC", f"{scheme}://{config.host}:{port}", "green")
    if server.is_clustered:
        _line(out, "node", f"{server.node.member.name}, advertised as {server.node.member.address}")
        _line(out, "journal in", shown(config.engine))
    elif config.data is None:
        _line(out, "data in", "memory: everything is lost when this process ends", "yellow")
    else:
        _line(out, "data in", str(config.data))
        _line(out, "recovered", f"position {state.position}, fence {state.fence}, {len(state.sessions)} sessions")
    if server.shards is not None:
        _line(out, "shards", str(len(server.hosts)))
    for note in notes:
        _line(out, "repaired", note, "yellow")
    if not config.asks:
        _line(out, "open", f"{_open_to(config)} can acquire and break any lock", "yellow")
    where = "" if server.port == 7420 and config.host == "127.0.0.1" else f" --url {url}"
    command = (f"{_program()} run{where} hello", "-- sh -c 'echo my fence is $FENCEHOLD_FENCE'")
    _line(out, "try it", _to_paste(*command))
    out.print("  ctrl-c stops it", style="dim")


def _open_to(config: Config) -> str:
    """Which clients a server without authentication admits."""
    return "every user of this machine" if is_loopback(config.host) else "every client that can connect"


def _whereabouts(server: Server) -> dict[str, object]:
    """Where the journal is, and the name of this node in it."""
    config = server.config
    if not server.is_clustered:
        return {"data": str(config.data or "memory")}
    return {
        "engine": shown(config.engine),
        "node": server.node.member.name,
        "advertise": server.node.member.address,
    }


def _program() -> str:
    """How a shell calls this program, in any directory."""
    own = Path(sys.argv[0]).absolute()
    found = shutil.which("fencehold")
    if found is not None and os.path.samefile(found, own):
        return "fencehold"
    return shlex.quote(str(own)) if own.name == "fencehold" else f"{shlex.quote(sys.executable)} -m fencehold.cli"


def _to_paste(*parts: str) -> str:
    """A command in one line, or in as many as it needs, so that a shell still reads it as one."""
    line = " ".join(parts)
    return line if _MARGIN + len(line) <= columns() else (" \\\n" + " " * (_MARGIN + 2)).join(parts)


def _line(out: Any, label: str, text: str, style: str = "") -> None:
    out.print(f"  {label:<12}", style="dim", end="")
    # An address or a path may be longer than the rest of the line, and stays whole.
    out.print(text if "\n" in text else hanging(text, _MARGIN), style=style)


def tell(event: str, **facts: object) -> None:
    """Write an event to the log."""
    _LOG.info(event, extra={"facts": facts})


def log_to_stderr(as_json: bool) -> None:
    """Write the log to stderr, a line for each event."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if as_json else Lines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


class Lines(logging.Formatter):
    """One line per event: `key=value`, quoted where it must be."""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{key}={_quoted(value)}" for key, value in _fields(record, self).items())


class JsonLines(logging.Formatter):
    """One line of JSON per event."""

    def format(self, record: logging.LogRecord) -> str:
        text = json.dumps(_fields(record, self), ensure_ascii=False, default=str)
        return text if text.isprintable() else json.dumps(_fields(record, self), default=str)


def _fields(record: logging.LogRecord, formatter: logging.Formatter) -> dict[str, object]:
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
    fields: dict[str, object] = {"time": at, "level": record.levelname.lower(), "event": record.getMessage()}
    fields |= getattr(record, "facts", {})
    if record.exc_info:
        fields["error"] = formatter.formatException(record.exc_info)
    return fields


def _quoted(value: object) -> str:
    """As it is, or in quotes.

    No name ends a line, nor controls the terminal: neither by a carriage return or an escape, nor by one of
    Unicode's own ends of lines.
    """
    text = str(value)
    if not text.isprintable():
        return json.dumps(text)
    return text if text and not any(char in ' "=\\' for char in text) else json.dumps(text, ensure_ascii=False)
