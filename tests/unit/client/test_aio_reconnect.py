"""A line that breaks: the session is taken up again, requests are repeated, and silence is noticed."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fencehold import State, aio
from fencehold.errors import HoldLost, OutcomeUnknown, SessionExpired, Unavailable, UsageError
from fencehold.locks.places import read_places
from fencehold.locks.views import Missing
from fencehold.server import Config, Server
from tests.unit.client.service import Cable, service, until


@asynccontextmanager
async def cabled(grace: float) -> AsyncIterator[tuple[Cable, aio.Client, aio.Client]]:
    """A client at the end of a cable, and another with a line of its own."""
    async with (
        service() as url,
        Cable(url) as cable,
        aio.connect(cable.url, grace=grace) as client,
        aio.connect(url) as other,
    ):
        yield cable, client, other


async def test_a_hold_survives_a_broken_line() -> None:
    """A connection that breaks costs nothing but a moment in jeopardy."""
    async with service() as url, Cable(url) as cable, aio.connect(cable.url) as client:
        async with client.lock("a") as hold:
            for round_ in range(2, 5):
                cable.cut()
                await until(lambda: hold.state is State.JEOPARDY)
                await until(lambda: hold.state is State.HELD)
                assert cable.connections == round_
        async with client.lock("a") as again:
            assert again.fence > hold.fence


@pytest.mark.guarantee("G9")
async def test_requests_cut_off_are_repeated_and_done_once() -> None:
    """Acquires and releases under way when the line breaks end as if it had not, each done once."""
    async with service() as url, Cable(url) as cable, aio.connect(cable.url, grace=5) as client:
        fences: list[int] = []

        async def work(name: str) -> None:
            for _ in range(20):
                async with client.lock(name) as hold:
                    fences.append(hold.fence)

        workers = [asyncio.create_task(work(f"n{i % 3}")) for i in range(9)]
        while not all(worker.done() for worker in workers):
            cable.cut()
            done = len(fences)
            await until(lambda done=done: len(fences) > done or all(w.done() for w in workers))  # type: ignore[misc]
        await asyncio.gather(*workers)
        assert len(set(fences)) == 180
        for name in ("n0", "n1", "n2"):
            seen = await client.explain(name)
            assert (seen.holders, seen.queue) == ((), ())


async def test_a_waiter_keeps_its_place_over_a_broken_line() -> None:
    """An acquire that was queued is still queued after a reconnect, and granted in its turn."""
    async with cabled(grace=5) as (cable, client, other):
        async with other.lock("a"):
            waiting = asyncio.create_task(client.lock("a").acquire())
            await until(lambda: _queue(other, 1))
            cable.cut()
            await until(lambda: cable.connections == 2)
            await until(lambda: _queue(other, 1))
        hold = await waiting
        assert hold is not None
        await hold.release()


async def _queue(client: aio.Client, length: int) -> bool:
    return len((await client.explain("a")).queue) == length


async def test_a_grant_pushed_into_a_broken_line_is_heard_again() -> None:
    """If the name came free while the line was down, the repeated acquire brings the grant."""
    async with cabled(grace=5) as (cable, client, other):
        async with other.lock("a"):
            waiting = asyncio.create_task(client.lock("a").acquire())
            await until(lambda: _queue(other, 1))
            cable.refuses = True
            cable.cut()
        await until(lambda: _held(other))
        cable.refuses = False
        hold = await waiting
        assert hold is not None
        await hold.release()


async def test_a_hold_broken_while_the_line_was_down_is_lost_when_it_is_back() -> None:
    """Nobody could be told of it then; the other holds of the session go on."""
    async with (
        service() as url,
        Cable(url) as cable,
        aio.connect(cable.url, grace=30) as client,
        aio.connect(url) as operator,
    ):
        broken, kept = await client.lock("a").acquire(), await client.lock("b").acquire()
        assert broken is not None
        assert kept is not None
        cable.refuses = True
        cable.cut()
        await until(lambda: broken.state is State.JEOPARDY)
        await operator.break_hold("a")
        cable.refuses = False
        await until(lambda: broken.state is State.LOST)
        await until(lambda: kept.state is State.HELD)


async def _held(client: aio.Client) -> bool:
    return await client.lock("a").locked()


async def test_a_session_that_ended_meanwhile_is_replaced() -> None:
    """A line that is down for longer than the grace costs the holds, and the client goes on with a new session."""
    async with cabled(grace=0) as (cable, client, other):
        with pytest.raises(HoldLost):
            async with client.lock("a"):
                cable.refuses = True
                cable.cut()
                await until(lambda: _free(other))
                cable.refuses = False
                await asyncio.Event().wait()
        async with client.lock("a") as hold:
            hold.check()


async def _free(client: aio.Client) -> bool:
    return not await client.lock("a").locked()


async def test_a_waiter_whose_session_ended_is_told() -> None:
    """An acquire queued in a session that ended is refused; asked anew, it works."""
    async with cabled(grace=0) as (cable, client, other):
        async with other.lock("a"):
            waiting = asyncio.create_task(client.lock("a").acquire())
            await until(lambda: _queue(other, 1))
            cable.refuses = True
            cable.cut()
            await until(lambda: _queue(other, 0))
            cable.refuses = False
            with pytest.raises(SessionExpired):
                await waiting
        async with client.lock("a", timeout=0) as hold:
            hold.check()


@pytest.mark.guarantee("G9")
async def test_when_the_service_stays_away_every_call_ends() -> None:
    """What was sent is of unknown outcome, what was not is unavailable, both after the connect timeout."""
    async with service() as url, Cable(url) as cable:
        async with aio.connect(cable.url, connect_timeout=0.2, grace=5) as client:
            cable.hold_still()
            sent = asyncio.create_task(client.lock("a").acquire())
            await asyncio.sleep(0.01)
            cable.refuses = True
            cable.cut()
            await until(lambda: not client._channel.protocol.attached)
            not_sent = asyncio.create_task(client.lock("b").acquire())
            with pytest.raises(OutcomeUnknown):
                await sent
            with pytest.raises(Unavailable):
                await not_sent
            cable.refuses = False
            cable.flow()
            await until(lambda: client._channel.protocol.attached)
            await until(lambda: _nothing(client))


async def _nothing(client: aio.Client) -> bool:
    seen = await client.explain("a")
    return not seen.holders and not seen.queue


@pytest.mark.guarantee("G7")
async def test_a_silent_line_loses_the_hold_before_the_server_gives_it_away() -> None:
    """With a line that swallows everything, the client stops trusting first, and only then is another granted."""
    async with service() as url, Cable(url) as cable:
        client = await aio.connect(cable.url, ttl=0.6, grace=0.1, connect_timeout=0.2)
        async with aio.connect(url) as other:
            hold = await client.lock("a").acquire()
            assert hold is not None
            cable.hold_still()
            waiting = asyncio.create_task(other.lock("a").acquire())
            await until(lambda: hold.state is State.LOST)
            assert not waiting.done()
            next_hold = await waiting
            assert next_hold is not None
            assert next_hold.fence > hold.fence
            await next_hold.release()
            cable.flow()
            await client.close()


async def test_a_hold_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    """A server that comes back with its journal finds session, hold and waiter again, and so does the client."""
    server = Server(Config(data=tmp_path, port=0))
    await server.start()
    url = f"fencehold://127.0.0.1:{server.port}"
    async with aio.connect(url) as client, aio.connect(url) as other:
        async with client.lock("a") as hold:
            waiting = asyncio.create_task(other.lock("a").acquire())
            await until(lambda: _queue(client, 1))
            await server.stop()
            await until(lambda: hold.state is State.JEOPARDY)
            server = Server(Config(data=tmp_path, port=server.port))
            await server.start()
            await until(lambda: hold.state is State.HELD)
            assert not waiting.done()
        next_hold = await waiting
        assert next_hold is not None
        assert next_hold.fence > hold.fence
        await next_hold.release()
    await server.stop()


async def test_a_watch_goes_on_over_a_broken_line() -> None:
    """After a reconnect the watch is asked for again, and events go on."""
    async with (
        service() as url,
        Cable(url) as cable,
        aio.connect(cable.url) as client,
        aio.connect(url) as other,
        client.watch("a") as watch,
    ):
        async with other.lock("a"):
            assert (await anext(watch)).kind == "acquired"
            cable.cut()
        assert (await anext(watch)).kind == "released"


async def test_a_watch_goes_on_when_the_journal_was_made_anew() -> None:
    """A server in memory that is started again begins at the first position: that is a gap, and no silence."""
    server = Server(Config(port=0))
    await server.start()
    url = f"fencehold://127.0.0.1:{server.port}"
    async with aio.connect(url) as client, client.watch("b") as beside, client.watch("a") as watch:
        for _ in range(20):
            async with client.lock("a"):
                assert (await anext(watch)).kind == "acquired"
            assert (await anext(watch)).kind == "released"
        told = read_places(watch.places, 1)[0]
        await server.stop()
        server = Server(Config(port=server.port))
        await server.start()
        async with aio.connect(url) as other:
            for each in (watch, beside):
                gap = await anext(each)
                assert (gap.kind, gap.missing) == ("gap", Missing(1, gap.position, 0))
                assert read_places(each.places, 1)[0][0] == gap.position < told[0]
            async with other.lock("a"), other.lock("b"):
                assert [(await anext(each)).kind for each in (watch, beside)] == ["acquired"] * 2
            assert read_places(watch.places, 1)[0] < told
    await server.stop()


async def test_who_begins_after_what_has_not_happened_is_told_so() -> None:
    """At once, with the newest position; and its watch is over."""
    async with service() as url, aio.connect(url) as client:
        with pytest.raises(UsageError, match="position 999999 has not happened yet: the newest is "):
            await client.watch("", after=999_999).__aenter__()


async def test_nothing_is_left_after_closing() -> None:
    """A closed client has no socket, whatever its line went through."""
    async with service() as url:
        before = _open_files()
        async with Cable(url) as cable:
            client = await aio.connect(cable.url)
            cable.cut()
            await until(lambda: not client._channel.protocol.attached)
            await until(lambda: client._channel.protocol.attached)
            await client.close()
            await client.close()
        await until(lambda: _open_files() == before)


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
