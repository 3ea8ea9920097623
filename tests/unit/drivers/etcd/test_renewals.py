"""Renewals of leases in a stream that is kept: which answer belongs to which, and what if it breaks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from h2.connection import H2Connection
from h2.events import DataReceived, Event, RequestReceived, StreamReset

from fencehold.drivers.etcd.http2.status import CallFailed
from fencehold.drivers.etcd.member import EtcdMember
from fencehold.drivers.etcd.messages import LeaseKeepAliveRequest, LeaseKeepAliveResponse
from fencehold.drivers.http2 import frames
from fencehold.drivers.http2.codes import Code
from fencehold.drivers.http2.frames import MESSAGE_HEAD_BYTES, message
from tests.unit.drivers.etcd.http2.peer import BEGIN, OK
from tests.unit.drivers.etcd.http2.server import Server, serving

LEASE = 7


class Lessor(Server):
    """Renews every lease for one second more than the one before, unless it is mute."""

    def __init__(self) -> None:
        super().__init__()
        self.ttl_s = 10
        self.streams: list[int] = []
        """In which stream each renewal came."""

    def on_event(self, h2: H2Connection, event: Event) -> None:
        if isinstance(event, RequestReceived):
            h2.send_headers(event.stream_id, BEGIN)

    def answer(self, h2: H2Connection, event: Any) -> None:
        self.streams.append(event.stream_id)
        lease = LeaseKeepAliveRequest.FromString(event.data[MESSAGE_HEAD_BYTES:]).ID
        self.renew(h2, event.stream_id, lease)

    def renew(self, h2: H2Connection, stream: int, lease: int = LEASE) -> None:
        h2.send_data(stream, message(LeaseKeepAliveResponse(ID=lease, TTL=self.ttl_s).SerializeToString()))
        self.ttl_s += 1


@asynccontextmanager
async def renewing() -> AsyncIterator[tuple[Lessor, EtcdMember]]:
    async with serving(Lessor()) as (lessor, channel):
        yield lessor, EtcdMember(lessor.endpoint, None, lambda *_: channel)


async def renew(member: EtcdMember, lease: int = LEASE, *, within_s: float = 20.0, token: str = "") -> int:
    """How long the lease lasts now."""
    metadata = (("token", token),) if token else ()
    answer = await member.renewals.renew(LeaseKeepAliveRequest(ID=lease), timeout=within_s, metadata=metadata)
    return int(answer.TTL)


async def test_one_stream_is_kept_for_all_renewals() -> None:
    """Also of several leases."""
    async with renewing() as (lessor, member):
        assert [await renew(member, lease) for lease in (LEASE, LEASE, 8, LEASE)] == [10, 11, 12, 13]
        assert len(lessor.of(RequestReceived)) == 1


async def test_a_late_answer_is_never_taken_for_that_of_a_later_renewal() -> None:
    """Trust would count from too late a moment. The stream is given up, and the other side is told."""
    async with renewing() as (lessor, member):
        await renew(member)
        lessor.is_mute = True
        with pytest.raises(CallFailed) as caught:
            await renew(member, within_s=0.05)
        assert (caught.value.code, caught.value.is_sent) == (Code.DEADLINE_EXCEEDED, True)
        lessor.is_mute = False
        lessor.ttl_s = 50
        assert await renew(member) == 50
        assert len(lessor.of(RequestReceived)) == 2
        assert len(lessor.of(StreamReset)) == 1


async def test_an_answer_that_nobody_asked_for_is_taken_for_none() -> None:
    """Whatever it is the answer to, it is not to what is asked next."""
    async with renewing() as (lessor, member):
        await renew(member)
        lessor.renew(lessor.connections[0], 1)
        lessor.say()
        talk = member.renewals._kept
        assert talk is not None
        async with asyncio.timeout(20):
            while talk.is_at_rest:  # noqa: ASYNC110 - it comes with the next turns of the loop
                await asyncio.sleep(0)
        lessor.ttl_s = 50
        assert await renew(member) == 50
        assert lessor.streams == [1, 3]


async def test_the_answer_for_another_lease_is_none() -> None:
    """The stream is out of step: it is given up."""
    async with renewing() as (lessor, member):
        await renew(member)
        lessor.is_mute = True
        task = asyncio.create_task(renew(member))
        await lessor.until(lambda: len(lessor.of(DataReceived)) == 2)
        lessor.renew(lessor.connections[0], 1, lease=99)
        lessor.say()
        with pytest.raises(CallFailed, match="out of step"):
            await task
        lessor.is_mute = False
        await renew(member)
        assert lessor.streams == [1, 3]


async def test_a_stream_that_ended_meanwhile_is_begun_anew() -> None:
    """etcd ends it when it loses its leader; nothing was asked then, so nothing failed."""
    async with renewing() as (lessor, member):
        await renew(member)
        lessor.connections[0].send_headers(1, [("grpc-status", "14"), ("grpc-message", "no")], end_stream=True)
        lessor.say()
        await lessor.until(lambda: lessor.of(StreamReset))
        assert await renew(member) == 11
        assert lessor.streams == [1, 3]


async def test_a_stream_that_ends_instead_of_an_answer_leaves_doubt() -> None:
    """And the next one is another."""
    async with renewing() as (lessor, member):
        await renew(member)
        lessor.is_mute = True
        task = asyncio.create_task(renew(member))
        await lessor.until(lambda: len(lessor.of(DataReceived)) == 2)
        lessor.connections[0].send_headers(1, OK, end_stream=True)
        lessor.say()
        with pytest.raises(CallFailed, match="ended") as caught:
            await task
        assert caught.value.is_sent
        lessor.is_mute = False
        await renew(member)


async def test_renewals_at_once_do_not_wait_for_one_another() -> None:
    """The second has a stream of its own; one of both is kept."""
    async with renewing() as (lessor, member):
        lessor.is_mute = True
        slow = asyncio.create_task(renew(member))
        await lessor.until(lambda: lessor.of(DataReceived))
        lessor.is_mute = False
        await renew(member, 8)
        lessor.renew(lessor.connections[0], 1)
        lessor.say()
        await slow
        await renew(member)
        await renew(member)
        assert len(lessor.of(RequestReceived)) == 2
        await lessor.until(lambda: lessor.of(StreamReset))


async def test_who_logs_in_anew_has_another_stream() -> None:
    """The token is told when it begins."""
    async with renewing() as (lessor, member):
        for token in ("old", "old", "new", "new"):
            await renew(member, token=token)
        assert [dict(event.headers)["token"] for event in lessor.of(RequestReceived)] == ["old", "new"]


async def test_a_connection_that_goes_away_is_not_kept_by_its_renewals() -> None:
    """The next one goes over another connection, and the old one is closed."""
    async with renewing() as (lessor, member):
        await renew(member)
        lessor.writers[0].write(frames.frame(frames.GOAWAY, payload=bytes([0, 0, 0, 1, 0, 0, 0, 0])))
        async with asyncio.timeout(20):
            while len(lessor.connections) == 1:
                await renew(member)
        await lessor.until(lambda: 0 in lessor.ended)


async def test_a_renewal_that_is_cancelled_ends_its_stream() -> None:
    """Its answer may still come."""
    async with renewing() as (lessor, member):
        await renew(member)
        lessor.is_mute = True
        task = asyncio.create_task(renew(member))
        await lessor.until(lambda: len(lessor.of(DataReceived)) == 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()
        await lessor.until(lambda: lessor.of(StreamReset))
