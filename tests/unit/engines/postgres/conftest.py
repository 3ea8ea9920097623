"""The server is started before a test, not within the time the test has."""

import pytest

from tests.contract.engines.postgres import server


@pytest.fixture
def postgres() -> None:
    server()
