"""The engines the suite runs against. Their servers, if any, are started by the first who asks."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from tests.contract.harness import Harness

_HARNESSES = {
    "memory": "tests.contract.engines.embedded:MemoryHarness",
    "file": "tests.contract.engines.embedded:FileHarness",
    "etcd": "tests.contract.engines.etcd:EtcdHarness",
    "zookeeper": "tests.contract.engines.zookeeper:ZookeeperHarness",
    "postgres": "tests.contract.engines.postgres:PostgresHarness",
}

CLUSTERED: tuple[str, ...] = ("etcd", "zookeeper", "postgres")
"""Engines with servers of their own, which can be killed."""

NAMES = tuple(_HARNESSES)


def harness_of(name: str) -> Callable[[Path], Harness]:
    """What makes an empty journal of this engine, given a folder of the test's own."""
    module, _, kind = _HARNESSES[name].partition(":")
    made: Callable[[Path], Harness] = getattr(import_module(module), kind)
    return made
