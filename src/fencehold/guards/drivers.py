"""The guards of databases that are used by their drivers: what is the same for all, blocking and awaited.

1. A driver defines how a statement is executed, how a transaction is detected, and how a value is marked. All else
   is here, and is the same everywhere.
2. The order is the same, too: the offer is checked first, then the connection and its transaction. Only then is
   something executed, and nothing is judged unless the transaction is still open.

The statements and their laws are in `fencehold.guards.statements`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from fencehold.guards import statements
from fencehold.guards.offer import Offer, Offered, offer_of
from fencehold.guards.statements import TABLE, Dialect, FencedUpdate, Statements, Style

C = TypeVar("C")
"""A connection."""

Values = Mapping[str, Any]


class Updated(NamedTuple):
    """The result of a `FencedUpdate`."""

    written: int
    mark: int | None
    """The fence of the row, read if none was written."""


class Driver(ABC):
    """What blocking and awaited connections to one kind of database have in common."""

    dialect: Dialect
    style: Style

    @abstractmethod
    def begun(self, connection: Any) -> None:
        """Refuse other objects, and connections in autocommit mode."""

    @abstractmethod
    def still_open(self, connection: Any) -> None:
        """Refuse if the statement was a transaction of its own after all."""

    def judge(self, said: Statements, offer: Offer, told: int | None) -> None:
        """Raise unless the mark that was returned is the fence offered."""
        said.judge(offer, told)

    def statements(self, table: str, strict: bool) -> Statements:
        return statements.statements(self.dialect, self.style, table, strict)

    def update(self, table: str, sets: str, where: str, column: str) -> FencedUpdate:
        return statements.fenced_update(self.dialect, self.style, table, sets, where, column)


class BlockingDriver(Driver, Generic[C]):
    """How statements are executed on a connection that blocks."""

    @abstractmethod
    def execute(self, connection: C, sql: str, values: Values | None = None) -> None:
        """Execute a statement that returns nothing."""

    @abstractmethod
    def told(self, connection: C, sql: str, values: Values) -> int | None:
        """The mark that is returned by a statement that raises it."""

    @abstractmethod
    def updated(self, connection: C, said: FencedUpdate, values: Values) -> Updated:
        """Update, and read the row's fence if no row was written."""

    def fenced_update(
        self,
        connection: C,
        hold: Offered,
        table: str,
        *,
        set: str = "",
        where: str,
        values: Mapping[str, Any] | None = None,
        name: str | None = None,
        column: str = "fence",
    ) -> bool:
        """Update one row that has a fence of its own, and that fence; False if there is no such row.

        `set` and `where` are SQL with places for the values: as `:id` in SQLite, else as `%(id)s`. Without `set`
        only the fence is raised: do that first, then read the row.

        Raises:
            StaleFence: the row has seen a greater fence, and was not written.
            UsageError: there is no transaction, or `where` means several rows; roll back.
            Exception: what the driver raises, as it is.
        """
        offer = offer_of(hold, name)
        said, given = self.update(table, set, where, column), statements.with_fence(values, offer)
        self.begun(connection)
        updated = self.updated(connection, said, given)
        self.still_open(connection)
        return said.judge(offer, updated.written, updated.mark)


class AwaitedDriver(Driver, Generic[C]):
    """How statements are executed on a connection that is awaited."""

    @abstractmethod
    async def execute(self, connection: C, sql: str, values: Values | None = None) -> None:
        """As `BlockingDriver.execute`."""

    @abstractmethod
    async def told(self, connection: C, sql: str, values: Values) -> int | None:
        """As `BlockingDriver.told`."""

    @abstractmethod
    async def updated(self, connection: C, said: FencedUpdate, values: Values) -> Updated:
        """As `BlockingDriver.updated`."""

    async def fenced_update(
        self,
        connection: C,
        hold: Offered,
        table: str,
        *,
        set: str = "",
        where: str,
        values: Mapping[str, Any] | None = None,
        name: str | None = None,
        column: str = "fence",
    ) -> bool:
        """As `fenced_update` of the driver that blocks."""
        offer = offer_of(hold, name)
        said, given = self.update(table, set, where, column), statements.with_fence(values, offer)
        self.begun(connection)
        updated = await self.updated(connection, said, given)
        self.still_open(connection)
        return said.judge(offer, updated.written, updated.mark)


class BlockingGuard(Generic[C]):
    """Guards what is in the same database. Subclasses have a driver."""

    _driver: BlockingDriver[C]

    def __init__(self, table: str = TABLE, *, strict: bool = False) -> None:
        """`strict`: a name without a mark is an error; `register` the names there are.

        Raises:
            UsageError: that is no name of a table.
        """
        self._said = self._driver.statements(table, strict)

    def enter(self, connection: C, hold: Offered, name: str | None = None) -> None:
        """Raise the mark: the first statement of a holder's first transaction, before it reads anything.

        Raises:
            StaleFence: another has held the name since; roll back.
            UsageError: there is no transaction, no fence for that name, or (strict) no mark.
            Exception: what the driver raises, as it is; deadlocks and serialization failures may be retried.
        """
        offer = offer_of(hold, name)
        self._driver.begun(connection)
        told = self._driver.told(connection, self._said.raising, self._said.values(offer))
        self._driver.still_open(connection)
        self._driver.judge(self._said, offer, told)

    def check(self, connection: C, hold: Offered, name: str | None = None) -> None:
        """Refuse a stale fence, in the transaction that writes. Raises as `enter`, and does the same."""
        self.enter(connection, hold, name)

    def register(self, connection: C, *names: str) -> None:
        """Register names, with no fence seen yet; names that are registered stay as they are. Idempotent."""
        for name in names:
            self._driver.execute(connection, self._said.registering, {"name": self._said.name(name)})

    def raise_all(self, connection: C, hold: Offered, name: str | None = None) -> None:
        """Raise every mark to this fence, after a restore: holders with a smaller one are refused."""
        self._driver.execute(connection, self._said.raising_all, {"fence": offer_of(hold, name).fence})

    def create(self, connection: C) -> None:
        """Make the table, if there is none: for tests and small programs. Else, use a migration.

        MySQL commits what was begun.
        """
        self._driver.execute(connection, statements.script(self._driver.dialect, self._said.table))


class AwaitedGuard(Generic[C]):
    """The same on a connection that is awaited."""

    _driver: AwaitedDriver[C]

    def __init__(self, table: str = TABLE, *, strict: bool = False) -> None:
        """As `Guard`."""
        self._said = self._driver.statements(table, strict)

    async def enter(self, connection: C, hold: Offered, name: str | None = None) -> None:
        """As `Guard.enter`."""
        offer = offer_of(hold, name)
        self._driver.begun(connection)
        told = await self._driver.told(connection, self._said.raising, self._said.values(offer))
        self._driver.still_open(connection)
        self._driver.judge(self._said, offer, told)

    async def check(self, connection: C, hold: Offered, name: str | None = None) -> None:
        """As `Guard.check`."""
        await self.enter(connection, hold, name)

    async def register(self, connection: C, *names: str) -> None:
        """As `Guard.register`."""
        for name in names:
            await self._driver.execute(connection, self._said.registering, {"name": self._said.name(name)})

    async def raise_all(self, connection: C, hold: Offered, name: str | None = None) -> None:
        """As `Guard.raise_all`."""
        await self._driver.execute(connection, self._said.raising_all, {"fence": offer_of(hold, name).fence})

    async def create(self, connection: C) -> None:
        """As `Guard.create`."""
        await self._driver.execute(connection, statements.script(self._driver.dialect, self._said.table))
