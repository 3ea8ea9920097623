"""Every test here runs once for each engine, or for the one that ENGINE names."""

import os
from pathlib import Path

import pytest

from tests.contract.engines import ENGINES
from tests.contract.harness import Harness


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        metafunc.parametrize("engine", _chosen())


def _chosen() -> list[str]:
    name = os.environ.get("ENGINE")
    if name is not None and name not in ENGINES:
        raise pytest.UsageError(f"ENGINE={name}: known engines are {', '.join(ENGINES)}")
    return list(ENGINES) if name is None else [name]


@pytest.fixture
def harness(engine: str, tmp_path: Path) -> Harness:
    return ENGINES[engine](tmp_path)
