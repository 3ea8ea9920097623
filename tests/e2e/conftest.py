"""One server for all tests that only need one."""

from collections.abc import Iterator

import pytest

from tests.e2e.served import Served, serving


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("cli")
    with serving(place, "--data", str(place / "data")) as served:
        yield served
