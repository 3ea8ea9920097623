"""Calls that end before they are answered: what they were granted, nobody was told of, and nobody holds."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from fencehold import aio
from fencehold.doors.grpc import etcd_service
from fencehold.doors.grpc.door import GrpcDoor
from fencehold.doors.grpc.etcd_election import EtcdElectionServicer
from fencehold.doors.grpc.etcd_service import Keys, Locked
from fencehold.errors import Unavailable
from fencehold.gateway.holds import Held
from fencehold.server import Config, Server
from fencehold.wire import etcd_messages as e
from fencehold.wire.services import Stub
from tests.unit.client.service import until


class Etcd:
    """A client of etcd's leases, locks and elections."""

    def __init__(self, channel: Any) -> None:
        self._leases = Stub(channel, "etcdserverpb.Lease", e.pool)
        self._locks = Stub(channel, "v3lockpb.Lock", e.pool)
        self._elections = Stub(channel, "v3electionpb.Election", e.pool)

    async def grant(self) -> int:
        return int((await self._leases.LeaseGrant(e.LeaseGrantRequest(TTL=60))).ID)

    def lock(self, lease: int, timeout: float | None = None) -> Any:
        return self._locks.Lock(e.LockRequest(name=b"wallet", lease=lease), timeout=timeout)

    def campaign(self, lease: int) -> Any:
        return self._elections.Campaign(e.CampaignRequest(name=b"wallet", lease=lease, value=b"ann"))


Verb = Callable[[Etcd, int], Any]


@asynccontextmanager
async def scene() -> AsyncIterator[tuple[Etcd, aio.Client]]:
    """A client of a listener, and one of the service behind it."""
    async with Server(Config(port=0)) as server:
        url = f"fencehold://127.0.0.1:{server.port}"
        door = GrpcDoor(url, port=0)
        await door.start()
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{door.port}") as channel, aio.connect(url) as client:
                yield Etcd(channel), client
        finally:
            await door.stop()


@pytest.fixture
def granted(monkeypatch: pytest.MonkeyPatch) -> "asyncio.Queue[Locked]":
    """The listener stops as soon as it was granted something, and answers nothing; here is what it was granted."""
    told: asyncio.Queue[Locked] = asyncio.Queue()
    acquire: Callable[..., Awaitable[Locked]] = Keys.acquire

    async def acquired(*given: Any) -> Locked:
        told.put_nowait(await acquire(*given))
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(Keys, "acquire", acquired)
    return told


@pytest.mark.parametrize("verb", [Etcd.lock, Etcd.campaign])
async def test_a_call_that_is_cancelled_as_it_is_granted_holds_nothing(
    granted: "asyncio.Queue[Locked]", verb: Verb
) -> None:
    """Neither a lock nor a campaign: its lease lives on, and would keep the name from everybody."""
    async with scene() as (etcd, client):
        call = verb(etcd, await etcd.grant())
        await granted.get()
        call.cancel()
        async with client.lock("wallet", timeout=30):
            pass


async def test_a_campaign_that_fails_after_it_was_granted_leads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told as a failure; but a second one of the same lease takes nothing from the first."""
    async with scene() as (etcd, client):
        lease = await etcd.grant()
        leader = (await etcd.campaign(lease)).leader

        async def fail(*_: Any) -> None:
            raise Unavailable("gone")

        monkeypatch.setattr(EtcdElectionServicer, "_seen", fail)
        with pytest.raises(grpc.aio.AioRpcError, match="gone"):
            await etcd.campaign(lease)
        assert [held.fence for held in (await client.explain("wallet")).holders] == [leader.rev]
        await client.break_hold("wallet")
        with pytest.raises(grpc.aio.AioRpcError, match="gone"):
            await etcd.campaign(await etcd.grant())
        async with client.lock("wallet", timeout=30):
            pass


async def test_a_call_that_joined_another_keeps_what_both_were_granted(granted: "asyncio.Queue[Locked]") -> None:
    """The first is cancelled, the second was told of the same hold: it is released with the last of them."""
    async with scene() as (etcd, client):
        lease = await etcd.grant()
        first, second = etcd.lock(lease), etcd.lock(lease)
        held = {(await granted.get()).held, (await granted.get()).held}
        assert len(held) == 1
        first.cancel()
        await until(lambda: next(iter(held)).calls == 1)
        assert await client.lock("wallet").locked()
        second.cancel()
        async with client.lock("wallet", timeout=30):
            pass


async def test_a_deadline_that_passed_before_the_answer_leaves_nothing_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the listener was too busy to hear of it: the caller waits no longer."""
    acquire: Callable[..., Awaitable[Held]] = etcd_service._held

    async def late(*given: Any) -> Held:
        held = await acquire(*given)
        time.sleep(0.5)  # noqa: ASYNC251 - busy, and deaf
        return held

    monkeypatch.setattr(etcd_service, "_held", late)
    async with scene() as (etcd, client):
        with pytest.raises(grpc.aio.AioRpcError):
            await etcd.lock(await etcd.grant(), timeout=0.4)
        monkeypatch.undo()
        async with client.lock("wallet", timeout=30):
            pass
