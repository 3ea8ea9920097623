"""Which benchmarks there are. A module is imported only when its benchmark is run or listed."""

from collections.abc import Sequence
from importlib import import_module

from bench.contest import Benchmark, Family

MODULES = (
    "bench.machine",
    "bench.pages",
    "bench.embedded",
    "bench.serving",
    "bench.idle",
    "bench.watchers",
    "bench.dashboard",
    "bench.restart",
    "bench.calls",
    "bench.cluster",
    "bench.endurance",
    "bench.tiers",
    "bench.fencing",
    "bench.guarding",
    "bench.abuse",
    "bench.tls",
    "bench.history",
    "bench.metrics",
    "bench.security",
    "bench.sinks",
    "bench.doors",
    "bench.growth",
    "bench.shards",
)
"""Each defines `BENCHMARK`, named like the module. `python -m bench all` runs them in this order."""


def names(modules: Sequence[str]) -> list[str]:
    """What each is called on the command line."""
    return [module.rpartition(".")[2] for module in modules]


def load(name: str, modules: Sequence[str]) -> Benchmark | Family:
    """Import the module of a benchmark.

    Raises:
        KeyError: no module has that name.
        TypeError: the module's `BENCHMARK` is missing, or named unlike the module.
        Exception: whatever importing the module raises.
    """
    module = dict(zip(names(modules), modules, strict=True))[name]
    benchmark = getattr(import_module(module), "BENCHMARK", None)
    if not isinstance(benchmark, Benchmark | Family) or benchmark.name != name:
        raise TypeError(f"{module} must define BENCHMARK, a Benchmark or Family named {name!r}")
    return benchmark
