"""Snapshots and trims, on a real ensemble: what is under way stays, what is needless goes, damage is named."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from fencehold.engines.zookeeper import ZookeeperJournal
from fencehold.errors import Damaged, Trimmed, Unavailable, UsageError
from fencehold.types import Epoch, Position
from tests.contract.engines.zookeeper import ensemble, fresh_root, journal_at
from tests.contract.harness import entry, fill, read_all, run
from tests.contract.test_tail import Follower
from tests.unit.engines.zookeeper.valve import until

pytestmark = pytest.mark.slow

PIECE = bytes(256 << 10)


class Scene:
    """Two handles on one journal, one of which leads; and a plain client that sees and breaks what it likes."""

    def __init__(self, root: str, plain: Any) -> None:
        self.root, self.plain = root, plain
        self.one, self.other = journal_at(root), journal_at(root)
        self.epoch = Epoch(0)

    async def children(self, path: str) -> list[str]:
        return await asyncio.to_thread(self._children, f"{self.root}/{path}")

    def _children(self, path: str) -> list[str]:
        # The server it asks may be behind the one that was written to.
        self.plain.sync(path)
        return sorted(self.plain.get_children(path))

    async def positions(self) -> list[int]:
        buckets = await self.children("entries")
        return [int(name) for bucket in buckets for name in await self.children(f"entries/{bucket}")]

    async def begun(self, count: int) -> None:
        """Wait until so many snapshots are there, or have been begun."""

        async def are_there() -> bool:
            return len(await self.children("snapshots")) == count

        await until(are_there)

    async def reopened(self) -> Any:
        journal = journal_at(self.root)
        found = await journal.open()
        await journal.close()
        return found


def on_stage(work: Callable[[Scene], Awaitable[None]], first: int = 1, last: int = 10) -> None:
    """A journal with these entries, and with a seed before them if they do not begin with 1."""

    async def staged(plain: Any) -> None:
        scene = Scene(fresh_root(), plain)
        await scene.one.open()
        await scene.other.open()
        try:
            if first > 1:
                await scene.one.seed(Position(first - 1), [b"seed"])
            scene.epoch = await scene.one.lead()
            await fill(scene.one, scene.epoch, range(first, last + 1))
            await work(scene)
        finally:
            await scene.one.close()
            await scene.other.close()

    plain = KazooClient(",".join(ensemble().endpoints))
    plain.start()
    try:
        run(staged(plain))
    finally:
        plain.stop()
        plain.close()


def held_up(first: list[bytes]) -> tuple[Iterator[bytes], Callable[[], None]]:
    """Chunks that do not end before they are let."""
    ended = False

    def chunks() -> Iterator[bytes]:
        yield from first
        while not ended:
            yield b""

    def end() -> None:
        nonlocal ended
        ended = True

    return chunks(), end


def test_a_trim_leaves_the_snapshot_and_the_entry_it_ends_with() -> None:
    """Entries below the snapshot go, their buckets and older snapshots with them; the rest stays."""

    async def work(scene: Scene) -> None:
        await scene.one.save(Position(995), [PIECE, PIECE, b"rest"])
        await scene.one.save(Position(1_005), [PIECE])
        await scene.other.trim()
        assert await scene.positions() == list(range(1_005, 1_011))
        assert len(await scene.children("entries")) == 1
        (name,) = await scene.children("snapshots")
        assert len(await scene.children(f"snapshots/{name}")) == 1
        await fill(scene.one, scene.epoch, [1_011])

    on_stage(work, first=990, last=1_010)


def test_a_snapshot_under_way_is_not_trimmed() -> None:
    """Another handle trims while a snapshot is being written: it is whole when it stands."""

    async def work(scene: Scene) -> None:
        await scene.one.save(Position(3), [b"three"])
        chunks, end = held_up([PIECE, b"end"])
        saving = asyncio.ensure_future(scene.one.save(Position(6), chunks))
        await scene.begun(2)
        await scene.other.trim()
        assert len(await scene.children("snapshots")) == 2
        end()
        await saving
        await scene.other.trim()
        assert len(await scene.children("snapshots")) == 1
        assert (await scene.reopened()).snapshot == (6, PIECE + b"end")

    on_stage(work)


def test_what_a_snapshot_that_was_given_up_left_behind_goes_with_the_next() -> None:
    """Pieces nobody points to are removed once a later snapshot stands."""

    async def work(scene: Scene) -> None:
        chunks, _ = held_up([PIECE, PIECE])
        saving = asyncio.ensure_future(scene.one.save(Position(6), chunks))
        await scene.begun(1)
        saving.cancel()
        await asyncio.gather(saving, return_exceptions=True)
        await scene.one.trim()
        assert len(await scene.children("snapshots")) == 1
        await scene.one.save(Position(6), [b"six"])
        await scene.one.trim()
        assert len(await scene.children("snapshots")) == 1
        assert (await scene.reopened()).snapshot == (6, b"six")

    on_stage(work)


@pytest.mark.parametrize(("theirs", "refusal"), [(5, Unavailable), (7, UsageError)])
def test_of_two_snapshots_at_once_the_first_stands(theirs: int, refusal: type[Exception]) -> None:
    """The later of two that were begun on the same state is refused, and says whether another try may help."""

    async def work(scene: Scene) -> None:
        chunks, end = held_up([b"six"])
        saving = asyncio.ensure_future(scene.one.save(Position(6), chunks))
        await scene.begun(1)
        await scene.other.save(Position(theirs), [b"theirs"])
        end()
        with pytest.raises(refusal):
            await saving
        assert (await scene.reopened()).snapshot == (theirs, b"theirs")

    on_stage(work)


def test_two_may_trim_at_once() -> None:
    """What one has removed the other does not miss."""

    async def work(scene: Scene) -> None:
        await scene.one.save(Position(1_200), [b"state"])
        await asyncio.gather(scene.one.trim(), scene.other.trim(), scene.one.trim())
        assert await scene.positions() == [1_200]
        assert [record async for record in scene.other.read(Position(1_200))] == []

    on_stage(work, first=801, last=1_200)


def test_opening_while_snapshots_are_replaced_finds_one_of_them_whole() -> None:
    """Whoever loads a snapshot that is replaced and trimmed meanwhile starts again with the newer one."""

    async def work(scene: Scene) -> None:
        async def replace() -> None:
            for position in range(1, 11):
                await scene.one.save(Position(position), [bytes([position]) * 600_000])
                await scene.one.trim()

        replacing = asyncio.ensure_future(replace())
        seen = []
        while not replacing.done():
            found = await scene.reopened()
            if found.snapshot is not None:
                assert found.snapshot.data == bytes([found.snapshot.position]) * 600_000
                seen.append(found.snapshot.position)
        await replacing
        assert seen == sorted(seen)

    on_stage(work)


def test_a_waiting_tail_is_told_of_a_trim_that_went_past_it() -> None:
    """A tail that was away while entries came and were trimmed says so; one at the end goes on."""

    async def work(scene: Scene) -> None:
        at_the_end = Follower(scene.other, after=10)
        await fill(scene.one, scene.epoch, [11])
        await at_the_end.until(1)
        await scene.one.save(Position(11), [b"eleven"])
        await scene.one.trim()
        with pytest.raises(Trimmed):
            await Follower(scene.other, after=5).task
        with pytest.raises(Trimmed):
            await read_all(scene.other, 9)
        assert [record.position for record in await read_all(scene.other, 10)] == [11]
        await fill(scene.one, scene.epoch, [12])
        await at_the_end.until(2)
        at_the_end.task.cancel()

    on_stage(work)


Breakage = Callable[[Any, str], Any]
BROKEN: dict[str, tuple[Breakage, str]] = {
    "pointer": (lambda plain, root: plain.set(f"{root}/snapshot", b"{"), "pointer"),
    "no pointer": (lambda plain, root: plain.delete(f"{root}/snapshot"), "pointer"),
    "chunk": (lambda plain, root: plain.set(f"{only(plain, root)}/000000", b"?"), "checksum"),
    "no chunk": (lambda plain, root: plain.delete(f"{only(plain, root)}/000000"), "chunk"),
    "no entries": (lambda plain, root: plain.delete(f"{root}/entries", recursive=True), "entries"),
}


def only(plain: Any, root: str) -> str:
    """The one snapshot there is."""
    (name,) = plain.get_children(f"{root}/snapshots")
    return f"{root}/snapshots/{name}"


@pytest.mark.parametrize("part", BROKEN)
def test_what_somebody_broke_is_named(part: str) -> None:
    """A journal whose nodes were changed by another hand does not open, and says where the damage is."""
    breaks, named = BROKEN[part]

    async def work(scene: Scene) -> None:
        await scene.one.save(Position(5), [b"five"])
        await scene.children("snapshots")
        await asyncio.to_thread(breaks, scene.plain, scene.root)
        with pytest.raises(Damaged, match=named):
            await scene.reopened()

    on_stage(work)


def test_an_entry_that_somebody_broke_is_named() -> None:
    """Bytes that are no entry are damage at that position, for readers and for tails."""

    async def work(scene: Scene) -> None:
        path = f"{scene.root}/entries/{0:013d}/{4:016d}"
        await asyncio.to_thread(scene.plain.set, path, b"?")
        for journal in (scene.one, scene.other):
            with pytest.raises(Damaged, match="position 4"):
                await read_all(journal)
        with pytest.raises(Damaged, match="position 4"):
            await Follower(scene.one).task

    on_stage(work)


def test_a_journal_that_was_removed_takes_nothing_more() -> None:
    """With its znodes gone, nothing is written, and every call says so with an error of ours."""

    async def work(scene: Scene) -> None:
        await scene.children("entries")
        await asyncio.to_thread(scene.plain.delete, scene.root, recursive=True)
        for call in (
            scene.one.append(entry(11), epoch=scene.epoch, position=Position(11)),
            scene.one.lead(),
            read_all(scene.one),
            scene.one.save(Position(5), [b"five"]),
            scene.one.trim(),
        ):
            with pytest.raises(Unavailable):
                await call
        found = await scene.reopened()
        assert (found.epoch, found.end) == (0, 0)

    on_stage(work)


def test_a_handle_says_where_it_is() -> None:
    """For messages: the servers and the root."""
    journal: ZookeeperJournal = journal_at("/somewhere")
    assert repr(journal) == f"ZookeeperJournal({ensemble().url('/somewhere')})"
