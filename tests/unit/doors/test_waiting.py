"""Waiting: blocking as with BLPOP, or in the background with the answer pushed; and replies in their order."""

from itertools import pairwise

import pytest

from tests.unit.doors.box import Failed, as_map, frame, serving
from tests.unit.node.doubles import until

both = pytest.mark.parametrize("version", [2, 3])


@both
@pytest.mark.guarantee("G4")
async def test_plain_clients_block_and_are_granted_in_order(version: int) -> None:
    """Clients that block get the name one after the other, as they came."""
    async with serving() as box:
        clients = [await box.client(version) for _ in range(4)]
        fence = (await clients[0].map("LOCK.ACQUIRE", "a"))["fence"]
        for number, client in enumerate(clients[1:], 1):
            client.send("LOCK.ACQUIRE", "a")
            await box.waiting(number)
        for before, client in pairwise(clients):
            assert await before.call("LOCK.RELEASE", "a", fence) == "OK"
            fence, earlier = as_map(await client.reply())["fence"], fence
            assert fence > earlier


@both
async def test_a_wait_that_was_in_vain_is_null(version: int) -> None:
    """A blocking acquire that gets nothing in its time is replied to with null, then the next command goes on."""
    async with serving() as box:
        holder, client = await box.client(version), await box.client(version)
        await holder.call("LOCK.ACQUIRE", "a")
        client.send("LOCK.ACQUIRE", "a", "WAIT", 50)
        client.send("PING")
        await box.waiting(1)
        await box.pass_time(50)
        assert await client.reply() is None
        assert await client.reply() == "PONG"


@both
async def test_replies_keep_their_order_behind_a_blocked_command(version: int) -> None:
    """What is pipelined behind an acquire that blocks is done at once, and replied to after it."""
    async with serving() as box:
        holder, client = await box.client(version), await box.client(version, session=50_000)
        fence = (await holder.map("LOCK.ACQUIRE", "a"))["fence"]
        client.writer.write(
            frame("PING", "1")
            + frame("LOCK.ACQUIRE", "b")
            + frame("LOCK.ACQUIRE", "a")
            + frame("NONSENSE")
            + frame("LOCK.ACQUIRE", "c")
            + frame("SESSION.KEEPALIVE")
            + frame("LOCK.INFO", "b")
            + frame("PING", "2")
        )
        assert await client.reply() == "1"
        assert as_map(await client.reply())["name"] == "b"
        await until(lambda: "c" in box.state.held)
        await holder.call("LOCK.RELEASE", "a", fence)
        assert as_map(await client.reply())["name"] == "a"
        with pytest.raises(Failed, match="ERR unknown command"):
            await client.reply()
        assert as_map(await client.reply())["name"] == "c"
        assert "ttl_ms" in as_map(await client.reply())
        assert len(as_map(await client.reply())["holds"]) == 1
        assert await client.reply() == "2"


async def test_a_command_in_pieces_is_the_same_command() -> None:
    """Bytes may come one by one."""
    async with serving() as box:
        client = await box.client()
        for byte in frame("LOCK.ACQUIRE", "orders", "WAIT", 0) + frame("PING"):
            client.writer.write(bytes([byte]))
            await client.writer.drain()
        assert as_map(await client.reply())["name"] == "orders"
        assert await client.reply() == "PONG"


async def test_a_wait_in_the_background_ends_by_a_push() -> None:
    """With ASYNC the reply tells the place in the queue, and the grant is pushed; waits may be many."""
    async with serving() as box:
        holder, client = await box.client(3, session=50_000), await box.client(3, session=9_000)
        for name in "ab":
            await holder.call("LOCK.ACQUIRE", name)
        for request, name in ((1, "a"), (2, "b"), (3, "a")):
            queued = await client.call("LOCK.ACQUIRE", name, "REQUEST", request, "ASYNC")
            assert queued == {"queued": request, "ahead": int(request == 3), "at": queued["at"]}
        again = await client.map("LOCK.ACQUIRE", "a", "REQUEST", 3, "ASYNC")
        assert again == {"queued": 3, "ahead": 1, "at": again["at"]}
        assert again["at"] >= queued["at"]
        await holder.call("LOCK.RELEASE", "b", 2)
        kind, request, grant = await client.push()
        assert (kind, request, grant["name"], grant["fence"]) == ("grant", 2, "b", 3)
        assert (grant["ttl_ms"], grant["own_ttl"], grant["at"]) == (9_000, 0, box.state.now_at)
        assert await client.call("LOCK.CANCEL", 1) == "OK"
        assert await client.push() == ["cancelled", 1]
        await holder.call("LOCK.RELEASE", "a", 1)
        assert (await client.push())[:2] == ["grant", 3]
        again = await client.call("LOCK.ACQUIRE", "a", "REQUEST", 3, "ASYNC")
        assert again["fence"] == 4
        assert await client.call("LOCK.SETTLE", 1, 2, 3) == "OK"


async def test_a_wait_in_the_background_times_out_by_a_push() -> None:
    """An acquire with ASYNC that gets nothing in its time is told so by a push."""
    async with serving() as box:
        holder, client = await box.client(3), await box.client(3, session=9_000)
        await holder.call("LOCK.ACQUIRE", "a")
        await client.call("LOCK.ACQUIRE", "a", "WAIT", 40, "REQUEST", 5, "ASYNC")
        await box.pass_time(39)
        await client.no_push()
        await box.pass_time(1)
        assert await client.push() == ["timeout", 5]
        assert await client.call("LOCK.ACQUIRE", "a", "WAIT", 40, "REQUEST", 5, "ASYNC") is None


async def test_a_grant_to_be_had_at_once_needs_no_push() -> None:
    """With ASYNC, what is free is granted in the reply."""
    async with serving() as box:
        client = await box.client(3)
        assert (await client.call("LOCK.ACQUIRE", "a", "REQUEST", 1, "ASYNC"))["fence"] == 1
        assert await client.call("LOCK.ACQUIRE", "a", "WAIT", 0, "REQUEST", 2, "ASYNC") is None
        await client.no_push()


@pytest.mark.parametrize("explicit", [False, True])
async def test_what_cannot_take_pushes_cannot_wait_in_the_background(explicit: bool) -> None:
    """ASYNC in RESP2, or without a request id, is a usage error, with a session or without, and nothing else."""
    async with serving() as box:
        client = await box.client(2, session=50_000 if explicit else None)
        assert await client.refusal("LOCK.ACQUIRE", "a", "REQUEST", 1, "ASYNC") == "USAGE"
        assert await client.refusal("LOCK.ACQUIRE", "a", "ASYNC") == "USAGE"
        assert (await client.map("LOCK.ACQUIRE", "a"))["fence"] == 1
        third = await box.client(3, session=50_000 if explicit else None)
        assert await third.refusal("LOCK.ACQUIRE", "a", "ASYNC") == "USAGE"
        third.send("LOCK.ACQUIRE", "b", "REQUEST", 1, "ASYNC")
        third.send("HELLO", 2)
        assert (await third.reply())["name"] == "b"
        with pytest.raises(Failed, match="USAGE"):
            await third.reply()


async def test_a_blocked_acquire_that_is_repeated_is_answered_twice() -> None:
    """Each command has its reply, though both are one request, and what comes behind them is not held up."""
    async with serving() as box:
        holder, client = await box.client(), await box.client(2, session=50_000)
        fence = (await holder.map("LOCK.ACQUIRE", "a"))["fence"]
        for _ in range(2):
            client.send("LOCK.ACQUIRE", "a", "REQUEST", 1)
        client.send("PING")
        await box.waiting(1)
        await holder.call("LOCK.INFO", "a")
        await holder.call("LOCK.RELEASE", "a", fence)
        grants = [as_map(await client.reply()) for _ in range(2)]
        assert grants[0] == grants[1]
        assert await client.reply() == "PONG"


@both
async def test_a_blocked_acquire_can_be_cancelled(version: int) -> None:
    """A cancel behind a blocked acquire on the same connection withdraws it: null, then OK."""
    async with serving() as box:
        holder, client = await box.client(version), await box.client(version, session=50_000)
        await holder.call("LOCK.ACQUIRE", "a", "REQUEST", 1)
        client.send("LOCK.ACQUIRE", "a", "REQUEST", 1)
        await box.waiting(1)
        assert await holder.refusal("LOCK.CANCEL", "x") == "USAGE"
        client.send("LOCK.CANCEL", 1)
        assert await client.reply() is None
        assert await client.reply() == "OK"
        assert not box.state.waiters


async def test_a_cancel_that_comes_first_shuts_its_request_out() -> None:
    """Once a request id was cancelled, the acquire that carries it is granted nothing."""
    async with serving() as box:
        client = await box.client(2, session=50_000)
        assert await client.call("LOCK.CANCEL", 4) == "OK"
        assert await client.call("LOCK.ACQUIRE", "a", "REQUEST", 4) is None
        assert not box.state.held


@pytest.mark.guarantee("G9")
async def test_a_question_before_an_acquire_does_not_let_the_grant_overtake_its_reply() -> None:
    """A question, an acquire and the release that lets it through, in one entry: queued first, then granted."""
    async with serving() as box:
        holder, client = await box.client(3), await box.client(3)
        for each in (holder, client):
            await each.map("SESSION.OPEN", "TTL", 60_000)
        for turn in range(1, 11):
            fence = (await holder.map("LOCK.ACQUIRE", "a"))["fence"]
            client.writer.write(frame("LOCK.INFO", "b") + frame("LOCK.ACQUIRE", "a", "REQUEST", turn, "ASYNC"))
            holder.send("LOCK.RELEASE", "a", fence)
            assert as_map(await client.reply())["holds"] == []
            granted = as_map(await client.reply())
            # Unless the release was read first, and it was granted at once.
            if "queued" in granted:
                kind, request, pushed = await client.push()
                assert (kind, request) == ("grant", turn)
                granted = as_map(pushed)
            await holder.reply()
            await client.call("LOCK.RELEASE", "a", granted["fence"])
