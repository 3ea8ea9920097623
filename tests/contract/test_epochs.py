"""Epochs: taking one seals every older one, on every handle, for ever."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from fencehold.errors import AlreadyOwned, Sealed, UsageError
from fencehold.journal.port import Journal
from fencehold.types import Epoch, Position
from tests.contract.harness import Harness, entry, fill, leading, opened, read_all


async def test_epochs_grow_by_one_and_survive_opening_anew(harness: Harness) -> None:
    """Each `lead` takes a newer epoch, also after the journal was closed, and after a leader wrote nothing."""

    async def work() -> list[Epoch]:
        epochs = []
        for _ in range(3):
            async with leading(harness.handle()) as (journal, epoch):
                epochs += [epoch, await journal.lead()]
        return epochs

    assert (await work()) == [1, 2, 3, 4, 5, 6]


@pytest.mark.guarantee("G10")
async def test_a_newer_epoch_seals_the_older_on_the_same_handle(harness: Harness) -> None:
    """After a newer epoch was taken, nothing can be appended under the older, in any place."""
    async with leading(harness.handle()) as (journal, older):
        records = await fill(journal, older, range(1, 4))
        newer = await journal.lead()
        for position in (3, 4, 5):
            with pytest.raises(Sealed):
                await journal.append(b"late", epoch=older, position=Position(position))
        records += await fill(journal, newer, [4])
        with pytest.raises(Sealed):
            await journal.append(b"late", epoch=older, position=Position(5))
        assert await read_all(journal) == records


async def test_an_epoch_that_was_never_taken_is_refused(harness: Harness) -> None:
    """Nobody can append under an epoch of the future."""
    async with leading(harness.handle()) as (journal, epoch):
        with pytest.raises(UsageError):
            await journal.append(b"early", epoch=Epoch(epoch + 1), position=Position(1))
        assert await read_all(journal) == []


@pytest.mark.guarantee("G10")
async def test_of_two_leaders_at_once_only_the_newest_appends(harness: Harness) -> None:
    """Two handles that both lead: the newest appends, the other is sealed. An unshared engine has no second."""

    async def shared() -> None:
        async with leading(harness.handle()) as (old, older), leading(harness.handle()) as (new, newer):
            with pytest.raises(Sealed):
                await old.append(b"late", epoch=older, position=Position(1))
            records = await fill(new, newer, range(1, 4))
            with pytest.raises(Sealed):
                await old.append(b"late", epoch=older, position=Position(4))
            newest = await old.lead()
            with pytest.raises(Sealed):
                await new.append(b"late", epoch=newer, position=Position(4))
            records += await fill(old, newest, range(4, 7))
            assert await read_all(old) == await read_all(new) == records

    async def owned() -> None:
        async with leading(harness.handle()) as (journal, epoch):
            with pytest.raises(AlreadyOwned):
                await harness.handle().open()
            records = await fill(journal, epoch, range(1, 4))
            assert await read_all(journal) == records
        async with opened(harness.handle()) as journal:
            assert await read_all(journal) == records

    await (shared() if harness.handle().declared.shared else owned())


async def test_of_several_that_take_over_on_the_same_knowledge_one_does(harness: Harness) -> None:
    """Who names the epoch that it knows as the newest takes the next, or is told that another has."""

    async def attempt(journal: Journal, known: Epoch) -> Epoch | str:
        try:
            return await journal.lead(known)
        except Sealed as sealed:
            return f"epoch {sealed.newest} stands"

    async with AsyncExitStack() as stack:
        shared = harness.handle().declared.shared
        count = 4 if shared else 1
        handles = [await stack.enter_async_context(opened(harness.handle())) for _ in range(count)]
        for known in range(3):
            tries = [attempt(journal, Epoch(known)) for journal in handles * 2]
            answers = await asyncio.gather(*tries)
            assert answers.count(Epoch(known + 1)) == 1
            assert answers.count(f"epoch {known + 1} stands") == len(answers) - 1
        assert await handles[0].lead() == 4
        # That it is sealed is certain; by which epoch, a server of ZooKeeper that is behind may not know yet.
        assert await attempt(handles[-1], Epoch(1)) in ("epoch 3 stands", "epoch 4 stands")


@pytest.mark.guarantee("G10")
async def test_two_leaders_in_turn_never_share_a_position(harness: Harness) -> None:
    """However epochs alternate, each position is written once, under the epoch that was newest then."""
    async with opened(harness.handle()) as journal:
        records = []
        for turn in range(10):
            older, newer = await journal.lead(), await journal.lead()
            position = Position(turn + 1)
            with pytest.raises(Sealed):
                await journal.append(entry(position), epoch=older, position=position)
            records += await fill(journal, newer, [position])
        assert await read_all(journal) == records
