"""Every way to lock beside the library its users have today, on the same servers, in one run.

*N tasks* are tasks of one async client, *N threads* are threads of one blocking client. Names are uncontended; an
acquire and a release each count as one operation, and a latency is that of both together. Fencehold is held
against a library in the same form: tasks against tasks, threads against threads.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import libraries
from bench.contest import Benchmark, Call, Contest, Fixture
from bench.ensembles import Ensemble
from bench.musts import Must, at_least, at_most, median, ratio
from bench.samples import Figures
from tests.behaviour.ground import Ground as Servers
from tests.behaviour.grounds import ground_of

WORKERS = (1, 16)
SECOND_TO_NONE = ("etcd", "postgres", "advisory", "mysql", "sqlite", "memory")
"""Backends that no library in wide use locks by."""

Load = Callable[..., Figures]


class Ground(Ensemble):
    """The servers behind one kind of URL, as the tests start them."""

    def __init__(self, name: str) -> None:
        super().__init__(f"servers for {name}")
        self.servers: Servers = ground_of(name)

    def start(self, folder: Path) -> None:
        self.servers.start(folder)

    def stop(self) -> None:
        self.servers.stop()

    def ours(self) -> Mapping[str, Any]:
        return {"url": self.servers.url, "tier": self.servers.tier.value}

    def theirs(self) -> Mapping[str, Any]:
        return {"ports": self.servers.ports}

    def hosts(self) -> Mapping[str, Any]:
        return {"hosts": ",".join(f"127.0.0.1:{port}" for port in self.servers.ports)}


class OnGround(Call):
    """A load in a process of its own, told where to go when it runs."""

    def __init__(self, name: str, load: Load, where: Callable[[], Mapping[str, Any]], **arguments: float) -> None:
        super().__init__(name, load, arguments, isolated=True)
        self._where = where

    def round(self) -> Any:
        self.arguments.update(self._where())
        return super().round()


LIBRARIES: tuple[tuple[str, str, str, Load], ...] = (
    ("redis-py", "redis", "tasks", libraries.redis_py_tasks),
    ("redis-py", "redis", "threads", libraries.redis_py_threads),
    ("python-redis-lock", "redis", "threads", libraries.python_redis_lock_threads),
    ("redlock-py", "redlock", "threads", libraries.redlock_py_threads),
    ("pottery", "redlock", "threads", libraries.pottery_threads),
    ("kazoo", "zookeeper", "threads", libraries.kazoo_threads),
)
"""What it is called, whose servers it uses, in which form."""


def build(quick: bool) -> Contest:
    """The contest."""
    seconds = 0.7 if quick else 2.0
    compared = ("volatile", "fencehold", "redis", "redlock", "zookeeper")
    grounds = {name: Ground(name) for name in (*compared, *SECOND_TO_NONE)}
    forms = {"tasks": libraries.fencehold_tasks, "threads": libraries.fencehold_threads}
    ours = [
        OnGround(_name(name, form, workers), load, grounds[name].ours, workers=workers, seconds=seconds)
        for name in grounds
        for form, load in forms.items()
        for workers in WORKERS
    ]
    theirs = [
        OnGround(
            _name(library, form, workers), load, _where(grounds[name], name), workers=workers, seconds=seconds
        )
        for library, name, form, load in LIBRARIES
        for workers in WORKERS
    ]
    fixtures: list[Fixture] = list(grounds.values())
    return Contest(
        contestants=[*ours, *theirs],
        rounds=3 if quick else 7,
        warmups=0 if quick else 1,
        fixtures=fixtures,
        musts=_musts(),
    )


def _where(ground: Ground, name: str) -> Callable[[], Mapping[str, Any]]:
    return ground.hosts if name == "zookeeper" else ground.theirs


def _name(who: str, form: str, workers: int) -> str:
    return f"{who}, {workers} {form if workers > 1 else form.removesuffix('s')}"


def _musts() -> list[Must]:
    beside = [
        at_least(
            f"{name}:// times {library}, {workers} {form}",
            ratio(_name(name, form, workers), _name(library, form, workers)),
            1,
            "×",
        )
        for library, name, form, _ in LIBRARIES
        for workers in WORKERS
    ]
    quick_enough = [
        at_most(f"{name}: acquire and release p50, 1 task", median(_name(name, "tasks", 1), "p50_us"), 1_000, "µs")
        for name in ("volatile", "redis")
    ]
    return [*beside, *quick_enough]


BENCHMARK = Benchmark("tiers", "every backend beside the library its users have today", build)
