"""How cost grows: curves of Fencehold beside what people lock with today, as pictures and figures.

Each curve asks one question, with one size on its axis, and is a contest of its own: `python -m bench growth` runs
all of them, `--only NAME` some. Same durability throughout: Fencehold with a file journal beside redis-py's Lock
on a Redis that syncs every write; Fencehold on an etcd of three members beside its own Lock API and kazoo's Lock
on three ZooKeepers. Where a peer is not drawn it has no such thing (etcd's Lock API and redis-py have no readers),
or would take minutes for a point.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench import beside, crowds
from bench.contest import Benchmark, Call, Contest, Family, Fixture
from bench.ensembles import Etcd, Nodes, Zookeeper
from bench.picture import Chart, Panel, draw
from bench.report import Report
from bench.samples import Figures
from bench.servers import Fencehold, Redis

FILE, REDIS, CLUSTER, LOCK_API, KAZOO = (
    "Fencehold, file journal",
    "redis-py, Redis synced",
    "Fencehold on etcd",
    "etcd's Lock API",
    "kazoo on ZooKeeper",
)
OURS = (FILE, CLUSTER)
ALL = dict.fromkeys((FILE, REDIS, CLUSTER, LOCK_API, KAZOO), 0)
ROUNDS = 2


class Servers:
    """The servers of one curve, those that its contestants need."""

    def __init__(self, contestants: Sequence[str]) -> None:
        self._file, self._redis = Fencehold(), Redis("a Redis that syncs", synced=True)
        self._etcd, self._zookeeper = Etcd(), Zookeeper()
        self._nodes = Nodes(self._etcd)
        needed: dict[str, list[Fixture]] = {
            FILE: [self._file],
            REDIS: [self._redis],
            CLUSTER: [self._etcd, self._nodes],
            LOCK_API: [self._etcd],
            KAZOO: [self._zookeeper],
        }
        self.fixtures = list(dict.fromkeys(each for name in contestants for each in needed[name]))

    def where(self, contestant: str) -> Mapping[str, Any]:
        """Its current address: members change their roles."""
        if contestant == FILE:
            return {
                "url": f"fencehold://127.0.0.1:{self._file.port}",
                "port": self._file.port,
                "pid": self._file.pid,
            }
        if contestant == REDIS:
            return {"port": self._redis.port, "pid": self._redis.pid}
        if contestant == CLUSTER:
            leader = self._nodes.group.leader()
            return {"url": self._nodes.group.url, "port": leader.port, "pid": leader.process.pid}
        if contestant == LOCK_API:
            number = self._etcd.cluster.leader()
            return {"endpoint": self._etcd.leader(), "pid": self._etcd.cluster.pids[number]}
        return {"hosts": self._zookeeper.hosts()}


_PEERS = {FILE: "fencehold", REDIS: "redis", CLUSTER: "fencehold", LOCK_API: "etcd", KAZOO: "kazoo"}


class Point(Call):
    """One contestant at one size."""

    def __init__(
        self, name: str, load: Callable[..., Figures], where: Callable[[], Mapping[str, Any]], **arguments: Any
    ):
        super().__init__(name, load, arguments, isolated=True)
        self._where = where

    def round(self) -> Any:
        self.arguments["where"] = dict(self._where())
        return super().round()


@dataclass(frozen=True)
class Curve:
    """One question: what grows, by which load, and which figures are drawn."""

    title: str
    axis: str
    load: Callable[..., Any]
    argument: str
    """Of the load: the size."""
    sizes: Sequence[int]
    figures: Mapping[str, tuple[str, str]]
    """By figure: the title of its panel, and its unit."""
    contestants: Mapping[str, int] = field(default_factory=lambda: ALL)
    """Up to which size each is measured; 0: all of them."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    linear: Sequence[str] = ()
    """Figures whose axis begins at 0."""

    def points(self, quick: bool) -> list[tuple[str, int]]:
        sizes = self.sizes[:: max(1, len(self.sizes) - 1)] if quick else self.sizes
        bounds = ((name, bound or max(sizes)) for name, bound in self.contestants.items())
        return [(name, size) for name, bound in bounds for size in sizes if size <= bound]

    def build(self, quick: bool) -> Contest:
        """The contest."""
        servers = Servers(list(self.contestants))
        fixed = {**self.fixed, **({"seconds": 0.4} if quick and "seconds" in self.fixed else {})}
        contestants = [
            Point(
                label(name, size),
                self.load,
                functools.partial(servers.where, name),
                peer=_PEERS[name],
                **{self.argument: size},
                **fixed,
            )
            for name, size in self.points(quick)
        ]
        return Contest(
            contestants, 1 if quick else ROUNDS, fixtures=servers.fixtures, warmups=0, step_timeout_s=120
        )

    def draw(self, report: Report) -> str:
        """The picture of what was measured."""
        medians = report.medians()
        panels = []
        for figure, (title, unit) in self.figures.items():
            curves: dict[str, list[tuple[float, float]]] = {}
            for name, size in self.points(report.quick):
                value = medians[label(name, size)].get(figure)
                if value is not None:
                    curves.setdefault(name, []).append((size, value))
            panels.append(Panel(title, unit, curves, is_linear=figure in self.linear))
        return draw(Chart(self.title, self.axis, panels, OURS))


def label(contestant: str, size: int) -> str:
    """What a point is called in tables and files."""
    return f"{contestant}: {size}"


_SPEED = {"ops_per_s": ("Throughput", "operations/s"), "p99_us": ("Lock and unlock, p99", "µs")}
_WIDTHS = (1, 4, 16, 64, 256, 512)
_SECOND = {"seconds": 1.0}

CURVES = {
    "connections": Curve(
        "More connections, one request at a time on each",
        "connections",
        crowds.turns,
        "connections",
        _WIDTHS,
        _SPEED,
        {**ALL, KAZOO: 64},
        {"in_flight": 1, **_SECOND},
    ),
    "in-flight": Curve(
        "More requests in flight at one client",
        "tasks at one client",
        crowds.turns,
        "in_flight",
        _WIDTHS,
        _SPEED,
        {**ALL, KAZOO: 256},
        {"connections": 1, **_SECOND},
    ),
    "waiters": Curve(
        "More who want one name, each again as soon as it had it",
        "tasks that want it",
        crowds.contended,
        "waiters",
        (2, 10, 50, 200, 1_000),
        {
            "handover_p50_us": ("Hand-over, p50", "µs"),
            "handover_p99_us": ("Hand-over, p99", "µs"),
            "fairness": ("Jain's fairness", "1 is fair"),
        },
        {**ALL, LOCK_API: 200, KAZOO: 200},
        {"hold_ms": 0, **_SECOND},
        ("fairness",),
    ),
    "hold-time": Curve(
        "Sixteen who want one name, and hold it for longer",
        "held for, ms",
        crowds.contended,
        "hold_ms",
        (0, 1, 3, 10, 30, 100),
        {"grants_per_s": ("Grants", "1/s"), "of_hold_time": ("Of the time, it is held", "1 is all")},
        ALL,
        {"waiters": 16, "seconds": 1.5},
        ("of_hold_time",),
    ),
    "names": Curve(
        "More names that are held, 16 clients beside them",
        "names held",
        beside.names,
        "held",
        (1_000, 10_000, 100_000, 1_000_000),
        {**_SPEED, "server_mb": ("Memory of the server", "MB")},
        {FILE: 0, REDIS: 0, CLUSTER: 100_000, LOCK_API: 100_000},
        _SECOND,
    ),
    "sessions": Curve(
        "More sessions that are only kept alive, 16 clients beside them",
        "sessions",
        beside.sessions,
        "living",
        (100, 1_000, 5_000, 20_000),
        {**_SPEED, "server_mb": ("Memory of the server", "MB")},
        {FILE: 0, LOCK_API: 0},
        {"seconds": 2.0},
    ),
    "zipf": Curve(
        "A million names, some far more popular than others (Zipf 0.99)",
        "tasks",
        crowds.popular,
        "workers",
        (1, 16, 64, 256),
        _SPEED,
        {**ALL, KAZOO: 64},
        {"seconds": 1.5},
    ),
    "shared": Curve(
        "Sixteen names, nine of ten ask for them shared",
        "tasks",
        crowds.shared,
        "workers",
        (1, 16, 64, 256),
        _SPEED,
        {FILE: 0, CLUSTER: 0, KAZOO: 64},
        {"seconds": 1.5},
    ),
    "several": Curve(
        "Several names for one piece of work, 16 tasks at one client",
        "names in one lock",
        crowds.several,
        "names",
        (1, 2, 4, 8, 16),
        {"ops_per_s": ("Locks of all names", "operations/s"), "p50_us": ("Lock and unlock, p50", "µs")},
        ALL,
        {"workers": 16, **_SECOND},
    ),
    "death": Curve(
        "A session that ends, with somebody waiting for each of its names",
        "names it held",
        beside.death,
        "holds",
        (100, 1_000, 9_984),
        {"last_grant_ms": ("Until the last is granted", "ms"), "per_hold_us": ("The same for each name", "µs")},
        {FILE: 0, CLUSTER: 0, LOCK_API: 1_000, KAZOO: 100},
    ),
}

BENCHMARK = Family(
    "growth",
    "how cost grows with connections, waiters, names, sessions: curves beside the peers, as pictures",
    {name: Benchmark(f"growth-{name}", curve.title, curve.build, curve.draw) for name, curve in CURVES.items()},
)
