"""The gRPC listener beside etcd's own Lock API on the same 3-member etcd; and what gRPC costs clients of RESP.

*C* × *F* is *C* connections with *F* requests in flight on each; names are uncontended, a lock and an unlock each
count as one operation. etcd's Lock API is called the way that suits it best, with its requests on one connection
to the member that leads; gRPC likewise. Clients of gRPC are on other machines, in life: where RESP is measured
beside them, they have a lower priority here, so that it is the listener that is measured.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uvloop

from bench import isolated, loads, recipes
from bench.cluster import OnCluster
from bench.contest import Benchmark, Contest, Contestant
from bench.ensembles import Ensemble, Etcd, Nodes
from bench.musts import Must, at_least, at_most, ratio
from bench.samples import Figures
from rig.processes import Process, accepts, free_port

WIDTHS = (1, 64, 256)
FULL = 256
ALONE, BESIDE = "RESP 4x1 alone", f"RESP 4x1 beside gRPC 1x{FULL}"
_KEEP_ALIVE_S = 5.0
_NICE = 10


class GrpcListener(Ensemble):
    """One listener in a process of its own, before nodes that are set up before it."""

    def __init__(self, nodes: Nodes) -> None:
        super().__init__("a gRPC listener")
        self._nodes = nodes
        self._process: Process | None = None

    def start(self, folder: Path) -> None:
        self.port = free_port()
        words = ["listener", "grpc", "--url", self._nodes.group.url, "--port", str(self.port)]
        self._process = Process("grpc", [sys.executable, "-m", "fencehold.cli", *words], folder)
        self._process.start()
        self._process.await_ready(lambda: accepts(self.port))

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()

    def where(self) -> Mapping[str, Any]:
        return {"address": f"127.0.0.1:{self.port}"}


def grpc_lock(address: str, connections: int, in_flight: int, seconds: float, nice: int = 0) -> Figures:
    """Through the typed interface: a channel and a session for each client, kept alive by its stream."""
    import grpc  # noqa: PLC0415 - each load needs only its own library

    from fencehold.wire import messages as m  # noqa: PLC0415
    from fencehold.wire.services import LOCK, SESSION, Stub  # noqa: PLC0415

    os.nice(nice)

    class Client:
        def __init__(self) -> None:
            self.channel = grpc.aio.insecure_channel(address, options=(("grpc.use_local_subchannel_pool", 1),))
            self.locks, self.sessions = Stub(self.channel, LOCK), Stub(self.channel, SESSION)

        async def open(self) -> None:
            self.session = (await self.sessions.Open(m.OpenRequest(client="bench"))).session
            self.living = asyncio.create_task(self._live())

        async def turn(self, name: str) -> None:
            granted = await self.locks.Lock(m.LockRequest(session=self.session, name=name))
            await self.locks.Unlock(m.UnlockRequest(session=self.session, hold_id=granted.hold.hold_id))

        async def close(self) -> None:
            self.living.cancel()
            await asyncio.gather(self.living, return_exceptions=True)
            await self.sessions.Close(m.CloseRequest(session=self.session))
            await self.channel.close()

        async def _live(self) -> None:
            stream = self.sessions.Session()
            # As with etcd's lease, of which a client hears that it lives, and not what is locked with it.
            await stream.write(m.SessionRequest(session=self.session, without_grants=True))
            reading = asyncio.create_task(_drained(stream))
            try:
                while True:
                    await asyncio.sleep(_KEEP_ALIVE_S)
                    await stream.write(m.SessionRequest())
            finally:
                reading.cancel()

    async def main() -> Figures:
        clients = [Client() for _ in range(connections)]
        await asyncio.gather(*(client.open() for client in clients))
        try:
            return await loads.drive([client.turn for client in clients], in_flight, seconds)
        finally:
            await asyncio.gather(*(client.close() for client in clients))

    return uvloop.run(main())


async def _drained(stream: Any) -> None:
    async for _ in stream:
        pass


class Beside(Contestant):
    """RESP while gRPC has all that it can take."""

    def __init__(self, nodes: Nodes, listener: GrpcListener, seconds: float) -> None:
        super().__init__(BESIDE, reference=ALONE)
        self._nodes = nodes
        self._listener = listener
        self._seconds = seconds

    async def round(self) -> Figures:
        said = {
            **self._listener.where(),
            "connections": 1,
            "in_flight": FULL,
            "seconds": self._seconds + 3,
            "nice": _NICE,
        }
        crowd = asyncio.create_task(isolated.call(grpc_lock, said))
        try:
            # It is at full load when it has started, and for a moment longer than this lasts.
            await asyncio.sleep(1.5)
            return await isolated.call(loads.fencehold_at, _resp(self._nodes, self._seconds))
        finally:
            await crowd


def _resp(nodes: Nodes, seconds: float) -> dict[str, Any]:
    return {"url": nodes.group.url, "connections": 4, "in_flight": 1, "seconds": seconds}


def build(quick: bool) -> Contest:
    """The contest."""
    etcd = Etcd()
    nodes = Nodes(etcd)
    listener = GrpcListener(nodes)
    seconds = 1.5 if quick else 3.0
    ours = [
        OnCluster(
            f"gRPC 1x{f}",
            grpc_lock,
            listener.where,
            reference=f"etcd Lock API 1x{f}",
            connections=1,
            in_flight=f,
            seconds=seconds,
        )
        for f in WIDTHS
    ]
    api = [
        OnCluster(
            f"etcd Lock API 1x{f}", recipes.etcd_lock, etcd.where, connections=1, in_flight=f, seconds=seconds
        )
        for f in WIDTHS
    ]
    alone = OnCluster(
        ALONE, loads.fencehold_at, lambda: {"url": nodes.group.url}, connections=4, in_flight=1, seconds=seconds
    )
    return Contest(
        contestants=[*ours, *api, alone, Beside(nodes, listener, seconds)],
        rounds=3 if quick else 7,
        warmups=0 if quick else 1,
        fixtures=[etcd, nodes, listener],
        musts=_musts(),
    )


def _musts() -> list[Must]:
    return [
        *(
            at_least(f"gRPC at 1x{f}, times etcd's Lock API", ratio(f"gRPC 1x{f}", f"etcd Lock API 1x{f}"), 1, "×")
            for f in WIDTHS
        ),
        at_most("RESP's p99 beside gRPC, times alone", ratio(BESIDE, ALONE, "p99_us"), 1.5, "×"),
    ]


BENCHMARK = Benchmark("doors", "gRPC beside etcd's Lock API, and RESP beside gRPC", build)
