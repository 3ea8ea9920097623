"""Lost answers, on a real ensemble: what an append says is true, whatever was lost and whoever came between."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from fencehold.engines.zookeeper import ZookeeperJournal
from fencehold.errors import OutcomeUnknown, OutOfPlace, Sealed, Unavailable
from fencehold.journal.port import Record
from fencehold.types import Epoch, Position
from tests.contract.engines.zookeeper import PATIENCE_S, ensemble, fresh_root, journal_at
from tests.contract.harness import entry, fill, opened, read_all, run
from tests.unit.engines.zookeeper.valve import Valve, behind, unlinked, valve

pytestmark = pytest.mark.slow


class Scene:
    """A leader behind a valve, who has appended five entries; and another handle, which has none."""

    def __init__(self, front: Valve, leader: ZookeeperJournal, other: ZookeeperJournal, epoch: Epoch) -> None:
        self.front, self.leader, self.other, self.epoch = front, leader, other, epoch
        self.newer = Epoch(0)

    async def append(self, position: int = 6) -> None:
        await self.leader.append(entry(position), epoch=self.epoch, position=Position(position))

    async def cut(self) -> None:
        self.front.shut()

    @contextmanager
    def impatient(self) -> Iterator[None]:
        """Meanwhile the leader gives up soon."""
        self.leader._append_timeout_s = 0.5
        yield
        self.leader._append_timeout_s = PATIENCE_S

    async def seal(self) -> None:
        self.newer = await self.other.lead()

    async def replace(self) -> None:
        """Another leader writes where the first one meant to."""
        await self.seal()
        await self.other.append(b"another's", epoch=self.newer, position=Position(6))

    async def read(self) -> list[Record]:
        return await read_all(self.other)


def on_stage(work: Callable[[Scene], Awaitable[None]]) -> None:
    ensemble()

    async def staged() -> None:
        root = fresh_root()
        async with valve() as front, behind(front, root) as leader, opened(journal_at(root)) as other:
            assert isinstance(other, ZookeeperJournal)
            epoch = await leader.lead()
            await fill(leader, epoch, range(1, 6))
            await work(Scene(front, leader, other, epoch))

    run(staged())


def five_and(scene: Scene, *more: Record) -> list[Record]:
    return [*(Record(Position(at), scene.epoch, entry(at)) for at in range(1, 6)), *more]


def ours(scene: Scene) -> Record:
    return Record(Position(6), scene.epoch, entry(6))


@pytest.mark.guarantee("G9")
def test_an_entry_whose_answer_was_lost_is_found_and_is_there_once() -> None:
    """The connection ends after the append was done: it is found to be there, and the next one follows."""

    async def work(scene: Scene) -> None:
        scene.front.lose_reply()
        await scene.append(6)
        await scene.append(7)
        assert await scene.read() == five_and(scene, ours(scene), Record(Position(7), scene.epoch, entry(7)))

    on_stage(work)


def test_an_append_that_never_arrived_is_repeated() -> None:
    """The connection ends before the append arrives: it is done by the next connection."""

    async def work(scene: Scene) -> None:
        scene.front.lose_request()
        await scene.append()
        assert await scene.read() == five_and(scene, ours(scene))

    on_stage(work)


def test_a_late_attempt_does_no_harm_beside_its_repetition() -> None:
    """What a slow connection delivers after all is not done a second time."""

    async def work(scene: Scene) -> None:
        scene.front.lose_request()
        await scene.append(6)
        scene.front.held()
        await scene.append(7)
        assert [record.position for record in await scene.read()] == list(range(1, 8))

    on_stage(work)


def test_an_answer_that_does_not_come_in_time_is_an_unknown_outcome() -> None:
    """With no way back in time, nobody knows; a new epoch and a look settle it."""

    async def work(scene: Scene) -> None:
        scene.front.lose_reply(meanwhile=scene.cut)
        with scene.impatient(), pytest.raises(OutcomeUnknown):
            await scene.append()
        await scene.front.lost.wait()
        await scene.seal()
        assert await scene.read() == five_and(scene, ours(scene))

    on_stage(work)


@pytest.mark.guarantee("G10")
def test_an_attempt_that_arrives_after_a_newer_leader_is_refused() -> None:
    """After an unknown outcome and a new epoch, the late attempt can no longer be done."""

    async def work(scene: Scene) -> None:
        scene.front.lose_request(meanwhile=scene.cut)
        with scene.impatient(), pytest.raises(OutcomeUnknown):
            await scene.append()
        await scene.front.lost.wait()
        await scene.replace()
        scene.front.held()
        await scene.other.append(entry(7), epoch=scene.newer, position=Position(7))
        found = await scene.read()
        assert [(record.epoch, record.entry) for record in found[5:]] == [
            (scene.newer, b"another's"),
            (scene.newer, entry(7)),
        ]

    on_stage(work)


def test_without_a_connection_an_append_is_certainly_absent() -> None:
    """What was never handed over is `Unavailable`, and so is an epoch; when the way is free, both go on."""

    async def work(scene: Scene) -> None:
        scene.front.shut()
        await unlinked(scene.leader)
        with scene.impatient(), pytest.raises(Unavailable):
            await scene.append()
        with scene.impatient(), pytest.raises(Unavailable):
            await scene.leader.lead()
        assert await scene.read() == five_and(scene)
        scene.front.is_open = True
        scene.epoch = await scene.leader.lead()
        await scene.append()
        assert (await scene.read())[-1] == ours(scene)

    on_stage(work)


def test_an_entry_that_landed_before_it_was_sealed_is_a_success() -> None:
    """The answer is lost, and a newer epoch is taken before the next attempt: the entry is there all the same."""

    async def work(scene: Scene) -> None:
        scene.front.lose_reply(meanwhile=scene.seal)
        await scene.append(6)
        with pytest.raises(Sealed):
            await scene.append(7)
        assert await scene.read() == five_and(scene, ours(scene))

    on_stage(work)


@pytest.mark.parametrize("replaced", [False, True])
def test_an_entry_that_was_sealed_before_it_landed_is_certainly_absent(replaced: bool) -> None:
    """The request is lost, and a newer epoch is taken before the next attempt: it says `Sealed`, and is right."""

    async def work(scene: Scene) -> None:
        scene.front.lose_request(meanwhile=scene.replace if replaced else scene.seal)
        with pytest.raises(Sealed):
            await scene.append()
        scene.front.held()
        theirs = [Record(Position(6), scene.newer, b"another's")] if replaced else []
        assert await scene.read() == five_and(scene, *theirs)

    on_stage(work)


def test_an_entry_that_may_have_been_trimmed_is_an_unknown_outcome() -> None:
    """The answer is lost, and a newer leader has made a snapshot and trimmed: nothing tells any more."""

    async def trimmed(scene: Scene) -> None:
        await scene.seal()
        await scene.other.append(entry(7), epoch=scene.newer, position=Position(7))
        await scene.other.save(Position(7), [b"seven"])
        await scene.other.trim()

    async def work(scene: Scene) -> None:
        scene.front.lose_reply(meanwhile=lambda: trimmed(scene))
        with pytest.raises(OutcomeUnknown):
            await scene.append()

    on_stage(work)


def test_a_place_that_fails_after_a_lost_attempt_is_an_unknown_outcome() -> None:
    """An attempt that was out of place and was lost may be in place when it arrives: nobody says it is absent."""

    async def work(scene: Scene) -> None:
        scene.front.lose_request()
        with pytest.raises(OutcomeUnknown):
            await scene.append(8)
        with pytest.raises(OutOfPlace):
            await scene.append(8)

    on_stage(work)


def test_an_epoch_whose_answer_was_lost_is_followed_by_a_newer_one() -> None:
    """`lead` returns an epoch that nobody else has, and that seals all others, whatever was lost."""

    async def work(scene: Scene) -> None:
        scene.front.lose_reply()
        newer = await scene.leader.lead()
        assert newer == scene.epoch + 2
        with pytest.raises(Sealed):
            await scene.append()
        await scene.leader.append(entry(6), epoch=newer, position=Position(6))
        scene.front.lose_reply()
        assert await scene.leader.lead(newer) == newer + 2
        await scene.seal()
        scene.front.lose_reply()
        with pytest.raises(Sealed) as sealed:
            await scene.leader.lead(newer)
        assert sealed.value.newest == scene.newer

    on_stage(work)


def test_an_epoch_that_may_have_been_taken_is_an_unknown_outcome() -> None:
    """With no way back in time, `lead` says that it does not know."""

    async def work(scene: Scene) -> None:
        scene.front.lose_reply(meanwhile=scene.cut)
        with scene.impatient(), pytest.raises(OutcomeUnknown):
            await scene.leader.lead()
        await scene.front.lost.wait()
        scene.front.is_open = True
        assert await scene.leader.lead() == scene.epoch + 2

    on_stage(work)


def test_a_snapshot_whose_answer_was_lost_stands() -> None:
    """The pointer is found to name the snapshot, and the next one replaces it."""

    async def work(scene: Scene) -> None:
        # The first transaction only asks how things are; the second sets the pointer.
        scene.front.lose_reply(skip=1)
        await scene.leader.save(Position(3), [b"three"])
        await scene.leader.save(Position(4), [b"four"])
        await scene.other.close()
        found = await scene.other.open()
        assert found.snapshot == (4, b"four")

    on_stage(work)


def test_reading_goes_on_after_lost_connections() -> None:
    """Reads are asked again on the next connection: nothing is skipped, and nothing comes twice."""

    async def work(scene: Scene) -> None:
        await fill(scene.leader, scene.epoch, range(6, 101))
        for kind in (4, 4, 8):
            scene.front.lose_reply(kind)
            assert [record.position for record in await read_all(scene.leader)] == list(range(1, 101))

    on_stage(work)
