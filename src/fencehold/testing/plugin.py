"""The pytest plugin: fixtures, and no automatic behaviour. Fencehold is imported when one is used."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fencehold.client.aio.client import Client as AsyncClient
    from fencehold.client.blocking.client import Client
    from fencehold.testing.service import Service


@pytest.fixture
def fencehold_service() -> "Iterator[Service]":
    """A lock service of this test's own, with virtual time; see `fencehold.testing.Service`."""
    from fencehold.testing.service import Service  # noqa: PLC0415

    with Service() as service:
        yield service


@pytest.fixture
def fencehold_url(fencehold_service: "Service") -> str:
    """The URL of `fencehold_service`, for code that creates its own client."""
    return fencehold_service.url


@pytest.fixture
def fencehold_client(fencehold_service: "Service") -> "Iterator[Client]":
    """A blocking client of `fencehold_service`."""
    with fencehold_service.connect() as client:
        yield client


@pytest.fixture
def fencehold_aio_client(fencehold_service: "Service") -> "AsyncClient":
    """An async client of `fencehold_service`: it connects on the loop of the test, and is closed with it."""
    from fencehold.testing.loop_client import client_of  # noqa: PLC0415

    return client_of(fencehold_service.url)
