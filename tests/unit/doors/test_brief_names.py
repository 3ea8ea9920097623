"""Names in brief: the same names as in maps, with what those who keep a picture need to know of each."""

import pytest

from fencehold.core.commands import Acquire, Mode, OpenSession
from fencehold.node.leader import Leader
from tests.unit.doors.box import serving
from tests.unit.doors.policies import apply, as_somebody, rules
from tests.unit.doors.test_pages import Counted, submit


@pytest.mark.parametrize("version", [2, 3])
async def test_a_name_in_brief_says_who_holds_it_and_how_many_wait(version: int) -> None:
    """Of several holders the oldest, with the newest fence; of a hold with a ttl, how long it lasts."""
    async with serving() as box:
        asks = [
            Acquire(1, ("a",), owner="task"),
            Acquire(2, ("a",), 1, wait_ms=-1),
            Acquire(1, ("b",), mode=Mode.SHARED),
            Acquire(2, ("b",), mode=Mode.SHARED),
            Acquire(2, ("c",), ttl_ms=30_000),
        ]
        await submit(box, OpenSession(60_000), OpenSession(60_000), *asks)
        client = await box.client(version)
        cursor, rows = await client.call("LOCK.LIST", "BRIEF")
        assert cursor == ""
        assert [row[:7] for row in rows] == [
            ["a", "X", 1, 1, 1, 1, "task"],
            ["b", "S", 2, 0, 3, 1, ""],
            ["c", "X", 1, 0, 4, 2, ""],
        ]
        assert [row[8] for row in rows] == [-1, -1, pytest.approx(30_000, abs=5_000)]


async def test_names_in_brief_come_in_pages_of_a_bounded_size() -> None:
    """As all lists do, with a cursor that is a name."""
    async with serving() as box:
        names = [f"{'n' * 200}{number:04}" for number in range(600)]
        await submit(box, OpenSession(60_000), *(Acquire(1, (name,), owner="o" * 120) for name in names))
        counted, found, cursor = Counted(await box.client(3)), list[str](), ""
        while True:
            more = ("CURSOR", cursor) if cursor else ()
            cursor, rows = await counted.call("LOCK.LIST", "COUNT", 250, "BRIEF", *more)
            found += [row[0] for row in rows]
            if not cursor:
                break
        assert found == names


async def test_only_lists_in_brief_are_of_just_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait for no entry while one was begun just now; all other readings wait for one of their own."""
    put: list[object] = []
    ask = Leader.ask

    def counted(leader: Leader, question: object, *more: object) -> None:
        put.append(question)
        ask(leader, question, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(Leader, "ask", counted)
    async with serving() as box:
        client = await box.client(3)
        await submit(box, OpenSession(60_000), Acquire(1, ("a",)))
        assert (await client.call("LOCK.LIST", "BRIEF"))[1][0][0] == "a"
        assert await client.call("LOCK.LIST", "BRIEF", "STALE")
        assert not put
        for number, words in enumerate((("LOCK.LIST",), ("LOCK.LIST", "HOLD"), ("LOCK.INFO", "a")), 1):
            await client.call(*words)
            assert len(put) == number


async def test_names_in_brief_are_those_that_may_be_seen_by_the_newest_policy() -> None:
    """Who has changed it, and was told so, knows that nobody is shown more from then on."""
    seen = {"users": {"ann": {"roles": ["team"]}, "boss": {"roles": ["all"]}}}
    everything = rules(all="acquire observe break events admin")
    async with serving() as box:
        roles = {"team": rules(**{"b:": "observe"}), "all": everything}
        await apply(await box.client(3), **seen, roles=roles)
        ann, boss = await as_somebody(box, "ann"), await as_somebody(box, "boss", session=60_000)
        for name in ("a:1", "b:1", "b:2"):
            await boss.call("LOCK.ACQUIRE", name)
        assert [row[0] for row in (await ann.call("LOCK.LIST", "BRIEF"))[1]] == ["b:1", "b:2"]
        await apply(boss, **seen, roles={"team": rules(**{"b:2_": "observe"}), "all": everything})
        assert [row[0] for row in (await ann.call("LOCK.LIST", "BRIEF"))[1]] == ["b:2"]
        assert [row[0] for row in (await boss.call("LOCK.LIST", "BRIEF"))[1]] == ["a:1", "b:1", "b:2"]
