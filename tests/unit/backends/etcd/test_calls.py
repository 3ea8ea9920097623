"""Transactions that travel together to etcd."""

import asyncio
from typing import Any, cast

import pytest

from fencehold.backends.etcd.calls import Batches
from fencehold.drivers.etcd import messages
from fencehold.drivers.etcd.client import EtcdAnswer
from fencehold.drivers.etcd.transactions import Message, put, transaction
from fencehold.errors import Unavailable


class Members:
    """Answers when it is let; a transaction succeeds."""

    def __init__(self) -> None:
        self.calls: list[int] = []
        """How many travelled together, each time."""
        self.may_answer = asyncio.Event()
        self.error: Exception | None = None

    async def transact(self, request: Message) -> EtcdAnswer:
        nested = [each.request_txn for each in request.success if each.HasField("request_txn")]
        self.calls.append(len(nested) or 1)
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        each = [messages.ResponseOp(response_txn=messages.TxnResponse(succeeded=True)) for _ in nested]
        header = messages.ResponseHeader(revision=9)
        return EtcdAnswer(messages.TxnResponse(succeeded=True, header=header, responses=each), False)


def request(size: int = 1) -> Message:
    return transaction(then=[put(b"key", b"x" * size)])


def test_those_who_ask_while_others_are_under_way_travel_together() -> None:
    """And one who is alone travels alone; all are told the revision."""

    async def main() -> None:
        members = Members()
        members.may_answer.set()
        batches = Batches(cast(Any, members))
        told = await asyncio.gather(*(batches.transact(f"name {each}", request()) for each in range(5)))
        assert [(each.succeeded, each.revision) for each in told] == [(True, 9)] * 5
        await batches.transact("name", request())
        assert members.calls == [1, 1, 3, 1]
        await batches.end()

    asyncio.run(main())


def test_a_name_is_not_twice_in_a_batch() -> None:
    """In their order, one after the other."""

    async def main() -> None:
        members = Members()
        members.may_answer.set()
        batches = Batches(cast(Any, members))
        names = ["x", "y", "a", "b", "a", "c", "a"]
        await asyncio.gather(*(batches.transact(name, request()) for name in names))
        assert members.calls == [1, 1, 2, 2, 1]
        await batches.end()

    asyncio.run(main())


def test_what_is_large_travels_alone() -> None:
    """If it is too large for etcd, nobody else is refused with it."""

    async def main() -> None:
        members = Members()
        members.may_answer.set()
        batches = Batches(cast(Any, members))
        sizes = [1, 1, 1, 1, 1 << 20, 1]
        await asyncio.gather(*(batches.transact(f"{at}", request(size)) for at, size in enumerate(sizes)))
        assert members.calls == [1, 1, 2, 1, 1]
        await batches.end()

    asyncio.run(main())


def test_others_gather_while_calls_are_under_way() -> None:
    """And leave when one of them is answered; one who stops waiting calls nobody back."""

    async def main() -> None:
        members = Members()
        batches = Batches(cast(Any, members))
        waiting = []
        for each in range(10):
            waiting.append(batches.transact(f"name {each}", request()))
            await asyncio.sleep(0.001)
        assert members.calls == [1, 1]
        waiting[0].cancel()
        members.may_answer.set()
        await asyncio.gather(*waiting[1:])
        assert members.calls == [1, 1, 8]
        await batches.end()

    asyncio.run(main())


def test_a_failure_is_told_to_all() -> None:
    """What was called back at the end is called back for all of them."""

    async def main() -> None:
        members = Members()
        members.may_answer.set()
        members.error = Unavailable("nobody there")
        batches = Batches(cast(Any, members))
        for told in [batches.transact(f"name {each}", request()) for each in range(3)]:
            with pytest.raises(Unavailable):
                await told
        members.may_answer.clear()
        last = batches.transact("name", request())
        await asyncio.sleep(0.001)
        await batches.end()
        assert last.cancelled()

    asyncio.run(main())
