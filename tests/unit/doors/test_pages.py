"""Pages: replies of a bounded size, however much there is to tell, that make up the whole."""

import asyncio
from typing import Any

import pytest

from fencehold.core.commands import Acquire, AcquireAtLeast, Command, Mode, OpenSession
from fencehold.core.limits import Limits
from fencehold.doors.resp.pages import REPLY_BYTES_MAX
from fencehold.node import names as names_module
from tests.unit.doors.box import Box, Client, as_map, frame, serving
from tests.unit.node.doubles import until

both = pytest.mark.parametrize("version", [2, 3])
LONG = Limits(waiters_per_name_max=100_000)


async def submit(box: Box, *commands: Command) -> None:
    """Have commands done without a connection for each of thousands."""
    answers: list[Any] = []
    for command in commands:
        box.server.node.submit(command, lambda outcome, _: answers.append(outcome))
    await until(lambda: len(answers) == len(commands))


class Counted:
    """A connection that sees to it that no reply has more bytes than it may."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, *words: Any) -> Any:
        before = self._client.received_bytes
        reply = await self._client.call(*words)
        assert self._client.received_bytes - before <= REPLY_BYTES_MAX, words
        return reply


@both
async def test_twenty_thousand_sessions_are_told_in_pages(version: int) -> None:
    """Each once, by id, in replies of a bounded size; those that end meanwhile may be missing, and nobody else."""
    async with serving() as box:
        await submit(box, *(OpenSession(60_000, meta=f'{{"client":"{number}"}}') for number in range(20_000)))
        client = await box.client(version)
        counted = Counted(client)
        cursor, pages = 0, []
        while True:
            cursor, page = await counted.call("SESSION.LIST", "CURSOR", cursor, "COUNT", 1_000)
            pages.append([as_map(session)["session"] for session in page])
            if not cursor:
                break
        assert [number for page in pages for number in page] == list(range(1, 20_001))
        assert len(pages) <= 81
        assert len((await counted.call("SESSION.LIST"))[1]) == 100
        assert await counted.call("SESSION.LIST", "CURSOR", 20_000) == [0, []]
        assert await counted.call("SESSION.LIST", "CURSOR", 10**9, "STALE") == [0, []]


@both
async def test_a_queue_of_ten_thousand_is_told_in_pages(version: int) -> None:
    """The first page says who is next and how many wait; a page from the middle says how many stand before it."""
    async with serving(limits=LONG) as box:
        waits = (Acquire(1 + number % 20, ("a",), 1 + number, wait_ms=-1) for number in range(10_000))
        await submit(box, *(OpenSession(60_000) for _ in range(20)), Acquire(1, ("a",)), *waits)
        counted = Counted(await box.client(version))
        info = as_map(await counted.call("LOCK.INFO", "a"))
        assert (info["waiter_count"], len(info["waiters"]), info["hold_count"]) == (10_000, 100, 1)
        told = [as_map(waiter) for waiter in info["waiters"]]
        while info["waiters_cursor"]:
            words = ("LOCK.INFO", "a", "WAITERS", info["waiters_cursor"], "COUNT", 1_000)
            info = as_map(await counted.call(*words))
            assert (info["holds"], info["hold_count"], info["holds_cursor"]) == ([], 1, 0)
            told += [as_map(waiter) for waiter in info["waiters"]]
        assert [waiter["ahead"] for waiter in told] == list(range(10_000))
        assert [waiter["ticket"] for waiter in told] == list(range(1, 10_001))


@both
async def test_holders_of_a_name_are_told_in_pages(version: int) -> None:
    """By fence, also after one of them was extended."""
    async with serving() as box:
        shares = (Acquire(1, ("a",), mode=Mode.SHARED) for _ in range(250))
        await submit(box, OpenSession(60_000), *shares)
        client = await box.client(version, session=60_000)
        await client.call("LOCK.ACQUIRE", "a", "MODE", "S", "META", "mine")
        await client.call("LOCK.EXTEND", "a", 251, 30_000)
        await submit(box, Acquire(1, ("a",), mode=Mode.SHARED))
        info = await client.map("LOCK.INFO", "a")
        assert (info["hold_count"], info["fence"], info["holds_cursor"]) == (252, 252, 100)
        fences = [as_map(hold)["fence"] for hold in info["holds"]]
        while info["holds_cursor"]:
            info = await client.map("LOCK.INFO", "a", "HOLDS", info["holds_cursor"], "COUNT", 70)
            fences += [as_map(hold)["fence"] for hold in info["holds"]]
        assert fences == list(range(1, 253))
        (summary,) = (await client.call("LOCK.LIST", "HOLD"))[1]
        assert (as_map(summary)["holders"], as_map(summary)["fence"]) == (252, 252)
        assert as_map(as_map(summary)["hold"])["fence"] == 1


@both
async def test_no_reply_is_larger_than_it_may_be(version: int) -> None:
    """Whatever names and metadata are: as large as they may be, in every place where there is any."""
    meta, owner = "m" * 1_024, "o" * 128

    def name(number: int, at: int = 0) -> str:
        return f"{number:03}:{at:03}:".ljust(256, "n")

    async with serving() as box:
        await submit(box, *(OpenSession(60_000, meta=meta) for _ in range(300)))
        await submit(
            box,
            *(Acquire(1 + n, (name(n),), owner=owner, meta=meta, mode=Mode.SHARED) for n in range(300)),
            *(Acquire(1 + n, (name(0),), owner=owner, meta=meta, mode=Mode.SHARED) for n in range(300)),
            *(AcquireAtLeast(1, (name(500 + n),), owner=owner, meta=meta, at_least_ms=50_000) for n in range(300)),
            *(
                Acquire(1 + n, (name(0), *(name(n, at) for at in range(1, 64))), 1, owner="w" * 128, wait_ms=-1)
                for n in range(100)
            ),
        )
        counted = Counted(await box.client(version))
        cursor: Any = 0
        sessions: list[Any] = []
        while True:
            cursor, page = await counted.call("SESSION.LIST", "CURSOR", cursor, "COUNT", 1_000)
            sessions += page
            if not cursor:
                break
        assert len(sessions) == 300
        names: list[str] = []
        cursor = ""
        while True:
            cursor, page = await counted.call("LOCK.LIST", "CURSOR", cursor, "HOLD", "COUNT", 250)
            names += [as_map(each)["name"] for each in page]
            if not cursor:
                break
        assert len(names) == len(set(names)) == 600 + 100 * 63
        view = as_map(await counted.call("LOCK.INFO", name(0), "COUNT", 1_000))
        assert (view["hold_count"], view["waiter_count"]) == (301, 100)
        holds, waiters = list(view["holds"]), list(view["waiters"])
        while view["holds_cursor"] or view["waiters_cursor"]:
            cursors = ("HOLDS", view["holds_cursor"] or 10**9, "WAITERS", view["waiters_cursor"] or 10**9)
            view = as_map(await counted.call("LOCK.INFO", name(0), *cursors, "COUNT", 1_000))
            holds += view["holds"]
            waiters += view["waiters"]
        assert (len(holds), len(waiters)) == (301, 100)


@both
async def test_names_are_put_in_order_beside_all_else(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of many names waits for that; others are answered meanwhile, and replies keep their order."""
    monkeypatch.setattr(names_module, "SLICE_NAMES", 50)

    async with serving() as box:
        names = [f"{number:04}" for number in range(4_000)]
        await submit(box, OpenSession(60_000), *(Acquire(1, (name,)) for name in names))
        lister, other = await box.client(version), await box.client(version, session=60_000)
        lister.writer.write(
            frame("LOCK.LIST", "COUNT", 3) + frame("LOCK.LIST", "PREFIX", "1", "COUNT", 1) + frame("PING")
        )
        await until(lambda: box.server.node.names.index is not None)
        assert as_map(await other.call("LOCK.ACQUIRE", "0000.5"))["fence"] == 4_001
        assert box.server.node.names._rest is not None
        cursor, page = await lister.reply()
        assert ([as_map(each)["name"] for each in page], cursor) == (["0000", "0000.5", "0001"], "0001")
        assert (await lister.reply())[0] == "1000"
        assert await lister.reply() == "PONG"
        index = box.server.node.names.index
        assert index is not None
        looked = index.looked
        assert (await lister.call("LOCK.LIST", "CURSOR", "2000", "COUNT", 5))[0] == "2005"
        assert index.looked - looked == 6


async def test_a_list_whose_index_is_gone_when_its_turn_comes_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lister does not notice; should it go on like that, it is told to try again."""
    monkeypatch.setattr(names_module, "FEW_NAMES", 8)

    async with serving() as box:
        await submit(box, OpenSession(60_000), *(Acquire(1, (f"{number:04}",)) for number in range(100)))
        client, names = await box.client(), box.server.node.names
        prepare, drops = names.prepare, 2

        def dropping(state: Any, then: Any) -> None:
            def dropped() -> None:
                nonlocal drops
                if drops:
                    drops -= 1
                    names.drop()
                then()

            prepare(state, dropped)

        monkeypatch.setattr(names, "prepare", dropping)
        assert len((await client.call("LOCK.LIST"))[1]) == 100
        assert drops == 0
        drops = 100
        assert await client.refusal("LOCK.LIST") == "UNAVAILABLE"
        drops = 0
        assert len((await client.call("LOCK.LIST", "STALE"))[1]) == 100


async def test_many_lists_of_one_client_look_at_what_they_tell() -> None:
    """Sixteen thousand at once, with ten thousand names held: each looks at two of them."""
    async with serving() as box:
        names = [f"{number:05}" for number in range(10_000)]
        await submit(box, OpenSession(60_000), *(Acquire(1, (name,)) for name in names))
        client = await box.client()
        await client.call("LOCK.LIST", "COUNT", 1)
        index = box.server.node.names.index
        assert index is not None
        looked = index.looked
        for _ in range(20):
            client.writer.write(800 * frame("LOCK.LIST", "COUNT", 1))
            for _ in range(800):
                assert (await client.reply())[0] == "00000"
        assert index.looked - looked == 2 * 16_000
        assert box.server.node.names.index is index


async def test_a_connection_that_ends_while_its_list_waits_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index is made all the same, and the next list has it at once."""
    monkeypatch.setattr(names_module, "SLICE_NAMES", 50)

    async with serving() as box:
        await submit(box, OpenSession(60_000), *(Acquire(1, (f"{number:04}",)) for number in range(4_000)))
        client = await box.client()
        client.send("LOCK.LIST")
        await until(lambda: box.server.node.names.index is not None)
        await client.close()
        await until(lambda: not box.server.door.connections)
        await until(lambda: not box.server.node.names._waiting)
        await asyncio.sleep(0)
        other = await box.client()
        assert len((await other.call("LOCK.LIST"))[1]) == 100
