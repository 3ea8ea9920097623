"""The observer: a process beside a node that counts what happened, keeps the history of holds, and says what is
worth a line in the log.

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
import time
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from fencehold.observe.facts import facts_of
from fencehold.observe.frames import (
    Answered,
    Asked,
    Began,
    Entries,
    Measured,
    Noted,
    Said,
    Unframer,
    framed,
    read_said,
)
from fencehold.observe.history.answers import history
from fencehold.observe.history.recorder import BATCH_S, Recorder
from fencehold.observe.history.store import Bounds, Store
from fencehold.observe.incidents import SLOW_APPEND_S, Incidents
from fencehold.observe.tally import Tally
from fencehold.observe.templates import Templates
from fencehold.types import CORRECTNESS

_NICE = 10
_READ_BYTES = 1 << 20
_IDLE_S = 60.0
"""How often it is seen, when nothing happens, whether something has become too old."""
_PREFIX = "fencehold.server."
JOURNALED = CORRECTNESS.value
"""The tier of which a history is kept."""
_LOG = logging.getLogger("fencehold.server")
NO_HISTORY = "no history is kept here: start the server with --data, or say --history-file FILE"


class Settings(Struct, frozen=True):
    """What an observer is started with, as JSON in an argument."""

    history: str = ""
    """The file; empty: none is kept."""
    bounds: tuple[int, int, int] = Bounds()
    templates: tuple[str, ...] = ()
    slow_append_s: float = SLOW_APPEND_S


class Observer:
    """What it does with each frame."""

    def __init__(self, settings: Settings) -> None:
        self._recorder = _recorder_of(settings)
        templates = Templates(settings.templates)
        sessions = dict(self._recorder.store.sessions) if self._recorder is not None else {}
        self._tallies: dict[str, Tally] = {}
        self._templates = templates
        self._incidents = {JOURNALED: Incidents(sessions, slow_append_s=settings.slow_append_s)}
        self._slow_append_s = settings.slow_append_s
        self._seen: dict[str, int] = {}
        """The last position of each tier."""
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
        tier = said.tier
        tally, incidents = self._tally(tier), self._incidents_of(tier)
        # Each life of the volatile machine begins elsewhere, and misses nothing by that.
        if tier == JOURNALED and said.after > self._seen.get(tier, said.after):
            self._gaps += 1
        recorder = self._recorder if tier == JOURNALED else None
        if recorder is not None:
            recorder.on_gap(said.after)
        for entry, applied in ((thing.entry, thing.applied) for thing in said.things):
            facts = facts_of(entry, applied)
            tally.on_entry(applied, facts, len(entry.commands), is_counted=said.leads)
            incidents.on_facts(facts, is_told=said.leads)
            if recorder is not None:
                recorder.on_entry(applied, facts)
        self._seen[tier] = said.up_to
        if recorder is not None:
            recorder.on_nothing(said.up_to)
        for seconds in said.append_s:
            tally.on_append(seconds)
            if tier == JOURNALED:
                incidents.on_append(seconds)

    def _on_began(self, said: Began) -> None:
        self._seen.pop(JOURNALED, None)
        if self._recorder is not None:
            try:
                self._recorder.on_began(said.end, said.snapshot_at, said.snapshot)
            except sqlite3.Error as error:
                self._fail(error)
            else:
                self._incidents[JOURNALED].know(self._recorder.store.sessions)

    def _on_asked(self, asked: Asked) -> Answered:
        if self._recorder is None:
            return Answered(asked.number, b"", NO_HISTORY)
        try:
            self._recorder.flush()
            now = int(time.time() * 1000)
            found = history(
                self._recorder.store, asked.name, asked.since_ms, asked.until_ms, asked.count, asked.held, now
            )
            return Answered(asked.number, msgspec.json.encode(found))
        except sqlite3.Error as error:
            return Answered(asked.number, b"", f"the history cannot be read: {error}")

    def _tally(self, tier: str) -> Tally:
        if tier not in self._tallies:
            self._tallies[tier] = Tally(tier, self._templates)
        return self._tallies[tier]

    def _incidents_of(self, tier: str) -> Incidents:
        if tier not in self._incidents:
            self._incidents[tier] = Incidents(slow_append_s=self._slow_append_s)
        return self._incidents[tier]

    def figures(self) -> dict[str, list[list[Any]]]:
        """All that was counted, by metric."""
        found: dict[str, list[list[Any]]] = {"fencehold_observer_gaps_total": [[[], self._gaps]]}
        for tally in self._tallies.values():
            for name, rows in tally.figures().items():
                found.setdefault(name, []).extend(rows)
        if self._recorder is not None:
            store = self._recorder.store
            found["fencehold_history_rows"] = [[[], store.rows]]
            found["fencehold_history_bytes"] = [[[], store.size_bytes]]
        return found

    # The history's life.

    @property
    def is_due(self) -> bool:
        return self._recorder is not None and self._recorder.is_due

    @property
    def wait_s(self) -> float:
        """How long it may wait for the next frame."""
        return _IDLE_S if self._recorder is None or not self._recorder.is_waiting else BATCH_S

    def settle(self) -> None:
        """Write what waits, and keep the bound."""
        if self._recorder is None:
            return
        try:
            self._recorder.flush()
            self._recorder.store.keep_bound()
            self._has_failed = False
        except sqlite3.Error as error:
            self._fail(error)

    def _fail(self, error: sqlite3.Error) -> None:
        if self._recorder is not None:
            self._recorder.miss()
        if not self._has_failed:
            self._has_failed = True
            _LOG.error("history_failed", extra={"facts": {"why": str(error)}})

    def close(self) -> None:
        if self._recorder is not None:
            self.settle()
            self._recorder.store.close()


def _recorder_of(settings: Settings) -> Recorder | None:
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
        facts = {"file": settings.history, "note": "it was put aside, and is filled again from the journal"}
        _LOG.error("history_damaged", extra={"facts": facts})
    return Recorder(store)


class _Handler(logging.Handler):
    """Hands records to the node, whose log it is."""

    def __init__(self, node: socket.socket) -> None:
        super().__init__()
        self._node = node

    def emit(self, record: logging.LogRecord) -> None:
        event, facts = record.getMessage(), getattr(record, "facts", None)
        if facts is None:
            event, facts = "left_out", {"of": record.name.removeprefix(_PREFIX), "note": event}
        shown: dict[str, str | int | float | None] = {
            str(key): value if isinstance(value, str | int | float) else str(value) for key, value in facts.items()
        }
        self._node.sendall(framed(Noted(record.levelno, event, shown)))


def run(node: socket.socket, settings: Settings) -> None:
    """Observe until the node closes its end."""
    logger = logging.getLogger("fencehold")
    logger.addHandler(_Handler(node))
    logger.setLevel(logging.INFO)
    logger.propagate = False
    observer, unframer = Observer(settings), Unframer()
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
                    node.sendall(framed(answer))
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
