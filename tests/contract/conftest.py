"""Every test here runs once for each engine, or for the one that ENGINE names."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.engines import CLUSTERED, NAMES, harness_of
from tests.contract.harness import Cluster, Harness


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        # Tests about servers that die run against engines that have some.
        among = CLUSTERED if "cluster" in metafunc.fixturenames else NAMES
        metafunc.parametrize("engine", [name for name in _chosen() if name in among])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where no engine is chosen that has servers, nothing is asked about them; and nothing is skipped."""
    items[:] = [item for item in items if "[NOTSET" not in item.name]


def _chosen() -> list[str]:
    name = os.environ.get("ENGINE")
    if name is not None and name not in NAMES:
        raise pytest.UsageError(f"ENGINE={name}: known engines are {', '.join(NAMES)}")
    return list(NAMES) if name is None else [name]


@pytest.fixture
def harness(engine: str, tmp_path: Path) -> Harness:
    return harness_of(engine)(tmp_path)


@pytest.fixture
def cluster(harness: Harness) -> Iterator[Cluster]:
    """The servers behind the engine; whole again after the test."""
    assert harness.cluster is not None
    yield harness.cluster
    harness.cluster.restore()
