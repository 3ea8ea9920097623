"""What every test of the clients begins with, and where it may be run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fencehold.locks.log import TELLERS
from tests.unit.client.service import service_on_a_thread


@pytest.fixture(autouse=True)
def nothing_was_told() -> None:
    """What other tests had logged counts for nobody's bound."""
    for teller in TELLERS:
        teller.reset()


@pytest.fixture(params=["fencehold", "sqlite"])
def any_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A service, and a backend that is used directly."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/locks.db"
        return
    with service_on_a_thread() as url:
        yield url
