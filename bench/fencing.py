"""Updates lost under a lock whose holders are paused: without a guard, with half of one, and with each guard.

Five client processes add to a set that is kept as one value: each takes the lock, reads the set, thinks for up to
two seconds, and writes the set with an element of its own. Their sessions have a ttl of two seconds. Every five
seconds one that is between its read and its write is stopped (SIGSTOP): in turn until the next holder has read,
and for three to six seconds. An update that the store took, and that is not in the set in the end, is lost.

Five processes, two seconds, a pause every five: by these Jepsen saw 18 % of the updates lost under the locks of
etcd 3.4.3. Here the pauses are aimed, so the share is another. The lock is not at fault, there or here: none that
can be lost can prevent it. `BENCH_MINUTES` says how long each arm runs.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from bench import fencing_client, folders
from bench.contest import Benchmark, Contest, Contestant, Fixture
from bench.ensembles import Ensemble
from bench.fencing_arms import STORES, Guarding
from bench.fencing_client import Plan
from bench.isolated import ROOT
from bench.musts import Must, at_least, at_most, median
from bench.samples import Figures
from bench.servers import Fencehold
from rig.mariadb import DATABASE, USER, MariaDB
from rig.postgres import Postgres
from rig.redis import Redis

CLIENTS = 5
TTL_S, SECTION_S = 2.0, 2.0
PAUSE_EVERY_S, PAUSE_S = 5.0, (3.0, 6.0)
MINUTES, QUICK_MINUTES = 1.0, 0.35
_AIMED_MAX_S = 8.0
_END_S = 40.0
"""How long a client may take to end after its time."""
_QUICK = ("no guard", "checked, not entered", "sqlite", "redis")


class Client:
    """One client process, and what it told."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.is_inside = False
        """Between its read and its write, as far as is known here."""
        self.written: list[str] = []
        self.refused = self.failed = 0

    async def run(self, heard: Callable[["Client"], None]) -> None:
        """From its start to its end; `heard` is called after each step."""
        self._process = await asyncio.create_subprocess_exec(
            *fencing_client.command(self.plan),
            cwd=ROOT,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        try:
            while line := await self._process.stdout.readline():
                self._hear(fencing_client.told(line))
                heard(self)
            if await self._process.wait():
                raise RuntimeError(f"{self.plan.client} ended with {self._process.returncode}")
        finally:
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()

    def _hear(self, step: dict[str, Any]) -> None:
        self.is_inside = step["what"] == "read"
        self.refused += step["what"] == "refused"
        self.failed += step["what"] == "failed"
        if step["what"] == "written":
            self.written.append(step["element"])

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)


class Group:
    """The clients of one arm, and what pauses them."""

    def __init__(self, plans: list[Plan], lots: random.Random) -> None:
        self.clients = [Client(plan) for plan in plans]
        self.pauses = 0
        self._lots = lots
        self._readers: asyncio.Queue[Client] = asyncio.Queue()
        """The clients that have read, in order."""

    async def run(self) -> None:
        nemesis = asyncio.create_task(self._pausing())
        try:
            async with asyncio.timeout(self.clients[0].plan.seconds + _END_S), asyncio.TaskGroup() as tasks:
                for client in self.clients:
                    tasks.create_task(client.run(self._heard))
        finally:
            nemesis.cancel()
            await asyncio.gather(nemesis, return_exceptions=True)

    def _heard(self, client: Client) -> None:
        if client.is_inside:
            self._readers.put_nowait(client)

    async def _pausing(self) -> None:
        while True:
            began = monotonic()
            victim = await self._next_reader()
            victim.pause()
            self.pauses += 1
            try:
                await (self._until_next_reader(victim) if self.pauses % 2 else self._for_a_while())
            finally:
                victim.resume()
            await asyncio.sleep(max(0.0, began + PAUSE_EVERY_S - monotonic()))

    async def _next_reader(self) -> Client:
        while not self._readers.empty():
            self._readers.get_nowait()
        return await self._readers.get()

    async def _until_next_reader(self, victim: Client) -> None:
        """The gap at which half a guard fails: the new holder has read, and has not written."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_AIMED_MAX_S):
                while await self._next_reader() is victim:
                    pass

    async def _for_a_while(self) -> None:
        await asyncio.sleep(self._lots.uniform(*PAUSE_S))


class Place(Ensemble):
    """Where an arm keeps its set."""

    def __init__(self, store: str) -> None:
        super().__init__(f"a place for {store}")
        self.store = store
        self.where = ""
        self._stop: Callable[[], None] = lambda: None
        self._elsewhere: Path | None = None

    def start(self, folder: Path) -> None:
        getattr(self, f"_{self.store}")(folder)

    def stop(self) -> None:
        try:
            self._stop()
        finally:
            if self._elsewhere is not None:
                folders.remove(self._elsewhere)

    def _reachable(self) -> Path:
        """A folder that the user of a database server can reach, as ours may not be."""
        self._elsewhere = folders.reachable_folder()
        return self._elsewhere

    def _sqlite(self, folder: Path) -> None:
        self.where = str(folder / "sets.db")

    def _file(self, folder: Path) -> None:
        self.where = str(folder)

    def _redis(self, folder: Path) -> None:
        server = Redis(folder)
        self._stop = server.stop
        server.start()
        self.where = server.url

    def _postgres(self, folder: Path) -> None:
        server = Postgres(self._reachable())
        self._stop = server.stop
        server.start()
        self.where = f"postgresql://owner@127.0.0.1:{server.port}/postgres"

    def _mysql(self, folder: Path) -> None:
        server = MariaDB(self._reachable())
        self._stop = server.stop
        server.start()
        where = {"host": "127.0.0.1", "port": server.port, "user": USER, "password": USER, "database": DATABASE}
        self.where = json.dumps(where)


class Updates(Contestant):
    """One arm."""

    def __init__(self, name: str, place: Place, guarding: Guarding, service: Fencehold, seconds: float) -> None:
        super().__init__(name)
        self._place, self._guarding, self._service, self._seconds = place, guarding, service, seconds
        self._round = 0

    async def round(self) -> Figures:
        self._round += 1
        lots = random.Random(f"{self.name} {self._round}")
        group = Group(self._plans(lots), lots)
        name = group.clients[0].plan.name
        arm = STORES[self._place.store](self._place.where, self._guarding)
        try:
            arm.make(name)
            await group.run()
            kept = set(arm.elements(name))
        finally:
            arm.close()
        return self._figures(group, kept)

    def _plans(self, lots: random.Random) -> list[Plan]:
        name = f"{self._guarding}-{self._place.store}-{self._round}"
        url = f"fencehold://127.0.0.1:{self._service.port}"
        where = (self._place.store, self._place.where, self._guarding)
        times = (TTL_S, self._seconds, SECTION_S)
        return [Plan(url, f"client-{i}", name, *where, *times, lots.getrandbits(32)) for i in range(CLIENTS)]

    def _figures(self, group: Group, kept: set[str]) -> Figures:
        written = [element for client in group.clients for element in client.written]
        lost = sum(element not in kept for element in written)
        return {
            "acknowledged_updates": len(written),
            "lost_updates": lost,
            "lost_percent": 100 * lost / len(written) if written else 0.0,
            "refused_updates": sum(client.refused for client in group.clients),
            "failed_updates": sum(client.failed for client in group.clients),
            "pauses": group.pauses,
        }


ARMS: tuple[tuple[str, str, Guarding], ...] = (
    ("no guard", "sqlite", "none"),
    ("checked, not entered", "sqlite", "check"),
    ("sqlite", "sqlite", "full"),
    ("redis", "redis", "full"),
    ("file", "file", "full"),
    ("postgres", "postgres", "full"),
    ("mariadb", "mysql", "full"),
)
"""Its name, where the set is, and which check of a fence it makes."""


def build(quick: bool) -> Contest:
    """The contest."""
    seconds = 60 * float(os.environ.get("BENCH_MINUTES") or (QUICK_MINUTES if quick else MINUTES))
    service = Fencehold(memory=True)
    arms = [arm for arm in ARMS if not quick or arm[0] in _QUICK]
    places = {store: Place(store) for _, store, _ in arms}
    fixtures: list[Fixture] = [service, *places.values()]
    return Contest(
        contestants=[Updates(name, places[store], guarding, service, seconds) for name, store, guarding in arms],
        rounds=1,
        warmups=0,
        fixtures=fixtures,
        musts=[must for name, _, guarding in arms for must in _musts(name, guarding)],
        step_timeout_s=seconds + 2 * _END_S,
    )


def _musts(name: str, guarding: Guarding) -> list[Must]:
    lost = median(name, "lost_updates")
    if guarding != "full":
        # That this goes wrong is what shows that the others were put to the test.
        return [at_least(f"{name}: updates lost", lost, 1, "updates")]
    return [
        at_most(f"{name}: updates lost", lost, 0, "updates"),
        at_least(f"{name}: stale writes refused", median(name, "refused_updates"), 1, "updates"),
        at_least(f"{name}: updates acknowledged", median(name, "acknowledged_updates"), CLIENTS, "updates"),
    ]


BENCHMARK = Benchmark("fencing", "updates lost when holders are paused: no guard, half a guard, each guard", build)
