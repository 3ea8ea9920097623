"""A restart with much held: from the start of a killed server's successor to its first grant."""

import os
import signal
from time import perf_counter

from bench.contest import Benchmark, Contest, Contestant
from bench.musts import at_most
from bench.samples import Figures, Results
from bench.servers import Fencehold
from bench.wire import Wire

HOLDS = 100_000
PER_SESSION = 10_000
PER_REQUEST = 50


class Restart(Contestant):
    """Kills the server, which syncs all it answers, and starts it again on the same journal."""

    def __init__(self, server: Fencehold) -> None:
        super().__init__(f"restart with {HOLDS:,} holds")
        self._server = server

    async def setup(self) -> None:
        for session in range(HOLDS // PER_SESSION):
            await self._hold(session)

    async def _hold(self, session: int) -> None:
        """Open a session that outlives its connection, and let it hold its share."""
        wire = await Wire.open(self._server.port)
        await wire.ask("SESSION.OPEN", "TTL", 3_600_000, "GRACE", 3_600_000)
        for start in range(0, PER_SESSION, PER_REQUEST):
            names = [f"held:{session}:{start + i}" for i in range(PER_REQUEST)]
            wire.send("LOCK.MACQUIRE", len(names), *names, "WAIT", 0)
        for _ in range(0, PER_SESSION, PER_REQUEST):
            await wire.reply()
        await wire.close()

    async def round(self) -> Figures:
        os.kill(self._server.pid, signal.SIGKILL)
        await self._server.stop()
        started = perf_counter()
        await self._server.start()
        wire = await Wire.open(self._server.port)
        await wire.ask("LOCK.ACQUIRE", "first", "WAIT", 0)
        seconds = perf_counter() - started
        held = (await wire.info())["names_held"]
        await wire.close()
        return {"seconds": seconds, "lost_holds": float(HOLDS + 1 - held)}


def build(quick: bool) -> Contest:
    """The contest."""
    server = Fencehold()
    restart = Restart(server)
    return Contest(
        contestants=[restart],
        rounds=3 if quick else 7,
        warmups=0,
        fixtures=[server],
        musts=[
            at_most("restart to the first grant, at worst", lambda r: _worst(r, "seconds"), 3, "s"),
            at_most("holds lost", lambda r: _worst(r, "lost_holds"), 0, "holds"),
        ],
    )


def _worst(results: Results, figure: str) -> float:
    return max(results.series(f"restart with {HOLDS:,} holds", figure).values())


BENCHMARK = Benchmark("restart", "a kill -9 and restart with 100,000 holds", build)
