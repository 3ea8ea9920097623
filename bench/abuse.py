"""Beside wild clients: what one client, however wild, does to a well-behaved one.

Each phase has a server of its own and one kind of wild client (`wild`). The well-behaved client (`neighbour`)
is measured in turns: alone, beside the wild client, beside burners; and again, in the same minutes of the
same machine.

The musts, in every phase:

1. p99 beside the wild client ≤ 2 × p99 without it; the longest wait, until all is quiet again, ≤ 100 ms. What
   the processor itself costs is not the server's fault: where two cores are shared by the clients and the
   server, a client waits for a core as well. So *without it* is the worse of alone and beside burners
   (`burner`): for each process that worked for the wild client (itself, the server and its observer, the
   members of the etcd) one that uses as much of a core, is as nice, and never talks to the server. The longest
   wait may be that beside the burners, too.
2. Memory of a server stays below 256 MB. Quiet, it has about 50. A client that does not read makes the server
   keep 256 KiB of replies (`unsent_bytes_high`) and up to 64 KiB of a frame: 100 of them, 32 MB. 3 000
   connections add 20 MB, 10 000 names 20 MB, 20 000 sessions and a list of them 100 MB; commands that wait for
   the journal, and replies, have to be bounded in bytes.
3. Nothing is refused to the well-behaved client, it loses no hold and no session, and no connection of it
   ends; from the moment the wild client is started, before it bites.
4. When the wild client is killed, the server is quiet again within 10 s: the well-behaved client is served as
   it was alone, and the server serves no other client. Only then does the next turn begin.

The phases `principals` are of one server with a policy: the wild client is one principal, with as many connections
as it likes, and the well-behaved one another.

`BENCH_PHASES` chooses phases by a part of their names, separated by semicolons.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from bench import burner, children, neighbour, procfs, wild, wild_principal
from bench.children import Child
from bench.contest import Benchmark, Contest, Contestant
from bench.ensembles import Etcd, Nodes
from bench.musts import Figure, Must, at_most
from bench.ruled import Ruled
from bench.samples import Figures, Results
from bench.servers import Fencehold

PRINCIPALS = "principals"
CONNECTIONS, PAUSE_S = 4, 0.004
P99_TIMES_MAX = 2.0
LONGEST_MS_MAX = 100.0
MEMORY_MB_MAX = 256.0
QUIET_S_MAX = 10.0
_BITE_SECONDS_MAX = 180.0
_QUIET_SECONDS_MAX = 45.0
_QUIET_SHARE = 0.15
"""Of a core, above what the well-behaved client alone costs the server."""


@dataclass(frozen=True)
class Form:
    """How long a phase is."""

    turns: int
    seconds: float
    samples_min: int
    """Of each arm in each turn; for so many it may take up to four times as long."""
    scale: float


FULL, QUICK = Form(turns=3, seconds=3.0, samples_min=1_000, scale=1.0), Form(1, 1.5, 300, 0.25)
_QUIET_LOOK = Form(1, 0.25, 1, 0.0)


@dataclass
class Running:
    """A server that runs, of whatever kind."""

    url: str
    port: int
    servers: list[int]
    """The processes of Fencehold."""
    others: list[int]
    """Processes that work for them."""
    folder: Path
    login: str = ""
    """The token of the well-behaved client, and that of the wild one; empty: they do not log in."""
    wild_login: str = ""

    def pids(self) -> list[int]:
        """All of them now, with the observers that servers have started."""
        return [*(pid for server in self.servers for pid in procfs.family(server)), *self.others]


@asynccontextmanager
async def embedded() -> AsyncIterator[Running]:
    """One server with its journal in a file, every batch synced."""
    server = Fencehold()
    try:
        await server.setup()
        yield Running(f"fencehold://127.0.0.1:{server.port}", server.port, [server.pid], [], server.folder)
    finally:
        await server.teardown()


@asynccontextmanager
async def cluster() -> AsyncIterator[Running]:
    """Three nodes on three members of etcd; the wild client goes to the node that leads."""
    etcd = Etcd()
    nodes = Nodes(etcd)
    try:
        etcd.setup()
        nodes.setup()
        group = nodes.group
        leader = group.leader()
        servers = [node.process.pid for node in group.nodes]
        yield Running(group.url, leader.port, servers, etcd.cluster.pids, leader.process.folder)
    finally:
        nodes.teardown()
        etcd.teardown()


@asynccontextmanager
async def principals() -> AsyncIterator[Running]:
    """One server with a policy: both clients log in, the wild one on all of its connections."""
    server = Ruled("a server with a policy")
    try:
        await server.setup()
        url, (login, wild_login) = f"fencehold://127.0.0.1:{server.port}", server.logins
        yield Running(url, server.port, [server.pid], [], server.folder, login, wild_login)
    finally:
        await server.teardown()


SUBJECTS = {"embedded": embedded, "etcd": cluster, PRINCIPALS: principals}


@dataclass
class Arm:
    """What the well-behaved client saw in all turns of one kind."""

    latencies_ns: list[int] = field(default_factory=list)
    refused: int = 0
    lost: int = 0
    ended: int = 0
    troubles: list[str] = field(default_factory=list)
    burned: dict[int, float] = field(default_factory=dict)
    """Share of a core by process, in the last turn."""

    @classmethod
    def seen(cls, told: dict[str, Any]) -> "Arm":
        """What the client tells of one stretch."""
        trouble = [told["last_trouble"]] if told["last_trouble"] else []
        return cls(told["latencies_ns"], told["refused"], told["lost"], told["ended"], trouble)

    @property
    def figures(self) -> dict[str, float]:
        return neighbour.figures(self.latencies_ns)

    def add_harm(self, other: "Arm") -> None:
        """All but how long things took."""
        self.refused += other.refused
        self.lost += other.lost
        self.ended += other.ended
        self.troubles += other.troubles


class Phase(Contestant):
    """One kind of wild client at one kind of server."""

    def __init__(self, subject: str, kind: str, form: Form) -> None:
        super().__init__(f"{subject}: {kind}")
        self._subject, self._kind, self._form = subject, kind, form

    async def round(self) -> Figures:
        async with SUBJECTS[self._subject]() as running, self._neighbour(running) as client:
            turns = Turns(self._kind, self._form, running, client)
            figures = await turns.figures()
        for trouble in turns.troubles:
            sys.stderr.write(f"{self.name}: {trouble}\n")
        return figures

    @asynccontextmanager
    async def _neighbour(self, running: Running) -> AsyncIterator[Child]:
        told = {"url": running.url, "port": running.port, "connections": CONNECTIONS, "pause_s": PAUSE_S}
        told |= {"login": running.login}
        async with children.running("neighbour", neighbour.live, running.folder, **told) as client:
            # Its first operations find everything cold.
            while (await client.ask("count"))["count"] < 50 * CONNECTIONS:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            yield client


class Turns:
    """The turns of a phase, and what they came to."""

    def __init__(self, kind: str, form: Form, running: Running, client: Child) -> None:
        self._kind, self._form, self._running, self._client = kind, form, running, client
        self._alone, self._beside, self._burners = Arm(), Arm(), Arm()
        self._wild_share = 0.0
        self._quiet_s = 0.0
        self._aftermath_ns = 0

    @property
    def troubles(self) -> list[str]:
        """The last thing that went wrong in each stretch where something did."""
        return self._beside.troubles

    async def figures(self) -> Figures:
        """Take the turns."""
        servers = self._running.servers
        for pid in servers:
            procfs.forget_peak(pid)
        before_mb = max(procfs.resident_mb(pid) for pid in servers)
        for _ in range(self._form.turns):
            await self._measure(self._alone, self._running.pids())
            shares = await self._beside_wild()
            await self._await_quiet()
            if self._quiet_s > QUIET_S_MAX:
                # It is missed. What is left of the wild client would be taken for the burners' doing, or its own
                # next turn's.
                break
            await self._beside_burners(shares)
        memory = {
            "before_mb": before_mb,
            "peak_mb": max(procfs.peak_mb(pid) for pid in servers),
            "after_mb": max(procfs.resident_mb(pid) for pid in servers),
        }
        return {**self._waits(), **memory, **self._harm()}

    def _waits(self) -> dict[str, float]:
        alone, beside = self._alone.figures, self._beside.figures
        burners = self._burners.figures if self._burners.latencies_ns else alone
        beside["longest_ms"] = max(beside["longest_ms"], self._aftermath_ns / 1e6)
        fair_ms = max(alone["p99_ms"], burners["p99_ms"])
        longest_ms = max(LONGEST_MS_MAX, alone["longest_ms"], burners["longest_ms"])
        return {
            "samples": float(len(self._beside.latencies_ns)),
            **beside,
            **{f"alone_{name}": value for name, value in alone.items()},
            **{f"burner_{name}": value for name, value in burners.items() if name != "p50_ms"},
            "p99_times": beside["p99_ms"] / fair_ms,
            "longest_times": beside["longest_ms"] / longest_ms,
            "wild_cores": self._wild_share,
            "server_cores": sum(self._for_the_wild().values()),
            "quiet_s": self._quiet_s,
        }

    def _harm(self) -> dict[str, float]:
        return {
            "refused": float(self._beside.refused),
            "lost": float(self._beside.lost),
            "ended": float(self._beside.ended),
        }

    def _for_the_wild(self) -> dict[int, float]:
        """What each process used more than it does for the well-behaved client alone."""
        alone = self._alone.burned
        return {pid: max(0.0, share - alone.get(pid, 0.0)) for pid, share in self._beside.burned.items()}

    async def _beside_wild(self) -> list[tuple[float, int]]:
        """Measure beside the wild client; returns what each process burned for it, and how nice it is."""
        told = {"kind": self._kind, "port": self._running.port, "scale": self._form.scale}
        told |= {"login": self._running.wild_login}
        await self._client.ask("begin")
        async with children.running("wild", wild.run, self._running.folder, **told) as child:
            await child.hear(_BITE_SECONDS_MAX)
            # What was lost before it bit is lost as well; how long that took is no figure.
            self._beside.add_harm(Arm.seen(await self._client.ask("seen")))
            await self._measure(self._beside, [*self._running.pids(), child.pid])
            self._wild_share = self._beside.burned.pop(child.pid)
        shares = self._for_the_wild().items()
        return [(self._wild_share, 0), *((share, procfs.niceness(pid)) for pid, share in shares)]

    async def _beside_burners(self, shares: Sequence[tuple[float, int]]) -> None:
        async with AsyncExitStack() as stack:
            for number, (share, nice) in enumerate(shares):
                if share >= burner.SHARE_MIN:
                    burning = children.running(
                        f"burner {number}", burner.burn, self._running.folder, share=min(1.0, share), nice=nice
                    )
                    await (await stack.enter_async_context(burning)).hear()
            await self._measure(self._burners, [])

    async def _measure(self, arm: Arm, pids: Sequence[int], form: Form | None = None) -> None:
        """One stretch of the well-behaved client's life."""
        await self._client.ask("begin")
        begun = perf_counter()
        before = {pid: procfs.cpu_seconds(pid) for pid in pids}
        await self._await_samples(form or self._form)
        seen = await self._client.ask("seen")
        elapsed_s = perf_counter() - begun
        arm.burned = {pid: (procfs.cpu_seconds(pid) - before[pid]) / elapsed_s for pid in pids}
        arm.latencies_ns += seen["latencies_ns"]
        arm.add_harm(Arm.seen(seen))

    async def _await_samples(self, form: Form) -> None:
        begun = perf_counter()
        await asyncio.sleep(form.seconds)
        while perf_counter() < begun + 4 * form.seconds:
            if (await self._client.ask("count"))["count"] >= form.samples_min:
                break
            await asyncio.sleep(form.seconds / 10)

    async def _await_quiet(self) -> None:
        """Until the well-behaved client is served as before, and the server serves no other client.

        Else what is left of the wild client would be taken for the processor's doing in the turn that follows.
        """
        begun = perf_counter()
        while perf_counter() < begun + _QUIET_SECONDS_MAX and not await self._is_quiet():
            pass
        self._quiet_s = max(self._quiet_s, perf_counter() - begun)

    async def _is_quiet(self) -> bool:
        look = Arm()
        await self._measure(look, self._running.pids(), _QUIET_LOOK)
        # Losses and waits while the server works off the rest of the wild client's commands are its doing.
        self._beside.add_harm(look)
        self._aftermath_ns = max(self._aftermath_ns, *look.latencies_ns, 0)
        longest_ms = max(LONGEST_MS_MAX / 2, 3 * self._alone.figures["p99_ms"])
        if not look.latencies_ns or look.figures["longest_ms"] > longest_ms:
            return False
        alone = self._alone.burned
        return all(share < alone.get(pid, 0.0) + _QUIET_SHARE for pid, share in look.burned.items())


def build(quick: bool) -> Contest:
    """The contest."""
    form = QUICK if quick else FULL
    wanted = [part.strip() for part in os.environ.get("BENCH_PHASES", "").split(";") if part.strip()]
    phases = [Phase(subject, kind, form) for subject in ("embedded", "etcd") for kind in wild.KINDS]
    phases += [Phase(PRINCIPALS, kind, form) for kind in wild_principal.KINDS]
    chosen = [phase for phase in phases if not wanted or any(part in phase.name for part in wanted)]
    return Contest(
        contestants=chosen,
        rounds=1,
        warmups=0,
        musts=[must for phase in chosen for must in _musts(phase.name)],
        step_timeout_s=900.0,
    )


def _musts(name: str) -> list[Must]:
    """Of one phase."""
    return [
        at_most(f"{name}: p99, times that without it", _of(name, "p99_times"), P99_TIMES_MAX, "×"),
        at_most(f"{name}: longest wait, times what is allowed", _of(name, "longest_times"), 1, "×"),
        at_most(f"{name}: quiet again after", _of(name, "quiet_s"), QUIET_S_MAX, "s"),
        at_most(f"{name}: memory", _of(name, "peak_mb"), MEMORY_MB_MAX, "MB"),
        at_most(
            f"{name}: refused, lost or ended",
            lambda results: sum(_of(name, what)(results) for what in ("refused", "lost", "ended")),
            0,
            "things",
        ),
    ]


def _of(name: str, figure: str) -> Figure:
    def worst(results: Results) -> float:
        return max(results.series(name, figure).values())

    return worst


BENCHMARK = Benchmark("abuse", "a well-behaved client beside wild ones: embedded, and three nodes on etcd", build)
