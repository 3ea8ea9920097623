"""The network: connections as TCP makes them, between machines that may not reach one another.

1. What is written arrives in order, some time later, in other pieces than it was written in; or not at all.
2. Where a way is blocked, bytes are held back and arrive when it is open again. A server that is not heard by its
   client for `USER_TIMEOUT_S` gives the connection up, as its kernel is told to.
3. A process that is killed has its connections closed by its kernel, and its port refuses. A machine that is lost
   says nothing; once it is back, whoever writes to an old connection of it is told that there is none.
4. A stopped process is still reached: its kernel takes connections and bytes for it.
5. Nobody forges the end of a connection, but where a test says so (`cut`): see G7 and the grace.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Any, NamedTuple

from tests.simulation.loop import Factory
from tests.simulation.process import Process
from tests.simulation.scheduler import Scheduler
from tests.simulation.wire import Tap

USER_TIMEOUT_S = 30.0
SYN_AGAIN_S = (1.0, 2.0, 4.0, 8.0)
"""After what time a request for a connection that got lost is sent again; then it is given up."""
HELD_UP_S_MAX = 1.0
"""How long after a way is open again the first byte may take: senders try ever more rarely."""

Way = tuple[str, str]
"""From one machine to another."""


class Weather(NamedTuple):
    """What the network is like."""

    latency_ms: float = 0.5
    spike_share: float = 0.01
    spike_ms: float = 50.0
    split_share: float = 0.05


class Kind(Enum):
    """What travels."""

    ACCEPTED = 1
    DATA = 2
    END = 3
    RESET = 4


Item = tuple[int, Kind, bytes]


class Network:
    """All machines, and the ways between them."""

    def __init__(
        self, scheduler: Scheduler, random: Random, weather: Weather, tap: Callable[[Process, Process], Tap | None]
    ) -> None:
        self.scheduler = scheduler
        self.weather = weather
        self._random = random
        self._tap = tap
        self._blocked: dict[Way, int] = {}
        """How many faults block a way, and how often that began."""
        self._blockings = 0
        self._waiting: dict[Way, list[Callable[[], None]]] = {}
        self._listeners: dict[tuple[str, int], Listener] = {}
        self._lines: dict[Line, None] = {}

    def latency_ns(self) -> int:
        weather, draw = self.weather, self._random.random()
        ms = weather.latency_ms * (0.5 + draw)
        if draw < weather.spike_share:
            ms += weather.spike_ms * 2 * self._random.random()
        return int(ms * 1_000_000)

    def cuts(self, data: bytes) -> list[bytes]:
        """The pieces in which something arrives."""
        if len(data) > 1 and self._random.random() < self.weather.split_share:
            place = self._random.randrange(1, len(data))
            return [data[:place], data[place:]]
        return [data]

    # Ways.

    def is_blocked(self, source: str, target: str) -> bool:
        return (source, target) in self._blocked

    def block(self, *ways: Way) -> None:
        """Let nothing through any more, until as many `unblock` as there were of these."""
        for way in ways:
            self._blocked[way] = self._blocked.get(way, 0) + 1
            self.scheduler.after(USER_TIMEOUT_S, self._time_out, way)

    def unblock(self, *ways: Way) -> None:
        for way in ways:
            self._blocked[way] -= 1
            if not self._blocked[way]:
                del self._blocked[way]
                for call in self._waiting.pop(way, ()):
                    self.scheduler.after(self._random.random() * HELD_UP_S_MAX, call)

    def when_open(self, source: str, target: str, call: Callable[[], None]) -> None:
        """Call when the way is open again, a while later."""
        self._waiting.setdefault((source, target), []).append(call)

    def _time_out(self, way: Way) -> None:
        """Blocked for so long, and perhaps with open moments between, that servers give up."""
        if way in self._blocked:
            for line in self.lines(*way):
                line.server.lose(TimeoutError("timed out"))

    # Connections.

    def listen(self, process: Process, factory: Factory, port: int) -> "Listener":
        listener = self._listeners[process.host, port] = Listener(self, process, factory, port)
        return listener

    def unlisten(self, listener: "Listener") -> None:
        if self._listeners.get((listener.process.host, listener.port)) is listener:
            del self._listeners[listener.process.host, listener.port]

    def connect(self, process: Process, factory: Factory, host: str, port: int) -> "Attempt":
        attempt = Attempt(self, process, factory, host, port)
        attempt.send()
        return attempt

    def listener(self, host: str, port: int) -> "Listener | None":
        return self._listeners.get((host, port))

    def join(self, attempt: "Attempt", listener: "Listener") -> None:
        """A request for a connection has reached a port that takes it."""
        line = Line(self, attempt, listener, self._tap(listener.process, attempt.process))
        self._lines[line] = None

    def lines(self, one: str, other: str) -> "list[Line]":
        """The connections between two machines."""
        return [
            line for line in self._lines if {line.client.process.host, line.server.process.host} == {one, other}
        ]

    def forget(self, line: "Line") -> None:
        self._lines.pop(line, None)

    def on_killed(self, process: Process, *, silently: bool) -> None:
        """The kernel clears up after a process; or has gone with it."""
        for listener in [each for each in self._listeners.values() if each.process is process]:
            self.unlisten(listener)
        for line in tuple(self._lines):
            for end in (line.client, line.server):
                if end.process is process:
                    end.die(silently=silently)

    def cut(self, line: "Line") -> None:
        """Somebody between the two ends the connection, at either end when the news gets there."""
        for end in (line.client, line.server):
            self.scheduler.at(
                self.scheduler.now_ns + self.latency_ns(), end.process, end.lose, ConnectionResetError()
            )


class Listener:
    """A port that takes connections. It is what `create_server` gives."""

    def __init__(self, network: Network, process: Process, factory: Factory, port: int) -> None:
        self.process = process
        self.port = port
        self.make = factory
        self._network = network
        self.sockets = (self,)

    def getsockname(self) -> tuple[str, int]:
        return (self.process.host, self.port)

    def close(self) -> None:
        self._network.unlisten(self)

    async def wait_closed(self) -> None:
        """It is."""


class Attempt:
    """A connection that is being made."""

    def __init__(self, network: Network, process: Process, factory: Factory, host: str, port: int) -> None:
        self.process = process
        self.make = factory
        self.host = host
        self.port = port
        self.made: asyncio.Future[Any] = process.loop.create_future()
        self.end: End | None = None
        self._network = network
        self._tries = 0

    def send(self) -> None:
        network = self._network
        network.scheduler.at(network.scheduler.now_ns + network.latency_ns(), None, self._arrive)

    def _arrive(self) -> None:
        network = self._network
        if self.made.done() or not self.process.alive:
            return
        if network.is_blocked(self.process.host, self.host):
            self._again()
            return
        listener = network.listener(self.host, self.port)
        if listener is not None:
            network.join(self, listener)
        elif not network.is_blocked(self.host, self.process.host):
            at_ns = network.scheduler.now_ns + network.latency_ns()
            network.scheduler.at(at_ns, self.process, self._fail, ConnectionRefusedError("refused"))

    def _again(self) -> None:
        if self._tries < len(SYN_AGAIN_S):
            self._network.scheduler.after(SYN_AGAIN_S[self._tries], self._arrive)
            self._tries += 1
        else:
            self._network.scheduler.at(
                self._network.scheduler.now_ns, self.process, self._fail, TimeoutError("timed out")
            )

    def _fail(self, error: OSError) -> None:
        if not self.made.done():
            self.made.set_exception(error)

    def give_up(self) -> None:
        """Nobody wants it any more."""
        self.made.cancel()
        if self.end is not None:
            self.end.close()


class Line:
    """One connection: two ends."""

    def __init__(self, network: Network, attempt: Attempt, listener: Listener, tap: Tap | None) -> None:
        self.network = network
        self.client = End(self, attempt.process, (listener.process.host, listener.port), attempt)
        self.server = End(self, listener.process, (attempt.process.host, 0), None, tap)
        self.client.out = Flow(network, self.client, self.server)
        self.server.out = Flow(network, self.server, self.client)
        self.server.out.send(Kind.ACCEPTED)
        listener.process.do(self.server.accept, listener.make)

    def on_lost(self) -> None:
        if self.client.is_over and self.server.is_over:
            self.network.forget(self)


class Flow:
    """One direction of a connection."""

    __slots__ = ("_is_held", "_last_ns", "_network", "_queue", "_source", "_target")

    def __init__(self, network: Network, source: "End", target: "End") -> None:
        self._network = network
        self._source = source
        self._target = target
        self._queue: deque[Item] = deque()
        self._last_ns = 0
        self._is_held = False

    def send(self, kind: Kind, data: bytes = b"") -> None:
        network = self._network
        scheduler = network.scheduler
        for piece in network.cuts(data) if kind is Kind.DATA else (data,):
            self._last_ns = max(self._last_ns, scheduler.now_ns + network.latency_ns())
            self._queue.append((self._last_ns, kind, piece))
            if not self._is_held:
                scheduler.at(self._last_ns, None, self._arrive)

    @property
    def is_empty(self) -> bool:
        return not self._queue

    def _arrive(self) -> None:
        source, target = self._source.process, self._target.process
        if self._is_held or not self._queue:
            return
        if self._network.is_blocked(source.host, target.host):
            self._is_held = True
            self._network.when_open(source.host, target.host, self._go_on)
        elif target.alive:
            target.do(self._deliver)
        else:
            self._target.refuse(self._take())

    def _go_on(self) -> None:
        """The way is open: what was held back follows at once."""
        self._is_held = False
        now_ns = self._network.scheduler.now_ns
        self._queue = deque((min(at_ns, now_ns), kind, data) for at_ns, kind, data in self._queue)
        self._arrive()

    def _take(self) -> list[tuple[Kind, bytes]]:
        now_ns, queue = self._network.scheduler.now_ns, self._queue
        items: list[tuple[Kind, bytes]] = []
        while queue and queue[0][0] <= now_ns:
            _, kind, data = queue.popleft()
            if kind is Kind.DATA and items and items[-1][0] is Kind.DATA:
                items[-1] = (kind, items[-1][1] + data)
            else:
                items.append((kind, data))
        return items

    def _deliver(self) -> None:
        for kind, data in self._take():
            self._target.on_arrived(kind, data)


class End(asyncio.Transport):
    """One end of a connection, as its process has it."""

    out: Flow

    def __init__(
        self, line: Line, process: Process, peer: tuple[str, int], attempt: Attempt | None, tap: Tap | None = None
    ) -> None:
        super().__init__()
        self.process = process
        self._line = line
        self._peer = peer
        self._attempt = attempt
        self._tap = tap
        self._protocol: asyncio.Protocol | None = None
        self._inbox: list[tuple[Kind, bytes]] = []
        """What came while nobody reads."""
        self._is_reading = True
        self._has_ended = False
        """It was said that nothing more will be written."""
        self._closing = False
        self.is_over = False

    # What its process does.

    def accept(self, make: Factory) -> None:
        """The server takes the connection."""
        self._open(make())

    def _open(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    def write(self, data: "bytes | bytearray | memoryview") -> None:
        if self._closing or self._has_ended or not self.process.alive or not data:
            return
        if self._tap is not None:
            self._tap.on_said(bytes(data))
        self.out.send(Kind.DATA, bytes(data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._closing and not self._has_ended and self.process.alive:
            self._has_ended = True
            self.out.send(Kind.END)

    def close(self) -> None:
        if self._closing or not self.process.alive:
            return
        self._closing = True
        self._say_end()
        self.process.loop.call_soon(self._lost, None)

    def abort(self) -> None:
        self.close()

    def _say_end(self) -> None:
        """What was not read is told to the other end by a reset."""
        if self._inbox:
            self.out.send(Kind.RESET)
        elif not self._has_ended:
            self._has_ended = True
            self.out.send(Kind.END)

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self.process.loop.call_soon(self._read_inbox)

    def is_reading(self) -> bool:
        return self._is_reading

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """The kernel takes all."""

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self._peer, "sockname": (self.process.host, 0)}.get(name, default)

    # What happens to it.

    def on_arrived(self, kind: Kind, data: bytes) -> None:
        """Something came."""
        if self._closing:
            self.refuse([(kind, data)])
        elif kind is Kind.RESET:
            self.lose(ConnectionResetError("reset"))
        elif kind is Kind.ACCEPTED:
            self._on_accepted()
        elif not self._is_reading:
            self._inbox.append((kind, data))
        else:
            self._read(kind, data)

    def _read(self, kind: Kind, data: bytes) -> None:
        protocol = self._protocol
        if protocol is None:
            return
        if kind is Kind.DATA:
            if self._tap is not None:
                self._tap.on_heard(data)
            protocol.data_received(data)
        elif not protocol.eof_received():
            self.close()

    def _read_inbox(self) -> None:
        while self._inbox and self._is_reading and not self._closing:
            self._read(*self._inbox.pop(0))

    def _on_accepted(self) -> None:
        attempt = self._attempt
        if attempt is None:
            return
        if attempt.made.done():
            self._closing = self.is_over = True
            self._say_end()
            return
        attempt.end = self
        self._open(attempt.make())
        attempt.made.set_result((self, self._protocol))

    def refuse(self, items: list[tuple[Kind, bytes]]) -> None:
        """Something came that nobody will read."""
        if any(kind is Kind.DATA for kind, _ in items):
            self.out.send(Kind.RESET)

    def lose(self, error: Exception) -> None:
        """The connection is gone."""
        if not self._closing:
            self._closing = True
            self.process.do(self._lost, error)

    def _lost(self, error: Exception | None) -> None:
        if not self.is_over:
            self.is_over = True
            self._line.on_lost()
            if self._protocol is not None:
                self._protocol.connection_lost(error)

    def die(self, *, silently: bool) -> None:
        """The process was killed."""
        if not self._closing and not silently:
            self._say_end()
        self._closing = self.is_over = True
        self._line.on_lost()
