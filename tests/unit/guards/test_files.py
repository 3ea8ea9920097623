"""The guard in front of files."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import fencehold
from fencehold.errors import Damaged, LimitExceeded, OutcomeUnknown, StaleFence, Unavailable, UsageError
from fencehold.guards import Offer
from fencehold.guards.files import AsyncGuard, Guard
from fencehold.guards.files_note import Note, decode
from fencehold.guards.files_place import Place
from fencehold.locks.hold import Claiming
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant, Trust

NAME = "prices"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "prices.json"


@pytest.fixture
def guard() -> Guard:
    return Guard()


def offer(fence: int) -> Offer:
    return Offer(NAME, fence)


def note(path: Path) -> Note:
    place = Place(path).note
    return decode(place.read_bytes(), str(place))


def claim() -> Claiming:
    grant = Grant(Terms((NAME,)), 0, Trust(1, 1))
    grant.lose("over")
    return Claiming(grant)


@contextmanager
def someone_writing(path: Path) -> Iterator[None]:
    with Place(path).locked(offer(1), strict=False, timeout_s=5):
        yield


def test_files_are_replaced_and_read(guard: Guard, path: Path) -> None:
    """Nothing is left beside it but the note."""
    guard.replace(path, b"one", offer(5))
    assert (path.read_bytes(), guard.read(path, offer(5)), note(path)) == (b"one", b"one", Note(NAME, 5))
    guard.replace(path, b"two", offer(6))
    assert (path.read_bytes(), note(path).mark) == (b"two", 6)
    assert sorted(os.listdir(path.parent)) == [".prices.json.fence", "prices.json"]


def test_records_are_appended(guard: Guard, path: Path) -> None:
    """To a file that is there or not, before and after it is replaced."""
    guard.append(path, b"a\n", offer(5))
    guard.append(path, b"b\n", offer(5))
    guard.append(path, b"", offer(6))
    assert (path.read_bytes(), note(path)) == (b"a\nb\n", Note(NAME, 6))
    guard.replace(path, b"c\n", offer(6))
    guard.append(path, b"d\n", offer(7))
    assert guard.read(path, offer(7)) == b"c\nd\n"


def test_a_holder_writes_twice_and_a_stale_one_never(guard: Guard, path: Path) -> None:
    """An equal fence is the same holder's; a smaller one is refused with all that is known, and writes nothing."""
    guard.replace(path, b"one", offer(34))
    guard.replace(path, b"two", offer(34))
    for call in (
        lambda: guard.replace(path, b"stale", offer(33)),
        lambda: guard.append(path, b"stale", offer(33)),
        lambda: guard.enter(path, offer(33)),
        lambda: guard.check(path, offer(33)),
        lambda: guard.read(path, offer(33)),
    ):
        with pytest.raises(StaleFence) as refused:
            call()
        assert (refused.value.name, refused.value.fence, refused.value.mark) == (NAME, 33, 34)
    assert path.read_bytes() == b"two"
    assert sorted(os.listdir(path.parent)) == [".prices.json.fence", "prices.json"]


def test_without_enter_an_old_write_slips_in_between(guard: Guard, path: Path) -> None:
    """The gap: 34 has read already, and 33's write, on its way since before, is still accepted."""
    path.write_bytes(b"old")
    seen = path.read_bytes()
    guard.replace(path, b"late", offer(33))
    assert path.read_bytes() != seen


@pytest.mark.parametrize("verb", ["enter", "read"])
def test_after_enter_what_was_read_stays_true(guard: Guard, path: Path, verb: str) -> None:
    """34 raises the mark before it reads: 33's late write is refused."""
    path.write_bytes(b"old")
    getattr(guard, verb)(path, offer(34))
    seen = path.read_bytes()
    for write in (guard.replace, guard.append):
        with pytest.raises(StaleFence):
            write(path, b"late", offer(33))
    assert path.read_bytes() == seen


def test_what_is_not_there_can_be_entered(guard: Guard, path: Path) -> None:
    """The mark comes before the file."""
    with pytest.raises(FileNotFoundError):
        guard.read(path, offer(34))
    with pytest.raises(StaleFence):
        guard.replace(path, b"late", offer(33))
    assert not path.exists()


def test_a_strict_guard_knows_its_files(path: Path) -> None:
    """A file without a mark is an error until it is registered; to register it again changes nothing."""
    strict = Guard(strict=True)
    with pytest.raises(UsageError, match="has no mark"):
        strict.replace(path, b"one", offer(5))
    assert os.listdir(path.parent) == []
    strict.register(path, NAME)
    strict.replace(path, b"one", offer(5))
    strict.register(path, NAME)
    assert note(path).mark == 5
    with pytest.raises(UsageError, match="already"):
        strict.register(path, "other")


def test_a_file_is_guarded_by_the_fences_of_one_name(guard: Guard, path: Path) -> None:
    """Those of another may be greater, and say nothing."""
    guard.replace(path, b"one", offer(5))
    with pytest.raises(UsageError, match="not of 'other'"):
        guard.replace(path, b"two", Offer("other", 99))
    assert (path.read_bytes(), note(path).mark) == (b"one", 5)


@pytest.mark.parametrize("wrong", [Offer(NAME, 0), Offer(NAME, 2**63), Offer("", 5), None, 5, NAME])
def test_what_is_no_fence_is_refused(guard: Guard, path: Path, wrong: Offer) -> None:
    """Never silently, and before anything is touched."""
    for write in (guard.replace, guard.append):
        with pytest.raises(UsageError):
            write(path, b"one", wrong)
    assert os.listdir(path.parent) == []


def test_real_holds_are_taken_and_claims_are_not(guard: Guard, path: Path) -> None:
    """The next holder has a greater fence; a claim has none."""
    with fencehold.connect("memory://") as client:
        with client.lock(NAME) as first:
            guard.replace(path, b"first", first)
        with client.lock(NAME) as second:
            guard.replace(path, b"second", second)
        with pytest.raises(StaleFence):
            guard.replace(path, b"late", first)
        with client.multi(["a", NAME]) as several:
            guard.replace(path, b"third", several, NAME)
    with pytest.raises(UsageError, match="is a claim"):
        guard.replace(path, b"late", claim())  # type: ignore[arg-type]
    assert path.read_bytes() == b"third"


@pytest.mark.parametrize("damage", ["", "torn", "flipped", "longer", "other"])
def test_a_note_that_is_not_whole_is_never_taken_for_none(guard: Guard, path: Path, damage: str) -> None:
    """Which fences were seen is not known any more: nobody writes before an operator has decided."""
    guard.replace(path, b"one", offer(34))
    beside = Place(path).note
    text = beside.read_bytes()
    torn = {"": b"", "torn": text[:60], "flipped": text.replace(b"34 ", b"33 "), "longer": text + b"\n"}
    beside.write_bytes(torn.get(damage, b"something else\n"))
    with pytest.raises(Damaged, match=r"\.prices\.json\.fence"):
        guard.replace(path, b"two", offer(35))
    with pytest.raises(Damaged):
        guard.enter(path, offer(35))
    assert path.read_bytes() == b"one"


@pytest.mark.parametrize("kept", [0, 1, 5])
def test_an_append_that_was_interrupted_is_taken_back(guard: Guard, path: Path, kept: int) -> None:
    """Whoever comes next sees none of it."""
    guard.append(path, b"whole\n", offer(5))
    with Place(path).locked(offer(5), strict=True, timeout_s=5) as owned:
        owned.put(owned.note.appending(6, b"broken\n"))
        with path.open("ab") as file:
            file.write(b"broken\n"[:kept])
    assert guard.read(path, offer(5)) == b"whole\n"
    assert note(path).length == 0


def test_an_append_that_was_done_but_not_noted_stays(guard: Guard, path: Path) -> None:
    """All of it is there: it may have been answered."""
    guard.append(path, b"whole\n", offer(5))
    with Place(path).locked(offer(5), strict=True, timeout_s=5) as owned:
        owned.put(owned.note.appending(6, b"second\n"))
        with path.open("ab") as file:
            file.write(b"second\n")
    assert guard.read(path, offer(5)) == b"whole\nsecond\n"


def test_what_others_did_to_the_file_is_left_alone(guard: Guard, path: Path) -> None:
    """Only what an interrupted append has left is taken back."""
    guard.append(path, b"whole\n", offer(5))
    path.write_bytes(b"edited by hand")
    guard.append(path, b"!", offer(5))
    assert path.read_bytes() == b"edited by hand!"


def test_a_full_disk_leaves_everything_as_it_was(
    guard: Guard, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of it was written, and is taken back; nothing lies about."""
    guard.append(path, b"whole\n", offer(5))
    write = os.write

    def half(fd: int, data: memoryview) -> int:
        if len(data) < 4:
            raise OSError(28, "No space left on device")
        return write(fd, data[:4])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space"):
            guard.append(path, b"second\n", offer(6))
        with pytest.raises(OSError, match="No space"):
            guard.replace(path, b"second\n", offer(6))
    assert path.read_bytes() == b"whole\n"
    assert sorted(os.listdir(path.parent)) == [".prices.json.fence", "prices.json"]
    guard.append(path, b"third\n", offer(6))
    assert path.read_bytes() == b"whole\nthird\n"


def test_a_folder_that_cannot_be_synced_leaves_it_open(
    guard: Guard, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file was replaced; whether it is after a power failure is not known."""
    guard.replace(path, b"one", offer(5))

    def failing(self: Place) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Place, "sync_names", failing)
    with pytest.raises(OutcomeUnknown):
        guard.replace(path, b"two", offer(5))


def test_the_mark_is_durable_before_what_it_admits(
    guard: Guard, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash between the two leaves a mark that is raised, and the file as it was."""
    guard.replace(path, b"one", offer(5))

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            guard.replace(path, b"two", offer(6))
    assert (path.read_bytes(), note(path).mark) == (b"one", 6)
    with pytest.raises(StaleFence):
        guard.replace(path, b"late", offer(5))


def test_waiting_for_others_is_bounded(path: Path) -> None:
    """Then certainly nothing happened."""
    with someone_writing(path), pytest.raises(Unavailable):
        Guard(timeout=0.05).replace(path, b"one", offer(5))
    assert not path.exists()


def test_sizes_are_bounded(path: Path) -> None:
    """Of what is written, and of what is read."""
    small = Guard(size_max=4)
    small.replace(path, b"1234", offer(5))
    for write in (small.replace, small.append):
        with pytest.raises(LimitExceeded):
            write(path, b"12345", offer(5))
    small.append(path, b"5", offer(5))
    with pytest.raises(LimitExceeded):
        small.read(path, offer(5))


def test_a_link_and_its_target_are_one_file(guard: Guard, path: Path, tmp_path: Path) -> None:
    """They have one mark; the link stays one, and permissions stay."""
    path.write_bytes(b"one")
    path.chmod(0o640)
    link = tmp_path / "link"
    link.symlink_to(path)
    guard.replace(link, b"two", offer(34))
    assert (link.is_symlink(), path.read_bytes(), path.stat().st_mode & 0o777) == (True, b"two", 0o640)
    with pytest.raises(StaleFence):
        guard.replace(path, b"late", offer(33))


def test_a_note_that_is_removed_while_somebody_waits_locks_nobody_out(path: Path) -> None:
    """Who waited has the lock of a file that is not there any more, and looks again."""
    entered = threading.Thread(target=lambda: Guard().enter(path, offer(7)))
    with someone_writing(path):
        entered.start()
        Place(path).note.unlink()
    entered.join()
    assert note(path).mark == 7


async def test_on_a_loop_it_is_the_same(path: Path) -> None:
    """One file, one mark, whoever asks."""
    guard = AsyncGuard(strict=True)
    with pytest.raises(UsageError, match="has no mark"):
        await guard.enter(path, offer(4))
    await guard.register(path, NAME)
    await guard.enter(path, offer(4))
    await guard.replace(path, b"five", offer(5))
    await guard.append(path, b"!", offer(5))
    await guard.check(path, offer(5))
    assert await guard.read(path, offer(5)) == b"five!"
    with pytest.raises(StaleFence):
        await guard.replace(path, b"four", offer(4))


async def test_a_cancelled_call_leaves_nothing_running(path: Path) -> None:
    """When its caller goes on, the write is done, or never will be."""
    guard = AsyncGuard()
    with someone_writing(path):
        task = asyncio.create_task(guard.replace(path, b"one", offer(5)))
        await asyncio.sleep(0)
        task.cancel()
        # The lock is given back by a thread: the loop waits for the call's own, which waits for the lock.
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(path.read_bytes) == b"one"
