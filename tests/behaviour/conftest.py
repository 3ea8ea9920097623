"""Every test here runs once on each ground, or on the one that GROUND names. Its servers run once for all.

A module names its ground, if it is about one (`GROUND`), and a test may be `on(…)` some of them only.
"""

import itertools
import os
import shutil
from collections.abc import Callable, Iterator

import pytest

from rig.postgres import reachable_folder
from tests.behaviour.ground import Ground
from tests.behaviour.grounds import NAMES, ground_of

_numbers = itertools.count(1)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "ground" in metafunc.fixturenames:
        named = getattr(metafunc.module, "GROUND", None) or os.environ.get("GROUND")
        mark = metafunc.definition.get_closest_marker("on")
        names = [name for name in (mark.args if mark else NAMES) if named in (None, name)]
        metafunc.parametrize("ground", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    made = ground_of(request.param)
    folder = reachable_folder()
    try:
        made.start(folder)
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def new_name() -> Callable[[], str]:
    """Names that no other test has."""
    return lambda: f"behaviour:{os.getpid()}:{next(_numbers)}"


@pytest.fixture
def name(new_name: Callable[[], str]) -> str:
    return new_name()
