"""Fencehold on a 3-member etcd beside etcd's own Lock API and kazoo's Lock on 3 ZooKeepers, all on one machine.

*C* × *F* is *C* connections with *F* requests in flight on each; names are uncontended, and an acquire and a
release each count as one operation. Everything that writes syncs. The peers are called as suits them best, see
`recipes`: etcd's Lock API is quicker with its requests in flight on one connection than on as many connections,
so it is also measured and judged like that. kazoo is judged with 256 clients: what a shared journal gains grows
with the crowd that an entry carries.
"""

from collections.abc import Callable, Mapping
from typing import Any

from bench import loads, recipes
from bench.contest import Benchmark, Call, Contest
from bench.ensembles import Etcd, Nodes, Zookeeper
from bench.musts import Must, at_least, at_most, median, ratio
from bench.samples import Figures

SHAPES = ((1, 1), (64, 1), (256, 1), (1, 256))
BESIDE = "SDK acquire beside a bare put"


class OnCluster(Call):
    """A load in a process of its own, told where to go when it runs: members change their roles."""

    def __init__(
        self,
        name: str,
        load: Callable[..., Figures],
        where: Callable[[], Mapping[str, Any]],
        *,
        reference: str | None = None,
        **arguments: float,
    ) -> None:
        super().__init__(name, load, arguments, isolated=True, reference=reference)
        self._where = where

    def round(self) -> Any:
        self.arguments.update(self._where())
        return super().round()


def build(quick: bool) -> Contest:
    """The contest."""
    etcd, zookeeper = Etcd(), Zookeeper()
    nodes = Nodes(etcd)
    seconds = 1.0 if quick else 2.5

    def url() -> Mapping[str, Any]:
        return {"url": nodes.group.url}

    def hosts() -> Mapping[str, Any]:
        return {"hosts": zookeeper.hosts()}

    ours = [
        OnCluster(
            f"SDK {c}x{f}",
            loads.fencehold_at,
            url,
            reference=f"etcd Lock API {c}x{f}",
            connections=c,
            in_flight=f,
            seconds=seconds,
        )
        for c, f in SHAPES
    ]
    api = [
        OnCluster(
            f"etcd Lock API {c}x{f}", recipes.etcd_lock, etcd.where, connections=c, in_flight=f, seconds=seconds
        )
        for c, f in (*SHAPES, (1, 64))
    ]
    kazoo = [
        OnCluster(
            f"kazoo {c}x{f}{'' if fresh else ', known names'}",
            recipes.kazoo_lock,
            hosts,
            reference=f"SDK {c}x{f}",
            connections=c,
            in_flight=f,
            seconds=seconds,
            fresh=fresh,
        )
        for c, f, fresh in (*((c, f, True) for c, f in SHAPES), (64, 1, False))
    ]
    beside = OnCluster(BESIDE, recipes.beside_put, lambda: {**url(), **etcd.where()}, seconds=seconds)
    return Contest(
        contestants=[*ours, *api, *kazoo, beside],
        rounds=3 if quick else 7,
        warmups=0 if quick else 1,
        fixtures=[etcd, zookeeper, nodes],
        musts=_musts(),
    )


def _musts() -> list[Must]:
    return [
        at_least("at 1x1, times etcd's Lock API at 1x1", ratio("SDK 1x1", "etcd Lock API 1x1"), 1, "×"),
        at_least("at 1x256, times etcd's Lock API at 1x256", ratio("SDK 1x256", "etcd Lock API 1x256"), 7, "×"),
        at_least("at 64x1, times etcd's Lock API at 64x1", ratio("SDK 64x1", "etcd Lock API 64x1"), 2, "×"),
        at_least("at 64x1, times etcd's Lock API at 1x64", ratio("SDK 64x1", "etcd Lock API 1x64"), 2, "×"),
        at_least("at 256x1, times kazoo at 256x1", ratio("SDK 256x1", "kazoo 256x1"), 50, "×"),
        at_most("one client's acquire p50, times a bare put's", median(BESIDE, "times_the_put"), 1.3, "×"),
        at_most("one client's acquire p50", median(BESIDE, "acquire_p50_us"), 5_000, "µs"),
    ]


BENCHMARK = Benchmark("cluster", "Fencehold on etcd beside etcd's Lock API and kazoo's Lock", build)
