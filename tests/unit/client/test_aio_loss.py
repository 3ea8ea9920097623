"""Losing a hold: the body is cancelled, once, and told apart from every other cancellation."""

import asyncio
from contextlib import aclosing

import pytest

from fencehold import State, aio
from fencehold.client.aio.channel import Channel
from fencehold.errors import HoldLost
from fencehold.locks.identity import Who
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant
from tests.unit.client.service import PATIENCE_S, service, until


async def test_losing_the_hold_cancels_the_body() -> None:
    """The body stops where it stands, and `HoldLost` comes out of the `async with`."""
    async with service() as url, aio.connect(url) as client:
        forever = asyncio.Event()
        with pytest.raises(HoldLost, match="force-released") as caught:
            async with client.lock("a") as hold:
                await client.break_hold("a")
                await forever.wait()
        assert hold.state is State.LOST
        assert (caught.value.names, caught.value.fence) == (("a",), hold.fence)
        assert _cancellations() == 0


@pytest.mark.parametrize("kind", ["lock", "rlock", "terms"])
async def test_a_hold_that_is_lost_before_its_task_hears_of_it_cancels_the_body(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The grant and its loss may come in one message: the body that follows is stopped where it first waits."""
    acquire = Channel.acquire

    async def acquire_and_lose(self: Channel, terms: Terms, who: Who, owner: bytes | None = None) -> Grant | None:
        grant = await acquire(self, terms, who, owner)
        assert grant is not None
        self.protocol._lose(grant, "'a' was force-released")
        return grant

    async with service() as url, aio.connect(url) as client:
        forever = asyncio.Event()
        monkeypatch.setattr(Channel, "acquire", acquire_and_lose)
        if kind == "terms":
            async with aclosing(client.election("a").terms()) as terms, await anext(terms):
                await asyncio.wait_for(forever.wait(), PATIENCE_S)
        else:
            with pytest.raises(HoldLost, match="force-released"):
                async with getattr(client, kind)("a"):
                    await asyncio.wait_for(forever.wait(), PATIENCE_S)
        assert _cancellations() == 0
        assert [record.getMessage() for record in caplog.records if "is lost" in record.getMessage()] == [
            "'a' with fence 1 is lost: 'a' was force-released"
        ]


def _cancellations() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


async def test_a_hold_with_a_ttl_is_lost_on_the_clients_own_clock() -> None:
    """The body of a hold whose ttl runs out is cancelled before the server gives the name away."""
    async with service() as url, aio.connect(url) as client, aio.connect(url) as other:
        forever = asyncio.Event()
        with pytest.raises(HoldLost, match="ttl ran out"):
            async with client.lock("a", ttl=0.1):
                waiter = asyncio.create_task(other.lock("a").acquire())
                await forever.wait()
        hold = await waiter
        assert hold is not None
        await hold.release()


async def test_the_bodys_own_error_is_not_hidden() -> None:
    """If the body raises, that is what comes out; the loss is a note on it."""
    async with service() as url, aio.connect(url) as client:
        with pytest.raises(KeyError) as caught:
            async with client.lock("a", on_lost="raise") as hold:
                await client.break_hold("a")
                await hold.lost
                raise KeyError("mine")
        assert "is lost" in caught.value.__notes__[0]


async def test_a_body_that_ends_without_noticing_is_told() -> None:
    """A body that swallowed its cancellation, or was not to be cancelled, meets `HoldLost` at its end."""
    async with service() as url, aio.connect(url) as client:
        with pytest.raises(HoldLost):
            async with client.lock("a"):
                await client.break_hold("a")
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    pass
        assert _cancellations() == 0
        with pytest.raises(HoldLost):
            async with client.lock("a", on_lost="raise") as hold:
                await client.break_hold("a")
                assert "force-released" in await hold.lost
                with pytest.raises(HoldLost):
                    hold.check()


async def test_a_cancellation_from_outside_stays_one() -> None:
    """A task that is cancelled while it holds something ends as cancelled, with the name free."""
    async with service() as url, aio.connect(url) as client:
        inside = asyncio.Event()

        async def work() -> None:
            async with client.lock("a"):
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await client.lock("a").locked()


async def test_cancelled_from_outside_and_lost_at_once() -> None:
    """When both happen in one turn of the loop, the cancellation from outside is not swallowed."""
    async with service() as url, aio.connect(url) as client:
        task = asyncio.create_task(_hold_for_ever(client))
        await until(lambda: _locked(client))
        (grant,) = client._channel.protocol.session.holds.values()
        task.cancel()
        grant.lose("it was force-released")
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.break_hold("a")


async def _hold_for_ever(client: aio.Client) -> None:
    async with client.lock("a"):
        await asyncio.Event().wait()


async def _locked(client: aio.Client) -> bool:
    return await client.lock("a").locked()


async def test_a_timeout_inside_and_outside_is_a_timeout() -> None:
    """`asyncio.timeout` works around and within a hold, as anywhere."""
    async with service() as url, aio.connect(url) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02), client.lock("a"):
                await asyncio.Event().wait()
        async with client.lock("a") as hold:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await asyncio.Event().wait()
            hold.check()
        assert _cancellations() == 0


async def test_the_inner_of_two_holds_is_lost() -> None:
    """Only the body of the lost hold is cancelled; the outer one goes on."""
    async with service() as url, aio.connect(url) as client:
        async with client.lock("outer") as outer:
            with pytest.raises(HoldLost) as caught:
                async with client.lock("inner"):
                    await client.break_hold("inner")
                    await asyncio.Event().wait()
            assert caught.value.names == ("inner",)
            outer.check()
        assert _cancellations() == 0


async def test_the_caller_is_told_of_a_loss() -> None:
    """Callbacks run in the loop, once; one that is added late runs, too; one that fails keeps no other from it."""
    async with service() as url, aio.connect(url) as client:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
        hold = await client.lock("a").acquire()
        assert hold is not None
        told: list[object] = []
        hold.lost.add_callback(lambda _: 1 // 0)
        hold.lost.add_callback(told.append)
        assert not hold.lost.is_set()
        await client.break_hold("a")
        assert "force-released" in await hold.lost
        hold.lost.add_callback(told.append)
        await until(lambda: told == [hold, hold])
        assert len(failures) == 1
        with pytest.raises(HoldLost):
            await hold.release()
        with pytest.raises(HoldLost):
            await hold.extend(5)


async def test_a_release_is_no_loss() -> None:
    """Nobody is told of the loss of a hold that was given back."""
    async with service() as url, aio.connect(url) as client:
        async with client.lock("a") as hold:
            lost = hold.lost
        await client.close()
        assert not lost.is_set()
        assert not hold.lost.is_set()


async def test_an_extended_hold_outlives_its_first_ttl() -> None:
    """After an extension the hold is safe for longer; extended to None it lives with its session."""
    async with service() as url, aio.connect(url) as client:
        async with client.lock("a", ttl=5) as hold:
            assert hold.safe_for() < 5
            await hold.extend(20)
            assert hold.safe_for() > 15
            await hold.extend(None)
            assert hold.safe_for() > 25
