"""The model at scale: a million clients, 10⁸ names, 200 shards, 5 regions; its unit costs are measured here.

``python -m bench.scale`` measures what one of each costs on this machine, in processor time and bytes, checks the
model against a second measurement of another size, and works out the rest. What it assumes is in `Shape`. Nothing
in it is by the wall clock, so it may run beside other things.
"""

import argparse
import asyncio
import gc
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.procfs import cpu_seconds, resident_mb
from fencehold.core.commands import Acquire, Command, Entry, OpenSession
from fencehold.core.machine import Machine
from fencehold.drivers.resp.wire import command
from fencehold.journal.codec import decode, encode
from rig.processes import Process, accepts, free_port

_HOLDS_PER_SESSION = 100
_NAME = "tenant:{:06}:order:{:010}"


class Units(NamedTuple):
    """What one of each costs here."""

    name_bytes: float
    """A held name, in the memory of a replica."""
    session_bytes: float
    """A session, in the memory of a replica."""
    connection_bytes: float
    """A connection with its session, in the memory of the leader."""
    keep_alive_us: float
    """Processor time of the server."""
    pair_us: float
    """An acquire and a release, processor time of the server."""
    reconnect_us: float
    """Connect, greet, resume: processor time of the server."""
    replay_us: float
    """A command that a replica applies."""
    tick_us: float
    """An entry with nothing in it, every 200 ms in every shard: processor time of the leader."""


class Shape(NamedTuple):
    """What is assumed of the world."""

    clients: int = 1_000_000
    names: int = 100_000_000
    """Held at once: a free one costs nothing."""
    shards: int = 200
    regions: int = 5
    shards_per_client: float = 4.0
    """That a client uses, so many sessions it has; a `{tag}` keeps it at one."""
    ttl_s: float = 30.0
    pairs_per_client_s: float = 0.1
    """Acquires and releases."""
    replicas: int = 3
    """Nodes that host a shard: one leads, the others follow."""
    connections_per_node: int = 16_000
    """The default of a listener."""
    core_share: float = 0.6
    """How much of a leader's core is to be used, so that bursts find room."""
    leader_timeout_s: float = 1.0
    lease_s: float = 10.0
    round_trip_s: float = 0.08
    takeover_s: float = 0.05
    """To take the epoch of a shard and read what is left of its journal; seen: six in 0.3 s (decision 19)."""


class Answer(NamedTuple):
    """One line of what follows."""

    what: str
    value: float
    unit: str


def sessions(shape: Shape) -> float:
    return shape.clients * shape.shards_per_client


def keep_alives_per_s(shape: Shape) -> float:
    """A session is kept alive three times in its ttl."""
    return sessions(shape) / (shape.ttl_s / 3)


def leader_cpu_per_shard(units: Units, shape: Shape) -> float:
    """Cores that leading one shard takes."""
    keep_alives = keep_alives_per_s(shape) / shape.shards * units.keep_alive_us
    pairs = shape.clients * shape.pairs_per_client_s / shape.shards * units.pair_us
    return (keep_alives + pairs + 5 * units.tick_us) / 1e6


def nodes_needed(units: Units, shape: Shape) -> dict[str, float]:
    """Nodes in all regions, by what limits them; the greatest counts."""
    return {
        "cores": leader_cpu_per_shard(units, shape) * shape.shards / shape.core_share,
        "connections": sessions(shape) / shape.connections_per_node,
        "coming back within half a ttl": _nodes_for_return(units, shape),
    }


def _nodes_for_return(units: Units, shape: Shape) -> float:
    """So many that, when one of n is lost, the others have its connections within half a ttl: s/n · c/(n - 1)."""
    work_s = sessions(shape) * units.reconnect_us / 1e6
    return (1 + math.sqrt(1 + 4 * work_s / (shape.ttl_s / 2))) / 2


def state_bytes_per_shard(units: Units, shape: Shape) -> float:
    return (shape.names * units.name_bytes + sessions(shape) * units.session_bytes) / shape.shards


def failover_s(units: Units, shape: Shape, led: int, nodes_left: int, connections: float) -> dict[str, float]:
    """A node that led so many shards, with so many connections, is killed."""
    return {
        "until others lead": shape.leader_timeout_s + led / nodes_left * shape.takeover_s,
        "until all are back": connections * units.reconnect_us / 1e6 / nodes_left,
    }


def region_lost(units: Units, shape: Shape) -> list[Answer]:
    """One of the regions is gone, and an operator promotes another for its prefixes."""
    away, left = sessions(shape) / shape.regions, shape.regions - 1
    wait_s = 1.05 * (shape.lease_s + shape.ttl_s)
    shards = shape.shards / shape.regions
    steps = 4 + 3 * left
    told_s = steps * math.ceil(shards / 16) * shape.round_trip_s
    busier = 1 + 1 / left
    return [
        Answer("names refused until then", shape.names / shape.regions, "names"),
        Answer("sessions that end", away, "sessions"),
        Answer("from the command to the first grant", wait_s + told_s, "s"),
        Answer("of that, telling all shards", told_s, "s"),
        Answer("load of the regions left, if spread", busier, "×"),
        Answer("cores of a leader of one shard then", leader_cpu_per_shard(units, shape) * busier, "cores"),
    ]


def answers(units: Units, shape: Shape) -> list[Answer]:
    """What the model says."""
    needed = nodes_needed(units, shape)
    nodes = max(shape.replicas * shape.regions, math.ceil(max(needed.values())))
    per_node = sessions(shape) / nodes
    state_mb = state_bytes_per_shard(units, shape) / 1e6
    hosted = shape.shards / shape.regions
    forty = failover_s(units, shape, 40, shape.replicas - 1, 40 * sessions(shape) / shape.shards)
    spread = failover_s(units, shape, math.ceil(shape.shards / nodes), nodes // shape.regions - 1, per_node)
    return [
        Answer("sessions", sessions(shape), "sessions"),
        Answer("keep-alives", keep_alives_per_s(shape), "/s"),
        Answer("keep-alives of a shard", keep_alives_per_s(shape) / shape.shards, "/s"),
        Answer("entries they make in a shard", 5, "/s"),
        Answer("cores of a leader of one shard", leader_cpu_per_shard(units, shape), "cores"),
        Answer("cores of all leaders", leader_cpu_per_shard(units, shape) * shape.shards, "cores"),
        *(Answer(f"nodes for {what}", count, "nodes") for what, count in needed.items()),
        Answer("nodes", nodes, "nodes"),
        Answer("state of a shard", state_mb, "MB"),
        Answer("state of a node that hosts all shards of its region", state_mb * hosted / 1e3, "GB"),
        Answer("connections of a node", per_node, "connections"),
        Answer("their memory", per_node * units.connection_bytes / 1e9, "GB"),
        Answer("a node that leads 40 shards lost: others lead", forty["until others lead"], "s"),
        Answer("… and its clients are back, on two nodes", forty["until all are back"], "s"),
        Answer("one of all nodes lost: others lead", spread["until others lead"], "s"),
        Answer("… and its clients are back", spread["until all are back"], "s"),
        *(Answer(f"a region lost: {each.what}", each.value, each.unit) for each in region_lost(units, shape)),
    ]


# Measured.


def machine_bytes(holds: int, sessions_: int) -> float:
    """What a machine with so much takes, in a process of its own: nothing else is in its memory."""
    code = f"from bench.scale import grown; print(grown({holds}, {sessions_}))"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def grown(holds: int, sessions_: int) -> float:
    """By how many bytes this process grows with such a machine."""
    before = rss_of(os.getpid())
    machine = filled(holds, sessions_)
    gc.collect()
    return rss_of(os.getpid()) - before + 0 * machine.position


def entries(holds: int, sessions_: int) -> list[Entry]:
    """What a journal would have had."""
    opened = [
        OpenSession(30_000, 1_000, "x" * 22, '{"client": "worker", "host": "node-17"}') for _ in range(sessions_)
    ]
    asks = [
        Acquire(n % sessions_ + 1, (_NAME.format(n % 997, n),), n // sessions_ + 1, n // sessions_, "task-1")
        for n in range(holds)
    ]
    commands: list[Command] = [*opened, *asks]
    return [Entry(1, tuple(commands[start : start + 256])) for start in range(0, len(commands), 256)]


def filled(holds: int, sessions_: int) -> Machine:
    machine = Machine()
    for entry in entries(holds, sessions_):
        machine.apply(machine.position + 1, decode(encode(entry)))
    return machine


def replay_us(holds: int) -> float:
    """Processor time of applying a command from its bytes."""
    data = [encode(entry) for entry in entries(holds, holds // _HOLDS_PER_SESSION)]
    machine, began = Machine(), time.process_time()
    for position, each in enumerate(data, 1):
        machine.apply(position, decode(each))
    return (time.process_time() - began) / holds * 1e6


class Conversation(asyncio.Protocol):
    """A client of bytes: sends, and counts lines until as many replies as it expects have come."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.data = b""
        self.wanted: tuple[bytes, asyncio.Future[None]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self.data += data
        if self.wanted is not None and self.wanted[0] in self.data and not self.wanted[1].done():
            self.wanted[1].set_result(None)

    async def ask(self, words: bytes, until: bytes) -> bytes:
        """Send, and wait until something is in the replies."""
        assert self.transport is not None
        self.data = b""
        self.wanted = (until, asyncio.get_running_loop().create_future())
        self.transport.write(words)
        await self.wanted[1]
        return self.data


async def served(connections: int, rounds: int) -> dict[str, float]:
    """What connections, keep-alives and pairs cost a real server."""
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        words = [sys.executable, "-m", "fencehold.cli", "serve", "--port", str(port), "--no-http", "--no-observer"]
        server = Process("scaled", [*words, "--data", "journal"], Path(folder))
        server.start()
        try:
            server.await_ready(lambda: accepts(port))
            idle = cpu_seconds(server.pid)
            await asyncio.sleep(4)
            tick_us = (cpu_seconds(server.pid) - idle) / 20 * 1e6
            before, began = rss_of(server.pid), cpu_seconds(server.pid)
            all_ = [(await loop.create_connection(Conversation, "127.0.0.1", port))[1] for _ in range(connections)]
            hello = command("HELLO", 3) + command("SESSION.OPEN", "TTL", 30_000)
            await asyncio.gather(*(each.ask(hello, b"grace_ms") for each in all_))
            reconnect_us = (cpu_seconds(server.pid) - began) / connections * 1e6
            connection_bytes = (rss_of(server.pid) - before) / connections
            began = cpu_seconds(server.pid)
            for _ in range(rounds):
                await asyncio.gather(*(each.ask(command("SESSION.KEEPALIVE"), b"\r\n") for each in all_))
            keep_alive_us = (cpu_seconds(server.pid) - began) / rounds / connections * 1e6
            began = cpu_seconds(server.pid)
            for turn in range(rounds):
                await asyncio.gather(*(_pair(each, f"n:{turn}:{number}") for number, each in enumerate(all_)))
            pair_us = (cpu_seconds(server.pid) - began) / rounds / connections * 1e6
            for each in all_:
                assert each.transport is not None
                each.transport.abort()
        finally:
            await asyncio.to_thread(server.stop)
    return {
        "tick_us": tick_us,
        "reconnect_us": reconnect_us,
        "connection_bytes": connection_bytes,
        "keep_alive_us": keep_alive_us,
        "pair_us": pair_us,
    }


def rss_of(pid: int) -> float:
    return resident_mb(pid) * 1e6


async def _pair(each: Conversation, name: str) -> None:
    granted = await each.ask(command("LOCK.ACQUIRE", name, "WAIT", 0), b"own_ttl\r\n:0\r\n")
    fence = int(granted.split(b"fence\r\n:")[1].split(b"\r\n")[0])
    await each.ask(command("LOCK.RELEASE", name, fence), b"\r\n")


def measured(holds: int, connections: int, rounds: int) -> Units:
    """Unit costs, on this machine."""
    few, many = machine_bytes(holds // 2, 500), machine_bytes(holds, 500)
    crowd = machine_bytes(0, 20_000) - machine_bytes(0, 10_000)
    found = asyncio.run(served(connections, rounds))
    return Units(
        name_bytes=(many - few) / (holds - holds // 2),
        session_bytes=crowd / 10_000,
        replay_us=replay_us(holds // 4),
        **found,
    )


def checked(units: Units, holds: int) -> Answer:
    """What the model says of a machine of another size, beside what that takes."""
    said = holds * 2 * units.name_bytes + 1_000 * units.session_bytes
    return Answer("memory of twice the holds: said / found", said / machine_bytes(holds * 2, 1_000), "")


def shown(rows: Sequence[Answer]) -> str:
    def value(row: Answer) -> str:
        return f"{row.value:,.0f}" if row.value >= 100 else f"{row.value:.3g}"

    return "\n".join(f"{row.what:<52} {value(row):>14} {row.unit}" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--holds", type=int, default=200_000)
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    units = measured(options.holds, options.connections, options.rounds)
    rows = [Answer(name, value, "") for name, value in units._asdict().items()]
    print("measured here\n" + shown(rows))
    print("\nchecked\n" + shown([checked(units, options.holds)]))
    print("\nthe model\n" + shown(answers(units, Shape())))


if __name__ == "__main__":
    main()
