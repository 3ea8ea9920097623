"""Names in order: a page costs what it tells, and the index is there only while somebody lists."""

import asyncio
from collections.abc import Iterable

import pytest

from fencehold.core.commands import Acquire, AcquireAtLeast, CloseSession, Entry, Mode, OpenSession, Release
from fencehold.core.limits import Limits
from fencehold.core.machine import Machine
from fencehold.core.views import names_by_session, names_in_use
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.journal.codec import encode
from fencehold.node import names as module
from fencehold.node.names import FEW_NAMES, IDLE_MS, LOOKED_MAX, SLICE_NAMES, NamePage, Names
from fencehold.node.replica import Replica
from fencehold.types import Epoch, Position

MANY = 10 * FEW_NAMES


class Fed:
    """A machine with sessions, and names that are fed with what it applies."""

    def __init__(self, sessions: int = 3) -> None:
        self.machine = Machine(Limits(names_per_request_max=1_000, holds_per_session_max=100_000))
        self.names = Names()
        self.apply(*(OpenSession(3_600_000) for _ in range(sessions)))

    def apply(self, *commands: object, elapsed_ms: int = 0) -> None:
        entry = Entry(elapsed_ms, commands)  # type: ignore[arg-type]
        applied = self.machine.apply(self.machine.position + 1, entry)
        if self.names.index is not None:
            self.names.feed(entry, applied)

    def is_indexed(self) -> bool:
        return self.names.index is not None

    def hold(self, names: Iterable[str], session: int = 1) -> None:
        listed = list(names)
        for start in range(0, len(listed), 1_000):
            self.apply(Acquire(session, tuple(listed[start : start + 1_000])))

    async def page(self, prefix: str = "", after: str = "", count: int = 100) -> NamePage:
        ready = asyncio.Event()
        self.names.prepare(self.machine.state, ready.set)
        await ready.wait()
        page = self.names.page(self.machine.state, prefix, after, count)
        assert page is not None
        return page

    async def all(self, prefix: str = "", count: int = 100) -> list[str]:
        listed: list[str] = []
        page = NamePage([], "")
        while True:
            page = await self.page(prefix, page.cursor, count)
            listed += page.names
            if not page.cursor:
                return listed


async def test_pages_make_up_the_list() -> None:
    """However large they are, and however many names there are."""
    fed = Fed()
    fed.hold((f"n:{number % 97}:{number}" for number in range(MANY)), 1)
    wanted = names_in_use(fed.machine.state)
    for count in (7, 100, 1_000, 10 * MANY):
        assert await fed.all(count=count) == wanted
    assert await fed.all("n:5:") == [name for name in wanted if name.startswith("n:5:")]
    assert await fed.page("n:5:", after="n:6") == ([], "")
    first = next(name for name in wanted if name.startswith("n:5:"))
    assert (await fed.page("n:5:", after="a", count=1)).names == [first]


async def test_what_is_awaited_delayed_or_kept_is_listed_too() -> None:
    """All that is in use: exclusively, shared, waited for, under lock-delay, kept for a least time."""
    fed = Fed()
    fed.hold(f"x:{number}" for number in range(2 * FEW_NAMES))
    fed.apply(Acquire(2, ("shared",), mode=Mode.SHARED), Acquire(3, ("shared",), mode=Mode.SHARED))
    fed.apply(Acquire(2, ("x:1", "awaited"), 1, wait_ms=-1))
    fed.apply(Acquire(2, ("delayed",), ttl_ms=10, lock_delay_ms=60_000))
    fed.apply(AcquireAtLeast(2, ("kept",), at_least_ms=60_000))
    fed.apply(Release(2, ("kept",), fed.machine.fence), elapsed_ms=20)
    others = ["awaited", "delayed", "kept", "shared"]
    assert [name for name in await fed.all() if not name.startswith("x:")] == others
    # Found so far when the index was made; what follows is fed.
    fed.apply(Acquire(3, ("x:2", "awaited, too"), 1, wait_ms=-1), Acquire(3, ("y",)), Acquire(3, ("z",)))
    fed.apply(Acquire(2, ("z", "z, too"), 2, wait_ms=-1), Release(3, ("y",), fed.machine.fence - 1))
    fed.apply(Release(3, ("z",), fed.machine.fence))
    others = ["awaited", "awaited, too", "delayed", "kept", "shared", "z", "z, too"]
    assert [name for name in await fed.all() if not name.startswith("x:")] == others
    assert fed.is_indexed()
    fed.apply(CloseSession(2))
    assert await fed.all() == names_in_use(fed.machine.state)


async def test_a_page_looks_at_what_it_tells() -> None:
    """At any number of names: one more than it tells, to know whether there is more."""
    fed = Fed()
    fed.hold(f"{number:06}" for number in range(MANY))
    await fed.page()
    index = fed.names.index
    assert index is not None
    for after in ("", "004711", f"{MANY // 2:06}"):
        looked = index.looked
        assert len((await fed.page(after=after, count=100)).names) == 100
        assert index.looked - looked == 101


async def test_an_index_is_made_in_slices() -> None:
    """While it is made the event loop has its turns, lists wait, and what changes meanwhile is known."""
    fed = Fed()
    fed.hold((f"b:{number:06}" for number in range(MANY)), 1)
    reading = [asyncio.create_task(fed.page(count=3)) for _ in range(600)]
    turns = 0
    await asyncio.sleep(0)
    while fed.names.page(fed.machine.state, "", "", 1) is None:
        assert not any(task.done() for task in reading)
        fed.apply(Acquire(2, (f"a:{turns:03}",)), Release(1, (f"b:{turns:06}",), turns // 1_000 + 1))
        turns += 1
        await asyncio.sleep(0)
    assert turns >= MANY // (2 * SLICE_NAMES)
    assert [page.names for page in await asyncio.gather(*reading)] == 600 * [["a:000", "a:001", "a:002"]]
    assert await fed.all() == names_in_use(fed.machine.state)


async def test_no_slice_of_an_index_puts_more_than_one_bucket_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """All buckets become full at about the same time, and everybody else waits for a slice."""
    fed = Fed()
    fed.hold((f"{number * 7_919 % MANY:06}" for number in range(MANY)), 1)
    tidied: list[int] = []
    tidy = module.NameIndex._tidy

    def counted(index: module.NameIndex, at: int) -> None:
        tidied[-1] += 1
        tidy(index, at)

    monkeypatch.setattr(module.NameIndex, "_tidy", counted)
    reading = asyncio.create_task(fed.page())
    while not reading.done():
        tidied.append(0)
        await asyncio.sleep(0)
    assert max(tidied) == 1
    assert sum(tidied) > MANY // 1_024
    assert await fed.all() == names_in_use(fed.machine.state)


def test_few_names_are_put_in_order_on_the_spot() -> None:
    """No loop is needed for that, and nobody waits."""
    fed = Fed()
    fed.hold(["b", "a"])
    called: list[bool] = []
    fed.names.prepare(fed.machine.state, lambda: called.append(True))
    assert called == [True]
    assert fed.names.page(fed.machine.state, "", "", 10) == (["a", "b"], "")


@pytest.mark.guarantee("G11")
async def test_an_unread_index_is_dropped() -> None:
    """After a minute of logical time; the next list makes it anew."""
    fed = Fed()
    fed.hold(f"{number:06}" for number in range(2 * FEW_NAMES))
    await fed.page()
    for _ in range(IDLE_MS // 2_000):
        fed.apply(elapsed_ms=2_000)
        assert fed.names.index is not None
    fed.apply(Acquire(2, ("last",)), elapsed_ms=2_000)
    assert fed.names.index is None
    fed.apply(Acquire(2, ("later",)))
    assert await fed.all() == names_in_use(fed.machine.state)


async def test_an_index_is_let_go_of_soon_by_who_has_read_all_of_it() -> None:
    """Unless somebody else reads on."""
    fed = Fed()
    fed.hold(f"n{number}" for number in range(MANY))
    await fed.page()
    fed.names.spare(fed.machine.state)
    fed.apply(elapsed_ms=100)
    assert fed.is_indexed()
    await fed.page()
    fed.apply(elapsed_ms=1_000)
    assert fed.is_indexed()
    fed.names.spare(fed.machine.state)
    fed.apply(elapsed_ms=1_000)
    assert not fed.is_indexed()


@pytest.mark.guarantee("G11")
async def test_an_index_follows_what_is_in_use() -> None:
    """Names that come and go leave nothing behind, be they many or one; if all are gone, so is the index."""
    fed = Fed()
    fed.hold((f"k:{number:06}" for number in range(FEW_NAMES * 2)), 1)
    await fed.page()
    for number in range(20_000):
        name = f"k:{number:06}:once" if number % 2 else "again"
        fed.apply(Acquire(2, (name,)))
        fed.apply(Release(2, (name,), fed.machine.fence))
    assert fed.names.index is not None
    assert fed.names.index.size <= 4 * FEW_NAMES * 2 + 2_048
    assert await fed.all() == names_in_use(fed.machine.state)
    fed.apply(CloseSession(1))
    assert not fed.is_indexed()
    assert await fed.all() == []


async def test_a_page_of_stale_names_ends_with_a_cursor_and_drops_them() -> None:
    """It looks at so many, and then says where to go on; the next to come this way does not meet them again."""
    fed = Fed()
    fed.hold((f"a:{number:06}" for number in range(2 * LOOKED_MAX)), 1)
    fed.hold((f"b:{number:06}" for number in range(2 * LOOKED_MAX)), 2)
    await fed.page()
    fed.apply(CloseSession(1))
    index = fed.names.index
    assert index is not None
    page = await fed.page()
    assert page.names == []
    assert page.cursor.startswith("a:")
    assert index.looked <= LOOKED_MAX + 101
    assert await fed.all() == names_in_use(fed.machine.state)
    looked = index.looked
    assert (await fed.page(count=5)).names == [f"b:{number:06}" for number in range(5)]
    assert index.looked - looked <= 64 + 6


async def test_an_index_is_not_used_for_another_state() -> None:
    """Neither of another machine, nor after an entry that it was not told of."""
    one, other = Fed(), Fed()
    one.hold(f"one:{number}" for number in range(2 * FEW_NAMES))
    other.hold(f"other:{number}" for number in range(2 * FEW_NAMES))
    await one.page()
    one.machine = other.machine
    assert one.names.page(one.machine.state, "", "", 1) is None
    assert await one.all() == names_in_use(other.machine.state)
    one.machine.apply(one.machine.position + 1, Entry(0, (Acquire(2, ("untold",)),)))
    assert one.names.page(one.machine.state, "", "", 1) is None
    assert await one.all("un") == ["untold"]
    one.machine.apply(one.machine.position + 1, Entry(0, (Acquire(2, ("untold, too",)),)))
    one.apply(Acquire(2, ("told",)))
    assert one.names.index is None


async def test_who_waits_for_an_index_that_is_dropped_goes_on() -> None:
    """To find that it is to be asked for again, or that nobody leads here any more."""
    fed = Fed()
    fed.hold(f"{number:06}" for number in range(MANY))
    called = asyncio.Event()
    fed.names.prepare(fed.machine.state, called.set)
    fed.names.drop()
    await called.wait()
    assert fed.names.page(fed.machine.state, "", "", 1) is None


async def test_a_replica_feeds_it_and_drops_it_with_its_machine() -> None:
    """What is followed is known at once; a journal that is opened anew with another machine is another state."""
    journal = MemoryJournal(MemoryStore())
    replica = Replica(journal)
    await replica.open()
    epoch = await journal.lead()
    for position, name in enumerate(("b", "a"), 1):
        commands = (OpenSession(60_000), Acquire(position, (name,)))
        await journal.append(encode(Entry(0, commands)), epoch=epoch, position=Position(position))
    records = [record async for record in journal.read(after=Position(0))]
    replica.follow(records[0])
    assert replica.names.page(replica.machine.state, "", "", 9) == (["b"], "")
    replica.follow(records[1])
    assert replica.names.page(replica.machine.state, "", "", 9) == (["a", "b"], "")
    replica.lead()
    await journal.close()
    await replica.open()
    assert replica.names.index is None
    assert replica.names.page(replica.machine.state, "", "", 9) == (["a", "b"], "")
    assert epoch == Epoch(1)


async def test_sessions_with_nothing_are_counted_as_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred thousand idle sessions do not make one long slice."""
    fed = Fed(sessions=5 * SLICE_NAMES)
    fed.hold((f"{number:06}" for number in range(2 * FEW_NAMES)), 5 * SLICE_NAMES)
    taken: list[int] = []

    def counted(*given: object) -> Iterable[list[str]]:
        for portion in names_by_session(*given):  # type: ignore[arg-type]
            taken[-1] += 1
            yield portion

    monkeypatch.setattr(module, "names_by_session", counted)
    reading = asyncio.create_task(fed.page())
    while not reading.done():
        taken.append(0)
        await asyncio.sleep(0)
    assert len(reading.result().names) == 100
    assert max(taken) <= SLICE_NAMES
    assert sum(taken) > 5 * SLICE_NAMES


async def test_so_many_may_wait_for_an_index() -> None:
    """A flood of lists before it is made is known to be too much."""
    fed = Fed()
    fed.hold(str(number) for number in range(MANY))
    called: list[int] = []
    crowded = []
    for number in range(module.WAITING_MAX + 1):
        crowded.append(fed.names.is_crowded)
        fed.names.prepare(fed.machine.state, lambda one=number: called.append(one))  # type: ignore[misc]
    assert crowded == [False] * module.WAITING_MAX + [True]
    await fed.page()
    assert len(called) == module.WAITING_MAX + 1
    assert not fed.names.is_crowded
