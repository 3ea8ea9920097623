"""What rights cost: the same server with and without a policy of 100 users and 100 roles, in one run.

`redis-benchmark` drives both: with a journal that is synced, and in memory, where nothing hides the cost. What the
server itself used for an operation is compared (`tls.Metered`). What TLS costs is in `tls`; what one principal
that floods does to another is in `abuse` (the phases `principals: …`).
"""

from bench.contest import Benchmark, Contest, Contestant, Fixture
from bench.musts import Must, at_most, ratio
from bench.ruled import Ruled
from bench.samples import Figures
from bench.servers import Fencehold
from bench.tls import Metered

RIGHTS_TIMES_MAX = 1.05
CONNECTIONS = 64
KINDS = ("memory", "synced")


class AtTheRuledDoor(Metered):
    """As `Metered`, with a login."""

    def __init__(self, name: str, server: Ruled, requests: int) -> None:
        super().__init__(name, server, CONNECTIONS, requests)
        self._ruled = server

    async def round(self) -> Figures:
        self.options = ("--user", "token", "-a", self._ruled.tokens["neighbour"])
        return await super().round()


def build(quick: bool) -> Contest:
    """The contest."""
    requests = 20_000 if quick else 60_000
    fixtures: list[Fixture] = []
    contestants: list[Contestant] = []
    for kind in KINDS:
        plain = Fencehold(f"a server without a policy, {kind}", memory=kind == "memory")
        ruled = Ruled(f"a server with a policy, {kind}", memory=kind == "memory")
        fixtures += [plain, ruled]
        contestants += [
            Metered(f"no policy, {kind}", plain, CONNECTIONS, requests),
            AtTheRuledDoor(f"a policy, {kind}", ruled, requests),
        ]
    return Contest(
        contestants=contestants,
        rounds=5 if quick else 11,
        warmups=1,
        reference="no policy, memory",
        fixtures=fixtures,
        musts=_musts(),
    )


def _musts() -> list[Must]:
    return [
        at_most(
            f"cost of rights, {kind}",
            ratio(f"a policy, {kind}", f"no policy, {kind}", "server_us"),
            RIGHTS_TIMES_MAX,
            "×",
        )
        for kind in KINDS
    ]


BENCHMARK = Benchmark("security", "what rights cost: the same server with and without a policy", build)
