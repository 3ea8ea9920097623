"""The loads of `bench shards`, each a function that gives figures."""

import asyncio
import contextlib
import multiprocessing
import random
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from bench import folders, latency, procfs, serving
from bench.samples import Figures
from fencehold.placement.map import ShardMap, even_map
from fencehold.placement.slots import slot_of

ENTRY_OPERATIONS = 64
"""Acquires and releases in an entry of a journal that is fed: what a crowd of connections makes."""
PROBES = 8
FREE_NAMES = 48
SETTLE_S = 60.0
WATCHED_S = 3.0
"""How long the names of all shards are watched before a kill, and after it."""


def tag_of(shard: int, placed: ShardMap) -> str:
    """A tag whose names are a shard's."""
    return next(tag for number in count() if placed.shard_of_name(tag := f"{{{number}}}") == shard)


# What an operation costs the server.


class ShardClient(serving.Client):
    """A connection that chose a shard, and locks names of it."""

    def __init__(self, port: int, number: int, shard: int, tag: str) -> None:
        super().__init__(port, number)
        self._tag = tag.encode()
        self.ask("HELLO", 3, "SHARD", shard)
        self.ask("SESSION.OPEN", "TTL", 30_000)

    def _acquire(self) -> bytes:
        self._name = b"%b%d:%d" % (self._tag, self._number, self._asked)
        return super()._acquire()


def serve(port: int, pid: int, shards: int, connections: int, operations: int) -> Figures:
    """So many operations over so many connections, which are spread over the shards; what each cost the server."""
    placed = even_map(shards)
    tags = [tag_of(shard, placed) for shard in range(shards)]
    clients: list[serving.Client] = [
        ShardClient(port, number, number % shards, tags[number % shards]) for number in range(connections)
    ]
    serving._crowd(clients, operations // 10)
    before, begun = procfs.cpu_times_s(pid), time.perf_counter()
    done = serving._crowd(clients, operations)
    took_s, after = time.perf_counter() - begun, procfs.cpu_times_s(pid)
    for client in clients:
        client.close()
    return {"cpu_us": (sum(after) - sum(before)) * 1e6 / done, "ops_per_s": done / took_s}


# Journals side by side.


def journals(count: int, seconds: float) -> Figures:
    """What so many machines with journals on disk do at once, each in a process of its own."""
    context = multiprocessing.get_context("spawn")
    folder = folders.new_folder()
    try:
        with context.Pool(count) as pool:
            begin_at = time.time() + 1.5
            asked = [(str(folder / str(number)), begin_at, seconds) for number in range(count)]
            done = pool.starmap(_feed, asked)
    finally:
        folders.remove(folder)
    return {"ops_per_s": sum(done) / seconds}


def _feed(path: str, begin_at: float, seconds: float) -> int:
    return asyncio.run(_fed(Path(path), begin_at, seconds))


async def _fed(path: Path, begin_at: float, seconds: float) -> int:
    from fencehold.core.commands import Acquire, Entry, OpenSession, Release  # noqa: PLC0415
    from fencehold.core.machine import Machine  # noqa: PLC0415
    from fencehold.engines.file import FileJournal  # noqa: PLC0415
    from fencehold.journal.codec import encode  # noqa: PLC0415
    from fencehold.types import Position  # noqa: PLC0415

    journal, machine, done = FileJournal(path), Machine(), 0
    await journal.open()
    epoch = await journal.lead()

    async def append(*commands: Any) -> Any:
        entry, position = Entry(0, commands), Position(machine.position + 1)
        applied = machine.apply(position, entry)
        await journal.append(encode(entry), epoch=epoch, position=position)
        return applied.outcomes

    await append(OpenSession(30_000))
    await asyncio.sleep(max(0.0, begin_at - time.time()))
    until = time.perf_counter() + seconds
    half = ENTRY_OPERATIONS // 2
    held: list[Any] = []
    while time.perf_counter() < until:
        releases = [Release(1, grant.names, grant.fence) for grant in held]
        outcomes = await append(*releases, *(Acquire(1, (f"bench:{done}:{each}",)) for each in range(half)))
        held = list(outcomes[len(releases) :])
        done += len(outcomes)
    await journal.close()
    return done


# On a cluster.


class Claim(NamedTuple):
    """One acquire, in seconds of this machine's clock."""

    name: str
    asked_at: float
    granted_at: float

    @property
    def took_s(self) -> float:
        return self.granted_at - self.asked_at


async def _claims(client: Any, names: Callable[[], str], claims: list[Claim], over: asyncio.Event) -> None:
    while not over.is_set():
        name, asked_at = names(), time.monotonic()
        async with client.lock(name, timeout=30):
            claims.append(Claim(name, asked_at, time.monotonic()))
        await asyncio.sleep(0.002)


async def around_a_kill(group: Any, shards: int) -> Figures:
    """Kill a node that leads some shards: the others' p99 beside that of before, and when its own are back."""
    from fencehold import aio  # noqa: PLC0415

    tags = [tag_of(shard, even_map(shards)) for shard in range(shards)]
    await asyncio.to_thread(_await_spread, group, shards)
    over, claims = asyncio.Event(), [list[Claim]() for _ in range(shards)]
    async with contextlib.AsyncExitStack() as stack:
        working = []
        for shard, tag in enumerate(tags):
            client = await stack.enter_async_context(aio.connect(group.url, ttl=30, grace=20, connect_timeout=20))
            numbers = count()
            named = lambda tag=tag, numbers=numbers: f"{tag}{next(numbers)}"  # noqa: E731
            working.append(asyncio.create_task(_claims(client, named, claims[shard], over)))
        await asyncio.sleep(0.5)
        begun_at = time.monotonic()
        await asyncio.sleep(WATCHED_S)
        leaders = await asyncio.to_thread(_leaders, group)
        victim = next(node for node in group.nodes if node.address == leaders[-1])
        own = {shard for shard, address in enumerate(leaders) if address == victim.address}
        killed_at = time.monotonic()
        await asyncio.to_thread(victim.kill)
        await asyncio.sleep(WATCHED_S)
        over.set()
        await asyncio.gather(*working)
    await asyncio.to_thread(victim.start)
    others = [claim for shard in range(shards) if shard not in own for claim in claims[shard]]
    before = _p99_s([claim for claim in others if begun_at <= claim.asked_at and claim.granted_at < killed_at])
    after = _p99_s([claim for claim in others if claim.granted_at >= killed_at])
    back_s = (
        max(min(c.granted_at for c in claims[shard] if c.asked_at > killed_at - 0.001) for shard in own)
        - killed_at
    )
    return {
        "others": after / before,
        "before_p99_ms": before * 1e3,
        "after_p99_ms": after * 1e3,
        "back_s": back_s,
        "shards_led": len(own),
    }


def _p99_s(claims: list[Claim]) -> float:
    return latency.percentile(sorted(round(claim.took_s * 1e9) for claim in claims), 99) / 1e9


def _leaders(group: Any) -> list[str]:
    """Where the leader of each shard is."""
    with contextlib.closing(_wire(group.url)) as wire:
        return [str(each) for each in wire.call("SHARD.MAP")["leaders"]]


def _await_spread(group: Any, shards: int) -> None:
    """Wait until all nodes lead about as many, and so for a while."""
    until, since, spread = time.monotonic() + SETTLE_S, time.monotonic(), (0, 0)
    while time.monotonic() < until:
        with contextlib.suppress(Exception):
            leaders = _leaders(group)
            led = [leaders.count(node.address) for node in group.nodes]
            if sum(led) != shards or max(led) - min(led) > 1:
                since = time.monotonic()
            elif time.monotonic() - since > 2:
                return
            spread = (min(led), max(led))
        time.sleep(0.1)
    raise RuntimeError(f"leaders were not spread within {SETTLE_S:.0f} s: from {spread[0]} to {spread[1]}")


def _wire(url: str) -> Any:
    """A connection to who leads the first shard."""
    from fencehold.cli.wire import connect  # noqa: PLC0415
    from fencehold.errors import FenceholdError  # noqa: PLC0415

    until = time.monotonic() + SETTLE_S
    while True:
        with contextlib.suppress(FenceholdError):
            wire = connect(url, shard=0)
            if wire.leads:
                return wire
            wire.close()
        if time.monotonic() > until:
            raise RuntimeError(f"nobody led the first shard within {SETTLE_S:.0f} s")
        time.sleep(0.05)


class _Move(NamedTuple):
    begun_at: float
    ended_at: float


def while_slots_move(url: str, shards: int, moves: int) -> Figures:
    """Move the slots of free names again and again: what acquires took meanwhile, and what they took otherwise."""
    return asyncio.run(_while_slots_move(url, shards, moves))


async def _while_slots_move(url: str, shards: int, moves: int) -> Figures:
    from fencehold import aio  # noqa: PLC0415

    lots, over, claims, done = random.Random(moves), asyncio.Event(), list[Claim](), list[_Move]()
    names = [f"free:{number}" for number in range(FREE_NAMES)]
    slots = sorted(map(slot_of, names))
    async with contextlib.AsyncExitStack() as stack:
        working = []
        for probe in range(PROBES):
            client = await stack.enter_async_context(aio.connect(url, ttl=30, grace=20, connect_timeout=20))
            own = names[probe::PROBES]
            working.append(asyncio.create_task(_claims(client, lambda own=own: lots.choice(own), claims, over)))  # type: ignore[misc]
        await asyncio.sleep(0.5)
        for number in range(moves):
            done.append(await asyncio.to_thread(_moved, url, slots, number % shards))
            await asyncio.sleep(0.1)
        over.set()
        await asyncio.gather(*working)
    moving = [claim for claim in claims if any(_overlap(claim, move) for move in done)]
    staying = [claim for claim in claims if not any(_overlap(claim, move) for move in done)]
    ordered = sorted(round(claim.took_s * 1e9) for claim in moving)
    return {
        "moving_p50_ms": latency.percentile(ordered, 50) / 1e6,
        "moving_p99_ms": latency.percentile(ordered, 99) / 1e6,
        "moving_worst_ms": ordered[-1] / 1e6,
        "staying_p99_ms": _p99_s(staying) * 1e3,
        "acquires": len(moving),
        "moved_p50_ms": sorted((move.ended_at - move.begun_at) * 1e3 for move in done)[len(done) // 2],
    }


def _overlap(claim: Claim, move: _Move) -> bool:
    return claim.asked_at <= move.ended_at and claim.granted_at >= move.begun_at


def _moved(url: str, slots: list[int], to: int) -> _Move:
    """Have slots moved, and wait until they are where they belong."""
    from fencehold.cli.wire import map_of  # noqa: PLC0415
    from fencehold.placement import plans  # noqa: PLC0415

    with contextlib.closing(_wire(url)) as wire:
        placed = map_of(wire)
        assert placed is not None
        after = placed.moved(slots, to)
        changes = [word for each in plans.shifts(placed, after) for word in (each.to, plans.shown(each.slots))]
        begun_at = time.monotonic()
        if changes:
            wire.call("SHARD.PLACE", after.version, *changes)
        while not wire.call("SHARD.MOVES")["settled"]:
            time.sleep(0.002)
        return _Move(begun_at, time.monotonic())
