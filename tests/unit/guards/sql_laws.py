"""What every guard of a database keeps to, whatever the driver. The test modules bring a `place`."""

import itertools
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import fencehold
from fencehold import StaleFence, UsageError
from fencehold.guards import Offer
from fencehold.guards.offer import FENCE_MAX
from fencehold.locks.hold import Claiming
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant, Trust
from tests.unit.guards import amounts
from tests.unit.guards.sql_places import MARKS, Line, Place

WRITERS = 32
NAME = "wallet:1"


def offer(fence: int, name: str = NAME) -> Offer:
    return Offer(name, fence)


def balance(line: Line) -> int:
    found: int = line.value("SELECT balance FROM wallet WHERE id = 1")
    return found


def mark(line: Line, name: str = NAME) -> int | None:
    found: int | None = line.value(f"SELECT fence FROM {MARKS} WHERE name = '{name}'")
    return found


def write(line: Line, amount: int) -> None:
    line.rows(f"UPDATE wallet SET balance = {amount} WHERE id = 1")


def seen(place: Place, what: Callable[[Line], Any]) -> Any:
    """What another connection sees."""
    with place.lines(1) as (line,):
        found = what(line)
        line.rollback()
        return found


class GuardLaws:
    """The laws of guards, in SQL."""

    def test_the_holders_own_second_write_passes(self, place: Place) -> None:
        """A fence equal to the mark is the same holder's: it may write again, now or in the next transaction."""
        with place.lines(1) as (line,):
            line.enter(offer(7))
            line.check(offer(7))
            write(line, 90)
            line.commit()
            line.check(offer(7))
            write(line, 80)
            line.commit()
        assert seen(place, balance) == 80

    def test_a_fence_below_the_mark_is_refused_and_the_mark_told(self, place: Place) -> None:
        """The older one is told its name, its fence and the mark."""
        with place.lines(2) as (newer, older):
            newer.enter(offer(34))
            newer.commit()
            for ask in (older.enter, older.check):
                with pytest.raises(StaleFence) as refused:
                    ask(offer(33))
                older.rollback()
                assert (refused.value.name, refused.value.fence, refused.value.mark) == (NAME, 33, 34)
        assert seen(place, mark) == 34

    def test_a_late_write_of_the_old_holder_is_refused_once_the_new_one_has_entered(self, place: Place) -> None:
        """The new holder raises the mark, then reads: what it reads stays as it is until it writes."""
        with place.lines(2) as (old, new):
            new.enter(offer(34))
            read = balance(new)
            new.commit()
            with pytest.raises(StaleFence):
                old.check(offer(33))
            old.rollback()
            new.check(offer(34))
            write(new, read - 30)
            new.commit()
        assert seen(place, balance) == 70

    def test_without_entering_a_late_write_slips_in_between_and_is_lost(self, place: Place) -> None:
        """Read first, then check, and the old holder's write in between is overwritten: this is why one enters."""
        with place.lines(2) as (old, new):
            read = balance(new)
            new.rollback()
            old.check(offer(33))
            write(old, balance(old) - 5)
            old.commit()
            new.check(offer(34))
            write(new, read - 30)
            new.commit()
        assert seen(place, balance) == 70, "the 5 are lost, and nobody was told"

    def test_what_is_rolled_back_leaves_the_mark_as_it_was(self, place: Place) -> None:
        """The mark is raised with the write, or not at all."""
        with place.lines(2) as (first, second):
            first.check(offer(34))
            write(first, 1)
            first.rollback()
            second.check(offer(33))
            second.commit()
        assert (seen(place, balance), seen(place, mark)) == (100, 33)

    def test_a_guard_neither_commits_nor_rolls_back(self, place: Place) -> None:
        """What the caller wrote before a refusal is the caller's to roll back."""
        with place.lines(2) as (line, other):
            other.enter(offer(34))
            other.commit()
            write(line, 55)
            with pytest.raises(StaleFence):
                line.check(offer(33))
            assert balance(line) == 55
            assert seen(place, balance) == 100
            line.rollback()
            assert balance(line) == 100
            line.rollback()

    @pytest.mark.parametrize("level", ["weak", "strong"])
    def test_an_older_one_waits_for_a_newer_transaction_and_is_refused(self, place: Place, level: str) -> None:
        """Check and write are one step: who comes while a newer one writes is refused when that has committed."""
        isolation = getattr(place, level)
        with place.lines(2, isolation=isolation) as (newer, older), ThreadPoolExecutor(1) as threads:
            newer.enter(offer(34))
            write(newer, 70)
            outcome = threads.submit(_tried, place, older, 33)
            place.await_blocked()
            newer.commit()
            assert isinstance(outcome.result(30), StaleFence)
        assert seen(place, balance) == 70

    @pytest.mark.parametrize("level", ["weak", "strong"])
    def test_a_newer_one_waits_for_an_older_transaction_and_reads_what_it_wrote(
        self, place: Place, level: str
    ) -> None:
        """The row is locked until the end: the new holder never reads the state before an old one's last write."""
        isolation = getattr(place, level)
        with place.lines(2, isolation=isolation) as (older, newer), ThreadPoolExecutor(1) as threads:
            older.enter(offer(33))
            write(older, 60)
            outcome = threads.submit(_tried, place, newer, 34)
            place.await_blocked()
            older.commit()
            assert outcome.result(30) == 60
        assert seen(place, mark) == 34

    def test_one_hold_guards_several_names_each_by_a_mark_of_its_own(self, place: Place) -> None:
        """The fence of several names is raised for each; a name left out has not seen it."""
        with fencehold.connect("memory://") as client, place.lines(1) as (line,):
            with client.multi(["a", "b", "c"]) as hold:
                for name in ("a", "b"):
                    line.enter(hold, name)
                line.commit()
                with pytest.raises(UsageError, match="give name=, one of"):
                    line.enter(hold)
                line.rollback()
            assert [mark(line, name) for name in "abc"] == [hold.fence, hold.fence, None]
            line.rollback()

    def test_names_are_told_apart_to_the_byte(self, place: Place) -> None:
        """No collation takes two names for one."""
        names = ["straße", "strasse", "Strasse", "strasse ", "stràsse", "'; --", "%s", ":name", "☃", "n" * 512]
        with place.lines(1) as (line,):
            for fence, name in enumerate(names, 1):
                line.enter(offer(len(names) - fence + 1, name))
            line.commit()
            assert line.value(f"SELECT count(*) FROM {MARKS}") == len(names)
            line.rollback()

    def test_a_strict_guard_refuses_a_name_without_a_mark(self, place: Place) -> None:
        """Strict: names are registered, and a name that is not, or that is misspelt, is an error."""
        with place.lines(1, strict=True) as (line,):
            for ask in (line.enter, line.check):
                with pytest.raises(UsageError, match=f"{NAME}' has no mark"):
                    ask(offer(7))
                line.rollback()
            line.register(NAME, "another")
            line.register(NAME)
            line.commit()
            line.enter(offer(7))
            line.check(offer(7))
            line.register(NAME)
            line.commit()
            with pytest.raises(StaleFence) as refused:
                line.check(offer(6))
            line.rollback()
            assert refused.value.mark == 7

    def test_a_hold_is_guarded_and_a_claim_or_a_wrong_name_refused(self, place: Place) -> None:
        """Only the fence of that very name passes; a later hold shuts an earlier one out."""
        with fencehold.connect("memory://") as client, place.lines(1) as (line,):
            with client.lock(NAME) as first:
                line.enter(first)
                line.commit()
                with pytest.raises(UsageError, match="not of 'other'"):
                    line.enter(first, "other")
            with client.lock(NAME) as second:
                line.enter(second, NAME)
                line.commit()
                with pytest.raises(StaleFence):
                    line.check(first)
                line.rollback()
            with pytest.raises(UsageError, match="is a claim"):
                line.enter(_claim())  # type: ignore[arg-type]
            line.rollback()

    def test_a_connection_that_commits_each_statement_is_refused(self, place: Place) -> None:
        """Outside of a transaction a guard guards nothing: it says so, and raises no mark."""
        with place.lines(1, autocommit=True) as (line,):
            for ask in (line.enter, line.check):
                with pytest.raises(UsageError, match="in the transaction that writes"):
                    ask(offer(7))
            with pytest.raises(UsageError, match="in the transaction that writes"):
                line.update(offer(7), "balance = 1", "id = {id}", id=1)
        assert (seen(place, mark), seen(place, balance)) == (None, 100)

    def test_fences_are_kept_and_compared_with_64_bits(self, place: Place) -> None:
        """Where doubles cannot tell two fences apart, the guard can."""
        with place.lines(1) as (line,):
            for fence in (2**53, 2**53 + 1, FENCE_MAX):
                line.enter(offer(fence))
                with pytest.raises(StaleFence) as refused:
                    line.check(offer(fence - 1))
                assert refused.value.mark == fence
            line.commit()
        assert seen(place, mark) == FENCE_MAX

    def test_marks_restored_from_a_backup_are_raised_by_a_new_hold(self, place: Place) -> None:
        """A restore sets marks back, and an old holder passes again; raised to a new fence, all refuse it."""
        with place.lines(1) as (line,):
            line.enter(offer(30))
            line.enter(offer(60, "greater"))
            line.commit()
            # The mark was 34 since the backup was taken. Now the backup is restored, and it is 30.
            line.check(offer(33))
            line.rollback()
            line.raise_all(offer(50, "any"))
            line.commit()
            with pytest.raises(StaleFence):
                line.check(offer(33))
            line.rollback()
            assert (mark(line), mark(line, "greater")) == (50, 60)
            line.rollback()

    def test_a_row_with_a_fence_of_its_own_is_written_by_who_is_not_stale(self, place: Place) -> None:
        """The fence is written with the row; equal passes, smaller is refused and writes nothing."""
        with place.lines(1) as (line,):
            assert line.update(offer(7), "balance = balance - {less}", "id = {id}", less=10, id=1)
            assert line.update(offer(7), "balance = {is}", "id = {id}", **{"is": 90, "id": 1})
            assert line.update(offer(7), "balance = {is}", "id = {id}", **{"is": 90, "id": 1}), "nothing changes"
            line.commit()
            with pytest.raises(StaleFence) as refused:
                line.update(offer(6), "balance = 0", "id = {id}", id=1)
            line.rollback()
            assert refused.value.mark == 7
            assert line.rows("SELECT balance, fence FROM wallet") == [(90, 7)]
            line.rollback()

    def test_a_row_that_is_not_there_is_not_taken_for_stale(self, place: Place) -> None:
        """No such row is an answer of its own."""
        with place.lines(1) as (line,):
            assert line.update(offer(7), "balance = 0", "id = {id}", id=2) is False
            line.rollback()

    def test_a_rows_fence_is_raised_before_the_row_is_read(self, place: Place) -> None:
        """Entering, for a row: only its fence is written."""
        with place.lines(1) as (line,):
            assert line.update(offer(34), "", "id = {id}", id=1)
            assert line.rows("SELECT balance, fence FROM wallet") == [(100, 34)]
            line.commit()
            with pytest.raises(StaleFence):
                line.update(offer(33), "balance = 95", "id = {id}", id=1)
            line.rollback()

    def test_an_update_that_means_several_rows_is_refused(self, place: Place) -> None:
        """Some of them might be stale and others not: several rows have one mark instead."""
        with place.lines(1) as (line,):
            line.rows("INSERT INTO wallet VALUES (2, 100, 0)")
            line.commit()
            with pytest.raises(UsageError, match="2 rows"):
                line.update(offer(7), "balance = 0", "balance = {all}", all=100)
            line.rollback()
        assert seen(place, balance) == 100

    @pytest.mark.slow
    def test_32_writers_with_shuffled_fences_never_go_back_and_lose_nothing(
        self, place: Place, writes: int
    ) -> None:
        """What was accepted is all there, in the order of the fences."""
        fences = _shuffled(writes)
        turns, lock = iter(fences), threading.Lock()

        def work(line: Line) -> int:
            accepted = 0
            while True:
                with lock:
                    fence = next(turns, 0)
                if not fence:
                    return accepted
                accepted += _logged(place, line, fence)

        with place.lines(WRITERS) as lines, ThreadPoolExecutor(WRITERS) as threads:
            accepted = sum(threads.map(work, lines))
        log = [fence for (fence,) in seen(place, lambda line: line.rows("SELECT fence FROM log ORDER BY seq"))]
        assert all(earlier <= later for earlier, later in itertools.pairwise(log))
        assert (len(log), seen(place, balance) - 100) == (accepted, accepted)
        assert log[-1] == max(fences) == seen(place, mark)
        assert writes // 20 < accepted < writes, "some are refused, and many are not"


def _claim() -> Claiming:
    grant = Grant(Terms((NAME,)), 0, Trust(1, 1))
    grant.lose("over")
    return Claiming(grant)


def _tried(place: Place, line: Line, fence: int) -> Any:
    """Enter and read, as often as the database asks for; returns what was read, or the refusal."""
    for _ in range(100):
        try:
            line.enter(offer(fence))
            found = balance(line)
            line.commit()
            return found
        except StaleFence as refused:
            line.rollback()
            return refused
        except Exception as error:
            line.rollback()
            if not place.is_conflict(error):
                raise
    return None


def _logged(place: Place, line: Line, fence: int) -> bool:
    """Read, write and log under a fence; returns whether it was accepted."""
    while True:
        try:
            line.check(offer(fence))
            write(line, balance(line) + 1)
            line.rows(f"INSERT INTO log (fence) VALUES ({fence})")
            line.commit()
            return True
        except StaleFence:
            line.rollback()
            return False
        except Exception as error:
            line.rollback()
            if not place.is_conflict(error):
                raise


def _shuffled(writes: int) -> list[int]:
    """Fences that grow on the whole, each for several writes, and out of order among neighbours."""
    lots = random.Random(34)
    return sorted((number // 4 + 1 for number in range(writes)), key=lambda fence: fence + lots.uniform(0, 12))


class ServedLaws(GuardLaws):
    """The laws on a `server` that the test module has: by the driver that blocks."""

    @pytest.fixture
    def place(self, server: Place) -> Place:
        server.prepare()
        return server

    @pytest.fixture
    def writes(self) -> int:
        return amounts.writes(10_000)


class AwaitedLaws(GuardLaws):
    """The same by the driver that is awaited, of a server with an `awaited_line`."""

    @pytest.fixture
    def place(self, server: Any, monkeypatch: pytest.MonkeyPatch) -> Place:
        monkeypatch.setattr(server, "line", server.awaited_line)
        server.prepare()
        found: Place = server
        return found

    @pytest.fixture
    def writes(self) -> int:
        return amounts.writes(1_000)
