"""The observer: a process beside a node that counts what happened, keeps the history of holds, says what is worth
a line in the log, and makes spans of acquires that are traced.

1. The node feeds it over a socket (`frames`) and never waits for it. It ends when the socket is closed.
2. Nothing that goes wrong with the history ends it: what cannot be written is missed, a gap says so, and counting
   goes on.
3. It is nicer than the node: where processors are scarce, locks come first.
"""

import logging
import os
import signal
import socket
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from fencehold.locks.log import Teller
from fencehold.locks.trace_export import otlp_provider
from fencehold.observe.facts import Fact, facts_of
from fencehold.observe.frames import (
    Answered,
    Asked,
    Began,
    Entries,
    Measured,
    Noted,
    Said,
    Told,
    Unframer,
    framed,
    read_said,
)
from fencehold.observe.history.answers import history
from fencehold.observe.history.recorder import BATCH_S, Recorder
from fencehold.observe.history.store import Bounds, Store
from fencehold.observe.incidents import SLOW_APPEND_S, Incidents, tellers_of_kinds
from fencehold.observe.spans import SPANS_PER_S_MAX, Budget, Spans, instants_of
from fencehold.observe.tally import REMEMBERED_MAX, Tally, figures_of
from fencehold.observe.templates import Templates
from fencehold.types import CORRECTNESS

_NICE = 10
_READ_BYTES = 1 << 20
_WHY_LENGTH_MAX = 500
_IDLE_S = 60.0
"""How often it is seen, when nothing happens, whether something has become too old."""
_PREFIX = "fencehold.server."
SERVICE = "fencehold"
"""What a node is called in traces, unless `OTEL_SERVICE_NAME` says so."""
JOURNALED = CORRECTNESS.value
"""The tier of which a history is kept."""
_LOG = logging.getLogger("fencehold.server")
Place = tuple[str, int]
"""Of a machine: its tier and its shard."""
NO_HISTORY = "no history is kept here: start the server with --data, or with --history-file FILE"


class Settings(Struct, frozen=True):
    """What an observer is started with, as JSON in an argument."""

    history: str = ""
    """The file; empty: none is kept."""
    bounds: tuple[int, int, int] = Bounds()
    templates: tuple[str, ...] = ()
    slow_append_s: float = SLOW_APPEND_S
    shards: int = 1
    traces: bool = False
    spans_per_s_max: int = SPANS_PER_S_MAX


class Observer:
    """What it does with each frame."""

    def __init__(self, settings: Settings, provider: Any = None) -> None:
        """`provider`: an OpenTelemetry `TracerProvider`, where acquires are traced."""
        self._settings = settings
        self._provider = provider
        self._budget = Budget(settings.spans_per_s_max)
        self._spans: dict[Place, Spans] = {}
        self._store = _store_of(settings)
        self._recorders: dict[int, Recorder] = {}
        """Of each shard."""
        self._templates = Templates(settings.templates)
        self._tellers = tellers_of_kinds()
        self._tallies: dict[Place, Tally] = {}
        self._incidents: dict[Place, Incidents] = {}
        self._seen: dict[Place, int] = {}
        """The last position of each machine."""
        self._gaps = 0
        self._has_failed = False

    def take(self, said: Said) -> Answered | None:
        """Take a frame; the answer, if it is a question."""
        match said:
            case Entries():
                self._on_entries(said)
            case Began():
                self._on_began(said)
            case Asked():
                return self._on_asked(said)
            case Measured():
                return Answered(said.number, msgspec.json.encode(self.figures()))
        return None

    def _on_entries(self, said: Entries) -> None:
        place = said.tier, said.shard
        tally, incidents, is_journaled = self._tally(place), self._incidents_of(place), said.tier == JOURNALED
        # Each life of the volatile machine begins elsewhere, and misses nothing by that.
        if is_journaled and said.after > self._seen.get(place, said.after):
            self._gaps += 1
        recorder = self._recorder(said.shard) if is_journaled else None
        facts_of_all = [facts_of(thing.entry, thing.applied) for thing in said.things]
        for thing, facts in zip(said.things, facts_of_all, strict=True):
            tally.on_entry(thing.applied, facts, len(thing.entry.commands), is_counted=said.leads)
            incidents.on_facts(facts, is_told=said.leads)
        if self._provider is not None:
            self._trace(said, facts_of_all)
        self._seen[place] = said.up_to
        if recorder is not None:
            try:
                recorder.on_gap(said.after)
                for thing, facts in zip(said.things, facts_of_all, strict=True):
                    recorder.on_entry(thing.applied, facts)
                recorder.on_nothing(said.up_to)
            except sqlite3.Error as error:
                self._fail(recorder, error)
        for seconds in said.append_s:
            tally.on_append(seconds)
            if is_journaled:
                incidents.on_append(seconds)

    def _trace(self, said: Entries, facts_of_all: list[list[Fact]]) -> None:
        """Make spans of them. What goes wrong with that is not the others' trouble."""
        place = said.tier, said.shard
        spans = self._spans.get(place)
        if spans is None:
            tracer = self._provider.get_tracer("fencehold")
            spans = self._spans[place] = Spans(tracer, self._templates, self._budget, *place)
        self._budget.refill()
        for thing, facts in zip(said.things, facts_of_all, strict=True):
            spans.on_entry(thing.applied, facts, instants_of(said, thing.applied), leads=said.leads)

    def _on_began(self, said: Began) -> None:
        place = JOURNALED, said.shard
        self._seen.pop(place, None)
        if place in self._spans:
            self._spans[place].forget()
        recorder = self._recorder(said.shard)
        if recorder is not None:
            try:
                recorder.on_began(said.end, said.snapshot_at, said.snapshot)
            except sqlite3.Error as error:
                self._fail(recorder, error)
            else:
                self._incidents_of(place).know(recorder.store.sessions(said.shard))

    def _on_asked(self, asked: Asked) -> Answered:
        if self._store is None:
            return Answered(asked.number, b"", NO_HISTORY)
        try:
            for recorder in self._recorders.values():
                recorder.flush()
            now, span = int(time.time() * 1000), (asked.since_ms, asked.until_ms)
            found = history(self._store, asked.name, *span, asked.count, asked.held, now, asked.shard)
            return Answered(asked.number, msgspec.json.encode(found))
        except sqlite3.Error as error:
            return Answered(asked.number, b"", f"the history cannot be read: {error}")

    def _recorder(self, shard: int) -> Recorder | None:
        if self._store is None:
            return None
        if shard not in self._recorders:
            self._recorders[shard] = Recorder(self._store, shard)
        return self._recorders[shard]

    def _tally(self, place: Place) -> Tally:
        if place not in self._tallies:
            tier, shard = place
            self._tallies[place] = Tally(tier, self._templates, shard, REMEMBERED_MAX // self._settings.shards)
        return self._tallies[place]

    def _incidents_of(self, place: Place) -> Incidents:
        if place not in self._incidents:
            tier, shard = place
            is_known = self._store is not None and tier == JOURNALED
            self._incidents[place] = Incidents(
                dict(self._store.sessions(shard)) if self._store is not None and is_known else {},
                slow_append_s=self._settings.slow_append_s,
                tellers=self._tellers,
                shard=shard if self._settings.shards > 1 else None,
            )
        return self._incidents[place]

    def figures(self) -> dict[str, list[list[Any]]]:
        """All that was counted, by metric."""
        found = figures_of(self._tallies.values())
        found["fencehold_observer_gaps_total"] = [[[], self._gaps]]
        if self._provider is not None:
            found["fencehold_spans_total"] = [[[], self._budget.made]]
            found["fencehold_spans_dropped_total"] = [[[], self._budget.dropped]]
        if self._store is not None:
            found["fencehold_history_rows"] = [[[], self._store.rows]]
            found["fencehold_history_bytes"] = [[[], self._store.size_bytes]]
        return found

    # The history's life.

    @property
    def is_due(self) -> bool:
        return any(recorder.is_due for recorder in self._recorders.values())

    @property
    def wait_s(self) -> float:
        """How long it may wait for the next frame."""
        return BATCH_S if any(recorder.is_waiting for recorder in self._recorders.values()) else _IDLE_S

    def settle(self) -> None:
        """Write what waits, and keep the bound."""
        if self._store is None:
            return
        has_failed = False
        for recorder in self._recorders.values():
            try:
                recorder.flush()
            except sqlite3.Error as error:
                has_failed = True
                self._fail(recorder, error)
        try:
            self._store.keep_bound()
        except sqlite3.Error as error:
            has_failed = True
            self._fail(None, error)
        self._has_failed = has_failed

    def _fail(self, recorder: Recorder | None, error: sqlite3.Error) -> None:
        if recorder is not None:
            recorder.miss()
        if not self._has_failed:
            self._has_failed = True
            _LOG.error("history_failed", extra={"facts": {"why": str(error)}})

    def close(self) -> None:
        if self._store is not None:
            self.settle()
            self._store.close()
        if self._provider is not None:
            # Last: a collector that is away may take longer than the node waits.
            self._provider.shutdown()


def _store_of(settings: Settings) -> Store | None:
    if not settings.history:
        return None
    path = Path(settings.history)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        store = Store(path, Bounds(*settings.bounds))
    except (sqlite3.Error, OSError) as error:
        _LOG.error("history_failed", extra={"facts": {"file": settings.history, "why": str(error)}})
        return None
    if store.was_damaged:
        facts = {"file": settings.history, "note": "it was renamed, and a new one is filled from the journal"}
        _LOG.error("history_damaged", extra={"facts": facts})
    return store


class _Line:
    """The socket to the node. What sends spans has a thread of its own, which may have something to log."""

    def __init__(self, node: socket.socket) -> None:
        self._node = node
        self._lock = threading.Lock()

    def send(self, told: Told) -> None:
        with self._lock:
            self._node.sendall(framed(told))


class _ExportHandler(logging.Handler):
    """What OpenTelemetry complains of, told as an incident: a collector that is away is away for long."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._teller = Teller(f"{_PREFIX}traces_failed")

    def emit(self, record: logging.LogRecord) -> None:
        self._teller.tell(logging.WARNING, "traces_failed", facts={"why": record.getMessage()[:_WHY_LENGTH_MAX]})


class _Handler(logging.Handler):
    """Hands records to the node, whose log it is."""

    def __init__(self, node: _Line) -> None:
        super().__init__()
        self._node = node

    def emit(self, record: logging.LogRecord) -> None:
        event, facts = record.getMessage(), getattr(record, "facts", None)
        if facts is None:
            event, facts = "left_out", {"of": record.name.removeprefix(_PREFIX), "note": event}
        shown: dict[str, str | int | float | None] = {
            str(key): value if isinstance(value, str | int | float) else str(value) for key, value in facts.items()
        }
        self._node.send(Noted(record.levelno, event, shown))


def _exporting() -> Any:
    logger = logging.getLogger("opentelemetry")
    logger.addHandler(_ExportHandler())
    logger.propagate = False
    return otlp_provider(SERVICE)


def run(node: socket.socket, settings: Settings) -> None:
    """Observe until the node closes its end."""
    line = _Line(node)
    logger = logging.getLogger("fencehold")
    logger.addHandler(_Handler(line))
    logger.setLevel(logging.INFO)
    logger.propagate = False
    provider = _exporting() if settings.traces else None
    observer, unframer = Observer(settings, provider), Unframer()
    try:
        while True:
            node.settimeout(observer.wait_s)
            try:
                data = node.recv(_READ_BYTES)
            except TimeoutError:
                observer.settle()
                continue
            if not data:
                return
            node.settimeout(None)
            for frame in unframer.feed(data):
                answer = observer.take(read_said(frame))
                if answer is not None:
                    line.send(answer)
            if observer.is_due:
                observer.settle()
    except (BrokenPipeError, ConnectionResetError):
        # The node is gone, and with it who would hear.
        return
    finally:
        observer.close()


def main(words: list[str]) -> None:
    """`python -m fencehold.observe SETTINGS`: the node is on standard input."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # Ctrl-c and systemd signal all processes of a server: this one ends with the node, and has to hear it out.
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICE)
    settings = msgspec.json.decode(words[0], type=Settings)
    with socket.socket(fileno=os.dup(0)) as node:
        run(node, settings)
