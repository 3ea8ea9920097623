"""Appends that no task waits for: the same bytes and outcomes as those of others, and the same second tries."""

import asyncio

import pytest

from fencehold.engines.etcd.append_form import AppendForm
from fencehold.engines.etcd.journal import EtcdJournal
from fencehold.engines.etcd.layout import JournalKeys
from fencehold.errors import OutcomeUnknown, OutOfPlace, Sealed, UsageError
from fencehold.journal.port import DirectJournal, Record
from fencehold.types import Epoch, Position
from tests.contract.engines.etcd import Middle, fresh_address
from tests.contract.harness import read_all
from tests.unit.engines.etcd.stage import leading

pytestmark = pytest.mark.slow


async def landed(journal: EtcdJournal, entry: bytes, epoch: Epoch, position: int) -> BaseException | None:
    """Append directly, and say what came of it."""
    future: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    assert journal.begin_append(entry, epoch=epoch, position=Position(position), done=future.set_result)
    assert not future.done()
    async with asyncio.timeout(60):
        return await future


async def test_a_direct_append_is_durable_when_it_says_so() -> None:
    async with leading(fresh_address()) as (journal, epoch):
        assert isinstance(journal, DirectJournal)
        for position, entry in enumerate((b"one", b"x" * 300, b"y" * 70_000), 1):
            assert await landed(journal, entry, epoch, position) is None
        assert [record.entry for record in await read_all(journal)] == [b"one", b"x" * 300, b"y" * 70_000]


async def test_a_direct_append_is_refused_as_any_other() -> None:
    """Out of place, under an epoch that was never taken, and under one that is sealed."""
    address = fresh_address()
    async with leading(address) as (journal, epoch):
        assert await landed(journal, b"one", epoch, 1) is None
        assert isinstance(await landed(journal, b"again", epoch, 1), OutOfPlace)
        assert isinstance(await landed(journal, b"gap", epoch, 3), OutOfPlace)
        assert isinstance(await landed(journal, b"early", Epoch(epoch + 1), 2), UsageError)
        async with leading(address):
            assert isinstance(await landed(journal, b"late", epoch, 2), Sealed)
        assert await read_all(journal) == [Record(Position(1), epoch, b"one")]


async def test_a_direct_append_whose_reply_is_lost_is_settled_by_asking_again() -> None:
    middle = Middle()
    async with leading(fresh_address(), connect=middle.connect) as (journal, epoch):
        middle.plan = ["lose", "lose"]
        assert await landed(journal, b"once", epoch, 1) is None
        assert middle.tries == 3
        assert await read_all(journal) == [Record(Position(1), epoch, b"once")]


async def test_a_direct_append_that_nobody_answers_has_an_unknown_outcome() -> None:
    middle = Middle()
    async with leading(fresh_address(), connect=middle.connect) as (journal, epoch):
        middle.plan = ["hold"] * 1_000
        assert isinstance(await landed(journal, b"late", epoch, 1), OutcomeUnknown)
        middle.plan = []
        assert sum(await middle.release()) == 1


async def test_closing_waits_for_a_direct_append() -> None:
    address, said = fresh_address(), list[object]()
    async with leading(address) as (journal, epoch):
        assert journal.begin_append(b"last", epoch=epoch, position=Position(1), done=said.append)
        await journal.close()
        assert said == [None]
        assert not journal.begin_append(b"more", epoch=epoch, position=Position(2), done=said.append)


@pytest.mark.parametrize("prefix", ["fencehold/", "a%b/%(place)b/"])
def test_the_bytes_of_a_direct_append_are_those_of_its_message(prefix: str) -> None:
    keys = JournalKeys(prefix)
    form = AppendForm(keys, Epoch(12))
    for position in (1, 2, 9_999, 1 << 62):
        for size in (1, 50, 127, 128, 129, 16_383, 16_384, 1 << 20):
            value = bytes(size)
            expected = form.message(Position(position), value).SerializeToString()
            assert form.filled(Position(position), value) == expected
