"""What every test of the clients begins with, and where it may be run."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import fencehold
from fencehold import Client
from fencehold.locks.log import TELLERS
from tests.unit.client.service import service_on_a_thread, until_true


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


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A service that the tests of a module share."""
    with service_on_a_thread() as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    """A blocking client, which leaves no thread behind."""
    threads = threading.active_count()
    with fencehold.connect(url, name="tests") as client:
        yield client
    until_true(lambda: threading.active_count() <= threads)
