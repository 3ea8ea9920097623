"""What TLS costs: the same server with and without it, in one run, at the door and through the SDK.

At the door `redis-benchmark` drives both, so that only the servers are compared. What its connections take to be
made, handshakes included, is measured by itself (`opening_us` for each) and left out of what a command takes: in a
service that runs they are there. With a journal that is synced, and in memory, where nothing hides the
cost. Both servers have the same certificates; the plain one does not use them.

On a machine where the load and the server share their cores, half of what TLS costs is the load's own: so the time
that the server's process used for a command (`server_us`) is compared, too.
"""

import ssl

from bench import folders, loads
from bench.contest import Benchmark, Contest
from bench.embedded import AtTheDoor, OnServer
from bench.musts import Must, at_most, ratio
from bench.samples import Figures
from bench.servers import Fencehold
from fencehold.drivers.address import TlsFiles
from fencehold.drivers.tls import client_context
from fencehold.security.issuer import Issuer

CONNECTIONS = (1, 64, 256)
_ACQUIRE = ["LOCK.ACQUIRE", "n:__rand_int__", "WAIT", "0"]


class Secured(Fencehold):
    """The embedded server over TLS."""

    async def setup(self) -> None:
        self.folder = folders.new_folder()
        issuer = Issuer.make(self.folder / "pki")
        issuer.for_node("server", ["127.0.0.1"])
        await self.start()

    @property
    def ca(self) -> str:
        return str(self.folder / "pki" / "ca.pem")

    def command(self) -> list[str]:
        pki = self.folder / "pki"
        return [*super().command(), "--tls-cert", str(pki / "server.pem"), "--tls-key", str(pki / "server.key")]

    def tls(self) -> ssl.SSLContext:
        return client_context(TlsFiles(self.folder / "pki" / "ca.pem"))


class Metered(AtTheDoor):
    """As `AtTheDoor`, and what each command took of the server's own processor time: the client's is left out."""

    def __init__(self, name: str, server: Fencehold, connections: int, requests: int) -> None:
        super().__init__(name, server, connections, _ACQUIRE, requests)
        self._metered, self._count = server, requests

    async def round(self) -> Figures:
        _, opening_s = await self._used(self._connections)
        figures, used_s = await self._used(self._count)
        each_us = (used_s - opening_s) * 1e6 / max(1, self._count - self._connections)
        return {**figures, "server_us": each_us, "opening_us": opening_s * 1e6 / self._connections}

    async def _used(self, requests: int) -> tuple[Figures, float]:
        """Send so many, over connections that are made for it; with the processor time that took the server."""
        self._requests = requests
        before_s = self._metered.cpu_seconds()
        figures = await super().round()
        return figures, self._metered.cpu_seconds() - before_s


class AtTheSecuredDoor(Metered):
    """As `Metered`, over TLS."""

    def __init__(self, name: str, server: Secured, connections: int, requests: int) -> None:
        super().__init__(name, server, connections, requests)
        self._secured = server

    async def round(self) -> Figures:
        self.options = ("--tls", "--cacert", self._secured.ca)
        return await super().round()


def secured_load(port: int, ca: str, connections: int, in_flight: int, seconds: float) -> Figures:
    """Through the SDK, over TLS."""
    return loads.fencehold_at(f"fenceholds://127.0.0.1:{port}?ca={ca}", connections, in_flight, seconds)


class OnSecured(OnServer):
    """A load through the SDK, whose authority is known only when the server is there."""

    def __init__(self, name: str, server: Secured, **arguments: float) -> None:
        super().__init__(name, server, secured_load, **arguments)
        self._secured = server

    def setup(self) -> None:
        super().setup()
        self.arguments["ca"] = self._secured.ca


def build(quick: bool) -> Contest:
    """The contest."""
    plain, plain_memory = Fencehold("a plain server"), Fencehold("a plain server in memory", memory=True)
    tls, tls_memory = Secured("a server with TLS"), Secured("a server with TLS in memory", memory=True)
    # Many for many connections: what their handshakes take must not count as the cost of a command.
    requests = {1: 2_000, 64: 40_000, 256: 100_000} if quick else {1: 6_000, 64: 100_000, 256: 300_000}
    door = [
        contestant
        for connections in CONNECTIONS
        for kind, open_, secured in (("synced", plain, tls), ("memory", plain_memory, tls_memory))
        for contestant in (
            Metered(f"plain {connections}, {kind}", open_, connections, requests[connections]),
            AtTheSecuredDoor(f"TLS {connections}, {kind}", secured, connections, requests[connections]),
        )
    ]
    shape = {"connections": 64, "in_flight": 1, "seconds": 1.0 if quick else 2.5}
    through = [
        OnServer("plain SDK 64x1", plain, loads.fencehold, **shape),
        OnSecured("TLS SDK 64x1", tls, **shape),
    ]
    return Contest(
        contestants=[*door, *through],
        rounds=3 if quick else 9,
        warmups=0 if quick else 1,
        reference="plain 256, synced",
        fixtures=[plain, plain_memory, tls, tls_memory],
        musts=_musts(),
    )


def _musts() -> list[Must]:
    of_server = [
        at_most(
            f"cost of TLS at 256 connections to the server itself, {kind}",
            ratio(f"TLS 256, {kind}", f"plain 256, {kind}", "server_us"),
            1.3,
            "×",
        )
        for kind in ("synced", "memory")
    ]
    return [
        *of_server,
        at_most("cost of TLS at 256 connections, synced", ratio("plain 256, synced", "TLS 256, synced"), 1.3, "×"),
        at_most(
            "cost of TLS at 256 connections, in memory", ratio("plain 256, memory", "TLS 256, memory"), 1.3, "×"
        ),
    ]


BENCHMARK = Benchmark("tls", "what TLS costs: the same server with and without it", build)
