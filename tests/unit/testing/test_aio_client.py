"""The fixture of an async client works on any loop, and leaves nothing behind."""

import asyncio

import pytest

from fencehold import HoldLost, UsageError, aio
from fencehold.testing import Service


def connections(service: Service) -> int:
    return len(service._here()._server.door.connections)


def test_it_connects_on_the_loop_of_the_test(fencehold_aio_client: aio.Client, fencehold_service: Service) -> None:
    """However that loop is made; the client is closed with it."""

    async def main() -> None:
        async with fencehold_aio_client.lock("orders") as hold:
            assert hold.fence > 0
            assert len(fencehold_service.holders("orders")) == 1

    asyncio.run(main())
    fencehold_service.until(lambda: not connections(fencehold_service))


@pytest.mark.anyio
async def test_it_can_be_used_where_a_plugin_runs_the_loop(
    fencehold_aio_client: aio.Client, fencehold_service: Service
) -> None:
    """Time passes for it as for any other client."""
    hold = await fencehold_aio_client.lock("orders", ttl=5).acquire()
    await fencehold_service.aio.advance(6)
    with pytest.raises(HoldLost):
        hold.check()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_it_belongs_to_one_loop(fencehold_aio_client: aio.Client) -> None:
    """The first it was used on: after that it is closed."""

    async def main() -> None:
        async with fencehold_aio_client.lock("orders"):
            pass

    asyncio.run(main())
    with pytest.raises(UsageError):
        asyncio.run(main())


def test_a_client_that_is_not_used_is_never_connected(
    fencehold_aio_client: aio.Client, fencehold_service: Service
) -> None:
    """Nothing has to be closed then."""
    assert connections(fencehold_service) == 0
