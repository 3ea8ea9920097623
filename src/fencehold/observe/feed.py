"""The feed: a node's end of the line to its observer.

1. A grant never waits for it. What became durable is noted by reference, encoded some milliseconds later with its
   neighbours, and written to a socket that never blocks.
2. What waits for the observer has a bound in bytes. Beyond it entries are dropped and counted; the observer sees
   from the positions that there is a gap.
3. The observer is started when there is something to tell it, a moment later: a server that ends at once needs
   none. If it ends it is started again, after a pause that grows. It takes up its history where that ends.
4. It ends with the node, however that ends: its standard input is the socket.
5. Where no history is kept and nothing is traced, a node that stands by tells of sessions only: operations are
   counted, and told in the log, by the node that leads. A hold or a wait that began under another leader is then
   not measured at its end.
"""

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from fencehold.build import PURE
from fencehold.core.commands import Entry, OpenSession, OpenSessionAs, OpenSessionBy
from fencehold.core.outcomes import Applied, SessionEnded
from fencehold.core.state import State
from fencehold.errors import FenceholdError, Unavailable
from fencehold.journal.port import Opened
from fencehold.node.node import Node
from fencehold.observe.frames import (
    Answered,
    Asked,
    Began,
    Entries,
    Journaled,
    Measured,
    Noted,
    Said,
    Unframer,
    framed,
    read_told,
)
from fencehold.observe.history.schema import positions_in
from fencehold.observe.history.store import Bounds
from fencehold.observe.incidents import SLOW_APPEND_S
from fencehold.observe.spans import SPANS_PER_S_MAX
from fencehold.runtime.calendar import unix_ms
from fencehold.types import CORRECTNESS

_FLUSH_S = 0.05
_START_S = 2.0
_BACKLOG_BYTES_MAX = 32 << 20
_PAUSE_S_FIRST, _PAUSE_S_MAX = 0.5, 30.0
_LIVED_S = 60.0
_CLOSE_S = 5.0
_ANSWER_S = 5.0
_FIGURES_S = 1.0
_ASKED_MAX = 256
_HELD_MAX = 1_000
_LOG = logging.getLogger("fencehold")
_OPENINGS = frozenset({OpenSession, OpenSessionAs, OpenSessionBy})

Reply = Callable[[bytes | FenceholdError], None]


class ObserveBounds(NamedTuple):
    """What is observed, and how."""

    slow_append_s: float = SLOW_APPEND_S
    """An append that takes so long is logged."""
    templates: tuple[str, ...] = ()
    """Patterns of names for metrics, such as `order:{id}`; others are found."""
    spans_per_s_max: int = SPANS_PER_S_MAX
    """Server spans made in a second, where traces are on; those beyond are counted."""


class Observing(NamedTuple):
    """What a server's observer is to do."""

    history: Path | None = None
    """Where the history is kept; None: nowhere."""
    bounds: Bounds = Bounds()
    observe: ObserveBounds = ObserveBounds()
    shards: int = 1
    """How many machines of each tier there are."""
    traces: bool = False
    """Whether spans are made of traced acquires, and sent by OTLP."""


class _Machine:
    """What is to be told of one machine: of a shard and a tier."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.tier = node.tier.value
        self.shard = _shard_of(node)
        self.is_journaled = node.tier is CORRECTNESS
        self.things: list[Journaled] = []
        self.appended = 0
        """How many of them were appended here."""
        self.after: int | None = None
        """The last position before them."""
        self.dated: tuple[int, int] | None = None
        """The logical time of the first, and the time of day when it was durable."""
        self.position: int | None = None


class Feed:
    """Tells one observer of one server's machines."""

    def __init__(self, observing: Observing) -> None:
        self._observing = observing
        self._positions = {} if observing.history is None else positions_in(observing.history)
        """Up to where the observer knows the journal of each shard, at the least."""
        self._machines: dict[tuple[str, int], _Machine] = {}
        self._waiting: list[bytes] = []
        """Frames for an observer that is not there yet."""
        self._waiting_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._unframer = Unframer()
        self._flushing: asyncio.TimerHandle | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        """Start it now: there is a question."""
        self._asked: dict[int, tuple[Reply, asyncio.TimerHandle]] = {}
        self._number = 0
        self._figures = b"{}"
        self._is_drained = asyncio.Event()
        self._is_closing = False
        self.pid: int | None = None
        """Of the observer; None while there is none."""
        self.dropped = 0
        """Entries that the observer was not told of."""
        self.on_noted: Callable[[int, str, dict[str, Any]], None] = _log
        """Told what is worth a line in the log."""

    # What happens, on the event loop.

    def attach(self, node: Node) -> None:
        """Observe a machine from here on. To be said before it runs."""
        machine = self._machines[node.tier.value, _shard_of(node)] = _Machine(node)
        before = node.replica.on_entry

        def on_entry(entry: Entry, applied: Applied) -> None:
            before(entry, applied)
            self._on_entry(machine, entry, applied)

        node.replica.on_entry = on_entry
        if node.tier is CORRECTNESS:
            node.replica.on_opened = partial(self._on_opened, machine)

    def _on_entry(self, machine: _Machine, entry: Entry, applied: Applied) -> None:
        leads = machine.node.leads
        if machine.after is not None and leads is not bool(machine.appended):
            # It was promoted or deposed: what it appended, and what it followed, are told apart.
            self._tell_of(machine)
        if machine.after is None:
            machine.after = applied.position - 1 if machine.position is None else machine.position
            if self._observing.traces:
                machine.dated = applied.at_ms, unix_ms()
        machine.position = applied.position
        machine.appended += leads
        if (entry.commands or applied.notices) and (leads or self._is_followed(machine, entry, applied)):
            machine.things.append(Journaled(entry, applied))
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().call_later(_FLUSH_S, self.flush)

    def _is_followed(self, machine: _Machine, entry: Entry, applied: Applied) -> bool:
        """Whether the observer is to know of what another node did."""
        if self._observing.history is not None or self._observing.traces or not machine.is_journaled:
            return True
        return not _OPENINGS.isdisjoint(map(type, entry.commands)) or any(
            type(notice) is SessionEnded for _, notice in applied.notices
        )

    def _on_opened(self, machine: _Machine, opened: Opened) -> None:
        self._tell_of(machine)
        snapshot, shard = opened.snapshot, machine.shard
        if snapshot is None:
            machine.position = 0
            self._send(Began(opened.end, shard=shard))
            return
        machine.position = snapshot.position
        known = self._positions.get(shard, 0)
        known = known if opened.end >= known else 0
        is_needed = self._observing.history is not None and snapshot.position > known
        data = bytes(snapshot.data) if is_needed else b""
        self._send(Began(opened.end, snapshot.position, data, shard))

    def flush(self) -> None:
        """Tell the observer what happened since it was told last."""
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        for machine in self._machines.values():
            self._tell_of(machine)

    def _tell_of(self, machine: _Machine, *, is_last: bool = False) -> None:
        things, after, appended = machine.things, machine.after, machine.appended
        if after is None:
            return
        machine.things, machine.appended = [], 0
        times_s = machine.node.append_times_s[-appended:] if appended and machine.is_journaled else []
        if not things and (self._transport is None or not (times_s or is_last)):
            # Nothing happened in them, and nothing is missed without them.
            return
        machine.after = None
        if self._backlog_bytes > _BACKLOG_BYTES_MAX:
            self.dropped += len(things)
            return
        up_to = machine.position or after
        if machine.is_journaled:
            self._positions[machine.shard] = max(self._positions.get(machine.shard, 0), up_to)
        self._send(
            Entries(machine.tier, after, up_to, bool(appended), things, times_s, machine.shard, machine.dated)
        )

    @property
    def _backlog_bytes(self) -> int:
        if self._transport is None:
            return self._waiting_bytes
        return self._transport.get_write_buffer_size()

    def _send(self, said: Said) -> None:
        data = framed(said)
        if self._transport is not None:
            self._transport.write(data)
        elif not self._is_closing:
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            if self._keeping is None:
                self._keeping = asyncio.get_running_loop().create_task(self._keep(), name="fencehold observer")

    # Its figures.

    @property
    def figures(self) -> dict[str, list[list[Any]]]:
        """Of the feed itself, by metric."""
        return {
            "fencehold_observer_up": [[[], int(self._transport is not None)]],
            "fencehold_observer_backlog_bytes": [[[], self._backlog_bytes]],
            "fencehold_observer_dropped_total": [[[], self.dropped]],
        }

    # Questions.

    @property
    def keeps_history(self) -> bool:
        """Whether there is a past to ask for; what is counted is, in any case."""
        return self._observing.history is not None

    def ask_history(self, state: State | None, asked: Asked, reply: Reply) -> None:
        """Have `reply` told the past of a name, as JSON; or why that is not known.

        `state`: of the machine of its shard, if it may be looked at: who holds the name now.
        """
        held = None if state is None else _fences(state, asked.name)
        self._ask(lambda number: replace(asked, number=number, held=held), _ANSWER_S, reply)

    def ask_figures(self, reply: Callable[[bytes], None]) -> None:
        """Have `reply` told what was counted, as JSON: at once what is known, if the observer takes long."""

        def told(found: bytes | FenceholdError) -> None:
            if not isinstance(found, FenceholdError):
                self._figures = found
            reply(self._figures)

        if self._transport is None and self._keeping is None:
            # Nothing has happened that could be counted.
            reply(self._figures)
        else:
            self._ask(Measured, _FIGURES_S, told)

    def _ask(self, question: Callable[[int], Said], within_s: float, reply: Reply) -> None:
        if self._is_closing or len(self._asked) >= _ASKED_MAX:
            reply(Unavailable("too many questions about the past wait already, or the server stops"))
            return
        self._number += 1
        number = self._number
        late = asyncio.get_running_loop().call_later(within_s, self._on_late, number)
        self._asked[number] = reply, late
        self.flush()
        self._send(question(number))
        self._hurry.set()

    def _on_late(self, number: int) -> None:
        reply, _ = self._asked.pop(number)
        reply(Unavailable("the observer of this node did not answer in time; try again"))

    def on_told(self, data: bytes) -> None:
        for frame in self._unframer.feed(data):
            match read_told(frame):
                case Answered(number=number, data=found, error=error):
                    asked = self._asked.pop(number, None)
                    if asked is not None:
                        asked[1].cancel()
                        asked[0](Unavailable(error) if error else found)
                case Noted(level=level, event=event, facts=facts):
                    self.on_noted(level, event, facts)

    def on_drained(self) -> None:
        self._is_drained.set()

    # The life of the observer.

    async def _keep(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_START_S):
                await self._hurry.wait()
        pause_s, loop = _PAUSE_S_FIRST, asyncio.get_running_loop()
        while True:
            started_at = loop.time()
            code = await self._live()
            pause_s = _PAUSE_S_FIRST if loop.time() - started_at > _LIVED_S else pause_s
            _LOG.warning("observer_ended", extra={"facts": {"code": code, "again_in_s": pause_s}})
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    async def _live(self) -> int:
        """Start an observer, and wait for its end."""
        ours, its = socket.socketpair()
        try:
            with its:
                process = await asyncio.create_subprocess_exec(
                    *self._command(), stdin=its.fileno(), env=_environment()
                )
        except BaseException:
            ours.close()
            raise
        transport: Any
        transport, _ = await asyncio.get_running_loop().create_unix_connection(partial(_Line, self), sock=ours)
        transport.set_write_buffer_limits(high=_BACKLOG_BYTES_MAX)
        self._transport, self._unframer, self.pid = transport, Unframer(), process.pid
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        transport.write(b"".join(waiting))
        try:
            return await process.wait()
        finally:
            self._transport = self.pid = None
            transport.close()
            if process.returncode is None:
                await self._let_end(process)

    async def _let_end(self, process: Any) -> None:
        """Its socket is closed: wait until it has written what it has."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                await asyncio.shield(process.wait())
        except (TimeoutError, asyncio.CancelledError):
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _command(self) -> list[str]:
        settings = {
            "history": "" if self._observing.history is None else str(self._observing.history),
            "bounds": tuple(self._observing.bounds),
            "shards": self._observing.shards,
            "traces": self._observing.traces,
            **self._observing.observe._asdict(),
        }
        return [sys.executable, "-m", "fencehold.observe", msgspec.json.encode(settings).decode()]

    async def close(self) -> None:
        """Tell it the rest, and wait until it has ended."""
        self.flush()
        for machine in self._machines.values():
            self._tell_of(machine, is_last=True)
        self._is_closing = True
        for reply, late in tuple(self._asked.values()):
            late.cancel()
            reply(Unavailable("the server stops"))
        self._asked.clear()
        if self._keeping is not None:
            keeping, self._keeping = self._keeping, None
            await self._drained()
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)

    async def _drained(self) -> None:
        """Wait until what was written is with the observer, but not for long."""
        if self._transport is None or not self._transport.get_write_buffer_size():
            return
        # Told by the transport when there is nothing left.
        self._is_drained.clear()
        self._transport.set_write_buffer_limits(high=0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._is_drained.wait()


class _Line(asyncio.Protocol):
    """The socket to the observer."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def data_received(self, data: bytes) -> None:
        self._feed.on_told(data)

    def resume_writing(self) -> None:
        self._feed.on_drained()

    def connection_lost(self, _: Exception | None) -> None:
        self._feed.on_drained()


def _shard_of(node: Node) -> int:
    return 0 if node.home is None else node.home.shard


def _fences(state: State, name: str) -> list[int] | None:
    """Of those who hold a name now; None: of too many."""
    hold = state.held.get(name)
    if hold is not None:
        return [hold.fence]
    crowd = state.crowds.get(name)
    if crowd is None:
        return []
    return list(crowd.holds) if len(crowd.holds) <= _HELD_MAX else None


def _environment() -> dict[str, str]:
    """Nothing of the server's settings is meant for it, but which build it is."""
    return {key: value for key, value in os.environ.items() if not key.startswith("FENCEHOLD_") or key == PURE}


def _log(level: int, event: str, facts: dict[str, Any]) -> None:
    _LOG.log(level, event, extra={"facts": facts})
