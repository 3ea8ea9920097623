"""Sessions of SQLAlchemy that are guarded as a whole."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import BigInteger, create_engine, event, select, text, update
from sqlalchemy.engine import Engine
from sqlalchemy.exc import PendingRollbackError
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

import fencehold
from fencehold import StaleFence, UsageError
from fencehold.guards.sqlalchemy import Guard, guard_session
from tests.unit.guards.sql_laws import NAME, offer


class Base(DeclarativeBase):
    pass


class Wallet(Base):
    __tablename__ = "wallet"
    id: Mapped[int] = mapped_column(primary_key=True)
    balance: Mapped[int] = mapped_column(BigInteger)


def url_of(tmp_path: Path) -> str:
    return f"/{tmp_path}/app.db"


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite://{url_of(tmp_path)}", poolclass=NullPool, connect_args={"timeout": 0.1})
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        Guard().create(session)
        session.add(Wallet(id=1, balance=100))
        session.commit()
    yield engine
    engine.dispose()


@pytest.fixture
def statements(engine: Engine) -> list[str]:
    """The first words of all that is executed."""
    said: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *given: said.append(" ".join(given[2].split()[:3])))
    return said


def mark(engine: Engine) -> int | None:
    with engine.connect() as connection:
        found: int | None = connection.execute(text("SELECT fence FROM fencehold_fences")).scalar()
        return found


def balance(engine: Engine) -> int:
    with Session(engine) as session:
        return session.get_one(Wallet, 1).balance


def raised(engine: Engine, fence: int) -> None:
    with engine.begin() as connection:
        Guard().enter(connection, offer(fence))


def test_each_transaction_enters_before_its_first_statement(engine: Engine, statements: list[str]) -> None:
    """The mark is raised before anything is read; a new transaction of the session raises it again."""
    with Session(engine) as session, guard_session(session, offer(34)):
        for _ in range(2):
            session.get_one(Wallet, 1)
            session.rollback()
    assert [words.partition(" ")[0] for words in statements] == ["INSERT", "SELECT"] * 2


def test_what_is_flushed_and_committed_is_checked(engine: Engine, statements: list[str]) -> None:
    """Once when it begins, once before the flush; a commit that has nothing to flush checks by itself."""
    with Session(engine) as session, guard_session(session, offer(34)):
        session.get_one(Wallet, 1).balance = 70
        session.commit()
        session.execute(update(Wallet).values(balance=60))
        session.commit()
    verbs = [words.partition(" ")[0] for words in statements]
    assert verbs == ["INSERT", "SELECT", "INSERT", "UPDATE", "INSERT", "UPDATE", "INSERT"]
    assert (balance(engine), mark(engine)) == (60, 34)


def test_a_stale_session_reads_nothing_and_writes_nothing(engine: Engine) -> None:
    """It is refused before its first statement, and again, until it is rolled back."""
    raised(engine, 34)
    with Session(engine) as session, guard_session(session, offer(33)):
        with pytest.raises(StaleFence):
            session.get_one(Wallet, 1)
        for again in (session.commit, lambda: session.execute(select(Wallet)), lambda: session.get(Wallet, 1)):
            with pytest.raises(StaleFence):
                again()
        session.rollback()
        session.add(Wallet(id=2, balance=1))
        with pytest.raises(StaleFence):
            session.flush()
        with pytest.raises(PendingRollbackError, match="is stale"):
            session.commit()
        session.rollback()
    assert (balance(engine), mark(engine)) == (100, 34)


def test_a_with_block_of_a_stale_session_is_rolled_back(engine: Engine) -> None:
    """The usual form needs nothing more; also where statements go past the session to its connection."""

    def work() -> None:
        with Session(engine) as session, session.begin():
            guard_session(session, offer(33))
            with contextlib.suppress(StaleFence):
                session.connection()
            session.connection().execute(text("UPDATE wallet SET balance = 0"))

    raised(engine, 34)
    with pytest.raises(StaleFence):
        work()
    assert balance(engine) == 100


def test_a_transaction_that_ended_below_the_session_is_found_out(engine: Engine) -> None:
    """What lets go of the mark's lock, as DDL does in MySQL, is followed by another check before the commit."""
    with Session(engine) as session, guard_session(session, offer(33)):
        session.get_one(Wallet, 1)
        session.connection().connection.driver_connection.commit()  # type: ignore[union-attr]
        raised(engine, 34)
        session.execute(update(Wallet).values(balance=0))
        with pytest.raises(StaleFence):
            session.commit()
        session.rollback()
    assert balance(engine) == 100


def test_savepoints_are_part_of_what_was_entered(engine: Engine) -> None:
    """A savepoint that is rolled back takes the mark with it no more than the first write."""
    with Session(engine) as session, guard_session(session, offer(34)):
        with session.begin_nested() as savepoint:
            session.execute(update(Wallet).values(balance=1))
            savepoint.rollback()
        session.execute(update(Wallet).values(balance=70))
        session.commit()
    assert (balance(engine), mark(engine)) == (70, 34)


def test_a_transaction_without_a_statement_asks_nothing(engine: Engine, statements: list[str]) -> None:
    """What is neither read nor written needs no guard."""
    with Session(engine) as session, guard_session(session, offer(34)):
        session.begin()
        session.commit()
    assert statements == []


def test_the_guard_ends_when_it_is_told(engine: Engine) -> None:
    """At the end of its `with`, or by `end`, which may be repeated."""
    raised(engine, 34)
    with Session(engine) as session:
        guarded = guard_session(session, offer(33))
        guarded.end()
        guarded.end()
        assert session.get_one(Wallet, 1).balance == 100


def test_a_session_that_has_read_is_refused(engine: Engine) -> None:
    """What it has read before the mark is raised would not be guarded."""
    with Session(engine) as session:
        session.get_one(Wallet, 1)
        with pytest.raises(UsageError, match="before its first statement"):
            guard_session(session, offer(34))
        session.rollback()
        guard_session(session, offer(34)).end()


@pytest.mark.parametrize("wrong", [object(), None])
def test_what_is_no_session_or_no_hold_is_refused(engine: Engine, wrong: Any) -> None:
    """At once, and not at the first statement."""
    with pytest.raises(UsageError, match="takes a Session"):
        guard_session(wrong, offer(34))
    with Session(engine) as session, pytest.raises(UsageError, match="takes a hold"):
        guard_session(session, wrong)


def test_a_strict_guard_may_be_given(engine: Engine) -> None:
    """The table and how strict it is are the guard's."""
    with Session(engine) as session, guard_session(session, offer(34), guard=Guard(strict=True)):
        with pytest.raises(UsageError, match="has no mark"):
            session.get(Wallet, 1)
        session.rollback()


async def test_an_awaited_session_is_guarded_by_a_real_hold(engine: Engine, tmp_path: Path) -> None:
    """The later holder's session shuts out the earlier one's."""
    later = create_async_engine(f"sqlite+aiosqlite://{url_of(tmp_path)}", poolclass=NullPool)
    async with fencehold.aio.connect("memory://") as client:
        async with client.lock(NAME) as first:
            pass
        async with client.lock(NAME) as second, AsyncSession(later) as session, session.begin():
            guard_session(session, second)
            (await session.get_one(Wallet, 1)).balance -= 30
        async with AsyncSession(later) as session:
            guard_session(session, first)
            with pytest.raises(StaleFence):
                await session.get(Wallet, 1)
            with pytest.raises(StaleFence):
                await session.commit()
            await session.rollback()
    await later.dispose()
    assert balance(engine) == 70
