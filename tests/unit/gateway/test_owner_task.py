"""An owner: one task that asks for one thing after the other, and whose requests can be withdrawn one by one."""

import asyncio
from typing import Any

import pytest

from fencehold.gateway.owner_task import OwnerTask


def test_what_one_owner_asks_is_asked_by_one_task_in_order() -> None:
    """Two callers, one task; the second waits for the first."""

    async def scene() -> None:
        owner = OwnerTask("ann")
        tasks: list[Any] = []
        order: list[int] = []
        go_on = asyncio.Event()

        async def ask(at: int) -> int:
            tasks.append(asyncio.current_task())
            await go_on.wait()
            order.append(at)
            return at

        first = asyncio.create_task(owner.run(lambda: ask(1), lambda _: None))
        second = asyncio.create_task(owner.run(lambda: ask(2), lambda _: None))
        await asyncio.sleep(0)
        go_on.set()
        assert [await first, await second] == order == [1, 2]
        assert len(set(tasks)) == 1
        assert tasks[0].get_name() == "ann"
        assert owner.is_idle
        owner.stop()

    asyncio.run(scene())


def test_withdrawing_one_request_leaves_the_others() -> None:
    """The one under way is cancelled, the one that waits its turn never begins, the next is asked."""

    async def scene() -> None:
        owner = OwnerTask("ann")
        begun: list[int] = []

        async def ask(at: int) -> int:
            begun.append(at)
            if at < 3:
                await asyncio.Event().wait()
            return at

        asks = [asyncio.create_task(owner.run(lambda at=at: ask(at), lambda _: None)) for at in (1, 2, 3)]  # type: ignore[misc]
        await asyncio.sleep(0.01)
        asks[1].cancel()
        asks[0].cancel()
        assert await asks[2] == 3
        assert begun == [1, 3]
        assert [ask.cancelled() for ask in asks[:2]] == [True, True]
        owner.stop()

    asyncio.run(scene())


def test_what_was_granted_to_nobody_is_undone() -> None:
    """The caller goes in the moment that the answer is there."""

    async def scene() -> None:
        owner, undone = OwnerTask("ann"), list[str]()
        go_on = asyncio.Event()

        async def ask() -> str:
            await go_on.wait()
            return "hold"

        call = asyncio.create_task(owner.run(ask, undone.append))
        await asyncio.sleep(0.01)
        go_on.set()
        for _ in range(100):
            if _is_asking(owner):
                await asyncio.sleep(0)
        # The answer is there, and the caller has not seen it yet.
        assert not call.done()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert undone == ["hold"]
        owner.stop()

    asyncio.run(scene())


def _is_asking(owner: OwnerTask) -> bool:
    return not owner.is_idle


def test_errors_are_the_callers() -> None:
    """What is asked fails; the owner goes on."""

    async def scene() -> None:
        owner = OwnerTask("ann")

        async def fail() -> None:
            raise KeyError("a")

        async def answer() -> int:
            return 1

        with pytest.raises(KeyError):
            await owner.run(fail, lambda _: None)
        assert await owner.run(answer, lambda _: None) == 1
        owner.stop()

    asyncio.run(scene())
