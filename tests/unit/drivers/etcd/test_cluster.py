"""Which member is asked, for how long, and what its answer means: with members that do as they are told."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest

from fencehold.drivers.etcd import messages
from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.drivers.etcd.client import EtcdBounds, EtcdClient
from fencehold.drivers.etcd.http2.status import CallFailed
from fencehold.drivers.http2.codes import Code
from fencehold.errors import OutcomeUnknown, Unavailable

FULL = "etcdserver: mvcc: database space exceeded"


class Members:
    """Members a, which leads, and b. A test says how calls to one of them go wrong."""

    def __init__(self) -> None:
        self.leader, self.term = "a", 1
        self.asked: list[tuple[str, str]] = []
        self.on_call: dict[tuple[str, str], Callable[[float], Any]] = {}

    def cluster(self, *, user: str = "") -> EtcdClient:
        address = EtcdAddress(("a:1", "b:1"), user=user, password="secret" if user else "")
        connect: Any = lambda endpoint, _: Told(self, endpoint[0])  # noqa: E731
        return EtcdClient(address, EtcdBounds(), connect)

    async def answer(self, member: str, verb: str, timeout: float) -> Any:  # noqa: ASYNC109
        self.asked.append((member, verb))
        if (wrong := self.on_call.get((member, verb))) is not None:
            await wrong(timeout)
        if verb == "Status":
            header = messages.ResponseHeader(member_id=ord(member), raft_term=self.term)
            return messages.StatusResponse(header=header, leader=ord(self.leader))
        return {"Authenticate": messages.AuthenticateResponse(token="token")}.get(verb, messages.PutResponse())


class Told:
    """A channel to one of them."""

    def __init__(self, members: Members, member: str) -> None:
        self._members = members
        self._member = member

    def unary_unary(self, path: str, *_: Any, **__: Any) -> Any:
        async def call(_: Any, *, timeout: float, metadata: Any = ()) -> Any:  # noqa: ASYNC109
            return await self._members.answer(self._member, path.rpartition("/")[2], timeout)

        return call

    def stream_stream(self, *_: Any, **__: Any) -> None:
        return None

    async def close(self) -> None:
        return


def failing(code: Code, details: str, *, is_sent: bool) -> Callable[[float], Any]:
    async def fail(_: float) -> None:
        raise CallFailed(code, details, is_sent=is_sent)

    return fail


async def test_a_write_that_finds_the_database_full_is_in_doubt() -> None:
    """etcd answers so to the very request that filled it, too, and keeps what it wrote. It is not repeated."""
    members = Members()
    members.on_call["a", "Put"] = failing(Code.RESOURCE_EXHAUSTED, FULL, is_sent=True)
    with pytest.raises(OutcomeUnknown, match="quota"):
        await members.cluster().put(b"key", b"value")
    assert members.asked.count(("a", "Put")) == 1


async def test_a_reading_from_a_full_database_is_no_doubt() -> None:
    """It changed nothing."""
    members = Members()
    members.on_call["a", "Range"] = failing(Code.RESOURCE_EXHAUSTED, FULL, is_sent=True)
    with pytest.raises(Unavailable, match="quota"):
        await members.cluster().read(messages.RangeRequest(key=b"key"))


@pytest.mark.parametrize(
    ("code", "details", "is_sent"),
    [(Code.UNAVAILABLE, "refused", False), (Code.UNAVAILABLE, "etcdserver: no leader", True)],
)
async def test_a_member_that_cannot_log_in_is_left(code: Code, details: str, is_sent: bool) -> None:
    """A token may have run out when the member that is asked is gone, or cut off."""
    members = Members()
    cluster = members.cluster(user="me")
    await cluster.put(b"key", b"value")
    assert cluster.asked == "a:1"
    cluster._has_token = False
    for verb in ("Authenticate", "Put"):
        members.on_call["a", verb] = failing(code, details, is_sent=is_sent)
    await cluster.put(b"key", b"value")
    assert cluster.asked == "b:1"


async def test_who_waits_for_anothers_login_keeps_its_own_deadline() -> None:
    """One with much time may have begun it."""
    over = asyncio.Event()

    async def hang(timeout: float) -> None:  # noqa: ASYNC109
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), timeout)
        raise CallFailed(Code.DEADLINE_EXCEEDED, "no answer in time")

    members = Members()
    for member in "ab":
        members.on_call[member, "Authenticate"] = hang
    cluster = members.cluster(user="me")
    patient = asyncio.create_task(cluster.transact(messages.TxnRequest(), within_s=30.0))
    while ("a", "Authenticate") not in members.asked:  # noqa: ASYNC110 - it comes with the next turns of the loop
        await asyncio.sleep(0)
    begun = time.monotonic()
    with pytest.raises(Unavailable):
        await cluster.transact(messages.TxnRequest(), within_s=0.1)
    assert time.monotonic() - begun < 10
    patient.cancel()
    over.set()
    while len(asyncio.all_tasks()) > 1:  # noqa: ASYNC110 - the login that was begun for all ends in a few turns
        await asyncio.sleep(0)


async def test_a_connection_that_broke_is_not_taken_for_nobody_there() -> None:
    """A greeting on an old connection fails once; the next finds the member."""

    async def break_once(_: float) -> None:
        del members.on_call["a", "Status"]
        raise CallFailed(Code.UNAVAILABLE, "it hung up", is_sent=True)

    members = Members()
    members.on_call["a", "Status"] = break_once
    members.on_call["b", "Status"] = failing(Code.UNAVAILABLE, "refused", is_sent=False)
    await members.cluster().put(b"key", b"value")


async def test_the_member_that_comes_to_lead_is_asked_from_then_on() -> None:
    """Without a call that fails first: looking how full members are tells who leads."""
    members = Members()
    cluster = members.cluster()
    await cluster.put(b"key", b"value")
    assert cluster.asked == "a:1"
    members.leader, members.term = "b", 2
    await cluster.storage(1.0)
    assert cluster.asked == "b:1"
    await cluster.put(b"key", b"value")
    assert members.asked[-1] == ("b", "Put")
    await cluster.close()


async def test_a_leader_that_was_left_is_not_gone_back_to_at_once() -> None:
    """It may be reached for a greeting, and still lose what it is asked."""
    members = Members()
    cluster = members.cluster()
    await cluster.put(b"key", b"value")
    members.on_call["a", "Put"] = failing(Code.UNAVAILABLE, "it hung up", is_sent=True)
    await cluster.put(b"key", b"value")
    assert cluster.asked == "b:1"
    await cluster.storage(1.0)
    assert cluster.asked == "b:1"
    await cluster.close()


async def test_a_leader_of_an_older_term_is_not_believed() -> None:
    """Cut off from the others, it does not know yet that they have another."""
    members = Members()
    cluster = members.cluster()
    members.leader, members.term = "b", 5
    await cluster.put(b"key", b"value")
    assert cluster.asked == "b:1"

    async def deposed(_: float) -> None:
        members.leader, members.term = "a", 4

    async def elected(_: float) -> None:
        members.leader, members.term = "z", 5

    members.on_call = {("a", "Status"): deposed, ("b", "Status"): elected}
    await cluster.storage(1.0)
    assert cluster.asked == "b:1"
    await cluster.close()
