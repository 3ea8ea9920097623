"""The guard for Postgres, by psycopg, blocking and awaited."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from fencehold import StaleFence, UsageError
from fencehold.guards import psycopg as guards
from tests.unit.guards.sql_laws import AwaitedLaws, ServedLaws, balance, mark, offer, seen
from tests.unit.guards.sql_places import AwaitedLine, Line, Place, PostgresPlace, Updating

# Nothing here outlives the server: commits need not wait for the disk.
OPTIONS = "-c synchronous_commit=off -c default_transaction_isolation={}"


def options(isolation: str) -> str:
    return OPTIONS.format((isolation or "read committed").lower().replace(" ", r"\ "))


class BlockingLine(Updating, Line):
    def update(self, hold: Any, sets: str, where: str, **values: Any) -> bool:
        return guards.fenced_update(self.connection, hold, "wallet", **self.arguments(sets, where, values))


class AsyncLine(Updating, AwaitedLine):
    def update(self, hold: Any, sets: str, where: str, **values: Any) -> bool:
        given = self.arguments(sets, where, values)
        return self.run(guards.async_fenced_update(self.connection, hold, "wallet", **given))

    async def fetched(self, sql: str) -> list[tuple[Any, ...]]:
        cursor = await self.connection.execute(sql)
        return await cursor.fetchall() if cursor.description else []


class BlockingPlace(PostgresPlace):
    def line(self, *, strict: bool = False, autocommit: bool = False, isolation: str = "") -> Line:
        connection = psycopg.connect(self.url, autocommit=autocommit, options=options(isolation))
        return BlockingLine(connection, guards.Guard(strict=strict))

    def awaited_line(self, *, strict: bool = False, autocommit: bool = False, isolation: str = "") -> Line:
        async def connect() -> Any:
            return await psycopg.AsyncConnection.connect(
                self.url, autocommit=autocommit, options=options(isolation)
            )

        return AsyncLine(connect, guards.AsyncGuard(strict=strict))

    def prepare(self) -> None:
        super().prepare()
        with self.lines(1) as (line,):
            line.create()
            line.commit()


@pytest.fixture(scope="module")
def server() -> Iterator[BlockingPlace]:
    with closing(BlockingPlace()) as place:
        yield place


class TestBlocking(ServedLaws):
    """By a connection that blocks."""


class TestAsync(AwaitedLaws):
    """By one that is awaited."""


@pytest.fixture
def place(server: BlockingPlace) -> Place:
    server.prepare()
    return server


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_who_has_read_an_older_state_is_told_to_try_again(place: Place, isolation: str) -> None:
    """A mark raised since the snapshot is a serialization failure and no StaleFence, also for a newer fence."""
    with place.lines(2, isolation=isolation) as (late, other):
        balance(late)
        other.enter(offer(33))
        other.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            late.enter(offer(34))
        late.rollback()
        late.enter(offer(34))
        late.rollback()


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_mark_that_stays_the_same_is_written_all_the_same(place: Place, isolation: str) -> None:
    """Of two transactions of one holder, that with the older snapshot is told to try again."""
    with place.lines(2, isolation=isolation) as (late, other):
        other.enter(offer(33))
        other.commit()
        balance(late)
        other.check(offer(33))
        other.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            late.check(offer(33))
        late.rollback()


def test_a_deadlock_is_the_drivers_own_error(place: Place) -> None:
    """Two that enter the same names in another order: one is told, and it is no StaleFence."""
    with place.lines(2) as (one, two), ThreadPoolExecutor(1) as threads:
        one.enter(offer(7, "a"))
        two.enter(offer(8, "b"))
        outcome = threads.submit(_error_of, one, "b", 9)
        place.await_blocked()
        errors = [_error_of(two, "a", 10), outcome.result(30)]
        assert [type(error) for error in errors if error] == [psycopg.errors.DeadlockDetected]


def _error_of(line: Line, name: str, fence: int) -> Exception | None:
    try:
        line.enter(offer(fence, name))
        line.rollback()
    except psycopg.Error as error:
        line.rollback()
        return error
    return None


def test_a_transaction_block_on_an_autocommit_connection_is_a_transaction(place: Place) -> None:
    """What counts is the transaction, and not how it was begun."""
    with place.lines(1, autocommit=True) as (line,):
        with line.connection.transaction():
            line.enter(offer(7))
        assert mark(line) == 7


def test_a_pipeline_without_a_transaction_is_refused(place: Place) -> None:
    """Each of its statements may be a transaction of its own."""
    with place.lines(1, autocommit=True) as (line,), line.connection.pipeline():
        line.connection.execute("SELECT 1")
        with pytest.raises(UsageError, match="in the transaction that writes"):
            line.enter(offer(7))


def test_a_pipeline_in_a_transaction_is_guarded(place: Place) -> None:
    """A guard waits for its own answer, in a pipeline, too."""
    with place.lines(1) as (line,):
        with line.connection.pipeline():
            line.enter(offer(7))
            line.connection.execute("UPDATE wallet SET balance = 1")
            with pytest.raises(StaleFence):
                line.check(offer(6))
        line.commit()
    assert seen(place, balance) == 1


def test_an_update_in_a_pipeline_is_told_what_became_of_it(place: Place) -> None:
    """It asks at once: what was not asked yet must not be taken for a row that is not there."""
    with place.lines(1) as (line,):
        with line.connection.pipeline():
            where = {"set": "balance = 1", "where": "id = %(id)s"}
            assert guards.fenced_update(line.connection, offer(7), "wallet", **where, values={"id": 1})
            assert not guards.fenced_update(line.connection, offer(7), "wallet", **where, values={"id": 99})
            with pytest.raises(StaleFence):
                guards.fenced_update(line.connection, offer(6), "wallet", **where, values={"id": 1})
        line.commit()
    assert seen(place, balance) == 1


def test_any_row_factory_and_cursor_will_do(server: BlockingPlace, place: Place) -> None:
    """The guard reads its own rows by its own cursor."""
    connection = psycopg.connect(server.url, row_factory=dict_row, cursor_factory=psycopg.RawCursor)
    guard = guards.Guard()
    guard.enter(connection, offer(7))
    with pytest.raises(StaleFence):
        guard.check(connection, offer(6))
    connection.close()


def test_a_lock_timeout_is_the_drivers_own_error(place: Place) -> None:
    """The wait for an older transaction is bounded by the caller, and its end says nothing about the fence."""
    with place.lines(2) as (older, newer):
        older.enter(offer(33))
        newer.rows("SET LOCAL lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            newer.enter(offer(34))
        newer.rollback()
        older.rollback()


def test_each_guard_takes_its_own_kind_of_connection(place: Place) -> None:
    """A connection that is awaited is not for `Guard`."""
    with pytest.raises(UsageError, match=r"psycopg\.Connection"):
        guards.Guard().enter(object(), offer(7))  # type: ignore[arg-type]


def test_a_table_may_be_in_a_schema(server: BlockingPlace, place: Place) -> None:
    """The table is made, and used, where it is said to be."""
    guard = guards.Guard("public.other_marks", strict=True)
    with psycopg.connect(server.url) as connection:
        guard.create(connection)
        guard.register(connection, "wallet:1")
        guard.enter(connection, offer(7))
        assert connection.execute("SELECT * FROM other_marks").fetchall() == [("wallet:1", 7)]
    connection.close()


def test_a_column_that_keeps_less_than_the_fence_is_not_trusted(server: BlockingPlace, place: Place) -> None:
    """A table of one's own that cuts fences off is found out."""
    server.server.sql(
        "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.fence := least(NEW.fence, 9); RETURN NEW; END $$;"
        "CREATE TRIGGER cut BEFORE INSERT OR UPDATE ON fencehold_fences FOR EACH ROW EXECUTE FUNCTION cut()"
    )
    with place.lines(1) as (line,):
        with pytest.raises(UsageError, match="has kept 9 of the fence 10"):
            line.enter(offer(10))
        line.rollback()
    server.server.sql("DROP FUNCTION cut CASCADE")
