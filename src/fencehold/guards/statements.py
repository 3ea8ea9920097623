"""The SQL of the guards of databases, and what its results mean.

1. *One statement raises the mark and returns it*, in every case: it is set to the greater of itself and the fence.
   If the returned mark is greater than the fence, the fence is stale. There is no second statement, so nothing
   can happen in between.
2. *The row is written each time, also if the mark stays the same.* So it is locked until the end of the
   transaction, and a transaction that sees an older state of the database, in REPEATABLE READ or SERIALIZABLE,
   gets an error from Postgres and SQLite instead of continuing with it.
3. *Nothing is quoted.* A table or column has a plain name, with a schema or without; all else is refused. The
   caller is responsible for its own SQL.
4. Neither `enter` nor `check` commits or rolls back. What a driver raises (a deadlock, a serialization failure, a
   lost connection) is passed to the caller as it is: it says nothing about the fence.
"""

import re
from collections.abc import Mapping
from importlib import resources
from typing import Any, Literal, NamedTuple

from fencehold.errors import StaleFence, UsageError
from fencehold.guards.offer import Offer
from fencehold.locks.traces import noted

TABLE = "fencehold_fences"

Dialect = Literal["postgresql", "mysql", "sqlite"]
DIALECTS: tuple[Dialect, ...] = ("postgresql", "mysql", "sqlite")
Style = Literal["pyformat", "named"]
"""How a driver marks a value: `%(fence)s` or `:fence`."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_$]{0,62}(\.[A-Za-z_][A-Za-z0-9_$]{0,62})?")

# MySQL returns no rows from a write. The argument of LAST_INSERT_ID comes back with the reply instead, also if the
# row stays as it was; it is 0 if the function was not called, because the row is a new one or there is none.
_RAISING: dict[Dialect, str] = {
    "postgresql": "INSERT INTO {table} AS marked (name, fence) VALUES ({name}, {fence}) "
    "ON CONFLICT (name) DO UPDATE SET fence = GREATEST(marked.fence, excluded.fence) RETURNING fence",
    "sqlite": "INSERT INTO {table} AS marked (name, fence) VALUES ({name}, {fence}) "
    "ON CONFLICT (name) DO UPDATE SET fence = max(marked.fence, excluded.fence) RETURNING fence",
    "mysql": "INSERT INTO {table} (name, fence) VALUES ({name}, {fence}) "
    "ON DUPLICATE KEY UPDATE fence = LAST_INSERT_ID(GREATEST(fence, {fence}))",
}
_RAISING_KNOWN: dict[Dialect, str] = {
    "postgresql": "UPDATE {table} SET fence = GREATEST(fence, {fence}) WHERE name = {name} RETURNING fence",
    "sqlite": "UPDATE {table} SET fence = max(fence, {fence}) WHERE name = {name} RETURNING fence",
    "mysql": "UPDATE {table} SET fence = LAST_INSERT_ID(GREATEST(fence, {fence})) WHERE name = {name}",
}
_REGISTERING: dict[Dialect, str] = {
    "postgresql": "INSERT INTO {table} (name, fence) VALUES ({name}, 0) ON CONFLICT (name) DO NOTHING",
    "sqlite": "INSERT INTO {table} (name, fence) VALUES ({name}, 0) ON CONFLICT (name) DO NOTHING",
    "mysql": "INSERT INTO {table} (name, fence) VALUES ({name}, 0) ON DUPLICATE KEY UPDATE fence = fence",
}


class Statements(NamedTuple):
    """The statements of one guard."""

    table: str
    is_strict: bool
    dialect: Dialect
    raising: str
    """Raises the mark of `name` to `fence`; returns the mark."""
    registering: str
    """Registers a `name`."""
    raising_all: str
    """Raises every mark to `fence`."""

    def values(self, offer: Offer) -> dict[str, Any]:
        """The values for `raising`."""
        return {"name": self.name(offer.name), "fence": offer.fence}

    def name(self, name: str) -> str:
        """A name as the statements take it."""
        return name.encode().hex() if self.dialect == "mysql" else name

    def judge(self, offer: Offer, mark: int | None) -> None:
        """Raise unless the mark, after it was raised, is the fence offered; None if there is no mark.

        Raises:
            StaleFence: the mark is greater.
            UsageError: there is none, or the table has kept something else.
        """
        if mark is None:
            raise UsageError(f"{offer.name!r} has no mark: the guard of {self.table} is strict, register the name")
        if mark > offer.fence:
            raise noted(StaleFence(name=offer.name, fence=offer.fence, mark=mark))
        if mark < offer.fence:
            raise UsageError(f"{self.table} has kept {mark} of the fence {offer.fence}: is its column a bigint?")

    def judge_mysql(self, offer: Offer, told: int | None) -> None:
        """The same for what MySQL returns: 0 if the mark is new, or if there is none."""
        new = None if self.is_strict else offer.fence
        self.judge(offer, told or new)


def statements(dialect: Dialect, style: Style, table: str, strict: bool) -> Statements:
    """The statements of a guard for one kind of database and one kind of driver.

    Raises:
        UsageError: that is no name of a table.
    """
    table = identifier(table)
    greatest = "max" if dialect == "sqlite" else "GREATEST"
    name = place("name", style)
    # By its bytes, in digits: neither the connection's character set nor the driver's quoting of bytes matters.
    named = f"UNHEX({name})" if dialect == "mysql" else name
    words = {"table": table, "name": named, "fence": place("fence", style)}
    return Statements(
        table,
        strict,
        dialect,
        (_RAISING_KNOWN if strict else _RAISING)[dialect].format(**words),
        _REGISTERING[dialect].format(**words),
        f"UPDATE {table} SET fence = {greatest}(fence, {words['fence']})",
    )


class FencedUpdate(NamedTuple):
    """An update of one row that has a fence of its own."""

    update: str
    look: str
    """Returns the fence of the row, as it is now; no row if there is none."""
    table: str

    def judge(self, offer: Offer, written: int, mark: int | None) -> bool:
        """Whether the row was written; `mark` is what `look` returned, if it was executed.

        Raises:
            StaleFence: the row has a greater fence.
            UsageError: more than one row was written: roll back.
        """
        if written > 1:
            raise UsageError(f"{written} rows of {self.table} are meant, and not one: guard them by a mark")
        if written == 0 and mark is not None and mark > offer.fence:
            raise noted(StaleFence(name=offer.name, fence=offer.fence, mark=mark))
        return written == 1


def fenced_update(
    dialect: Dialect, style: Style, table: str, sets: str, where: str, column: str = "fence"
) -> FencedUpdate:
    """The update of the row that `where` means, and of its fence, unless that is greater.

    Raises:
        UsageError: `table` or `column` is no name, or `where` is missing.
    """
    table, column, fence = identifier(table), identifier(column), place("fence", style)
    if not where.strip():
        raise UsageError("fenced_update needs a where= that means one row")
    kept = f"LAST_INSERT_ID({fence})" if dialect == "mysql" else fence
    assignments = f"{sets}, {column} = {kept}" if sets.strip() else f"{column} = {kept}"
    # A plain SELECT would read MySQL's snapshot, which may be older than what the update met.
    current = " FOR UPDATE" if dialect == "mysql" else ""
    return FencedUpdate(
        f"UPDATE {table} SET {assignments} WHERE ({where}) AND {column} <= {fence}",
        f"SELECT {column} FROM {table} WHERE ({where}) ORDER BY {column} DESC LIMIT 1{current}",
        table,
    )


def with_fence(values: Mapping[str, Any] | None, offer: Offer) -> dict[str, Any]:
    """The caller's values, and the fence.

    Raises:
        UsageError: the caller has one of that name, too.
    """
    if values and "fence" in values:
        raise UsageError("the value called 'fence' is the hold's: give yours another name")
    return {**(values or {}), "fence": offer.fence}


def script(dialect: str, table: str = TABLE) -> str:
    """The SQL that makes the table of marks: for a migration.

    Raises:
        UsageError: there is no such dialect, or that is no name of a table.
    """
    if dialect not in DIALECTS:
        raise UsageError(f"there is SQL for {', '.join(DIALECTS)}, not for {dialect!r}")
    text = resources.files("fencehold.guards").joinpath("sql", f"{dialect}.sql").read_text()
    return text.replace(TABLE, identifier(table))


def identifier(name: str) -> str:
    """The same, if it can stand in a statement as it is.

    Raises:
        UsageError: it cannot.
    """
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        raise UsageError(f"a table or column is called by letters, digits and _, a schema before it, not {name!r}")
    return name


def place(name: str, style: Style) -> str:
    return f"%({name})s" if style == "pyformat" else f":{name}"
