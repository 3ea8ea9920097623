"""The wallet: a balance in a database, read and written in two transactions, as if there were work in between.

A balance that is only debited needs neither lock nor fence: `UPDATE … SET balance = balance - 10` does it in one
statement. This one stands for what cannot be done in one: between reading and writing, a provider is called.
"""

import sqlite3
from contextlib import closing
from typing import Any

from fencehold import Hold

NAME = "wallet:7"
_BUSY_S = 10.0


class SqliteWallet:
    """In a file."""

    def __init__(self, where: str, fenced: bool) -> None:
        from fencehold.guards.sqlite import Guard  # noqa: PLC0415 - each wallet needs only its own driver

        self._connection = sqlite3.connect(where, timeout=_BUSY_S)
        self._guard = Guard()
        self._fenced = fenced

    def make(self, balance: int) -> None:
        self._guard.create(self._connection)
        with self._connection:
            self._connection.execute("CREATE TABLE wallet (balance INTEGER NOT NULL)")
            self._connection.execute("INSERT INTO wallet VALUES (?)", (balance,))

    def read(self, hold: Hold) -> int:
        """The balance. Fenced, the mark is raised first: who held the lock before can write no more."""
        with self._connection:
            if self._fenced:
                self._guard.enter(self._connection, hold)
            return self.balance()

    def write(self, hold: Hold, balance: int) -> None:
        """Have this be the balance. Fenced, it is checked in the same transaction that there was no newer holder.

        Raises:
            StaleFence: there was one; nothing was written.
        """
        with self._connection:
            if self._fenced:
                self._guard.check(self._connection, hold)
            self._connection.execute("UPDATE wallet SET balance = ?", (balance,))

    def balance(self) -> int:
        return int(self._connection.execute("SELECT balance FROM wallet").fetchone()[0])

    def close(self) -> None:
        self._connection.close()


class PostgresWallet:
    """The same in a Postgres, in a schema of its own."""

    def __init__(self, where: str, fenced: bool) -> None:
        import psycopg  # noqa: PLC0415

        from fencehold.guards.psycopg import Guard  # noqa: PLC0415

        self._connection: Any = psycopg.connect(where, autocommit=True)
        self._guard = Guard("example_wallet.fences")
        self._fenced = fenced

    def make(self, balance: int) -> None:
        self._connection.execute("DROP SCHEMA IF EXISTS example_wallet CASCADE")
        self._connection.execute("CREATE SCHEMA example_wallet")
        self._guard.create(self._connection)
        self._connection.execute("CREATE TABLE example_wallet.wallet (balance bigint NOT NULL)")
        self._connection.execute("INSERT INTO example_wallet.wallet VALUES (%s)", (balance,))

    def read(self, hold: Hold) -> int:
        """As `SqliteWallet.read`."""
        with self._connection.transaction():
            if self._fenced:
                self._guard.enter(self._connection, hold)
            return self.balance()

    def write(self, hold: Hold, balance: int) -> None:
        """As `SqliteWallet.write`."""
        with self._connection.transaction():
            if self._fenced:
                self._guard.check(self._connection, hold)
            self._connection.execute("UPDATE example_wallet.wallet SET balance = %s", (balance,))

    def balance(self) -> int:
        with closing(self._connection.execute("SELECT balance FROM example_wallet.wallet")) as cursor:
            return int(cursor.fetchone()[0])

    def close(self) -> None:
        self._connection.close()


Wallet = SqliteWallet | PostgresWallet


def opened(where: str, fenced: bool) -> Wallet:
    """The wallet at a path, or at a URL of Postgres."""
    is_url = where.startswith(("postgresql://", "postgres://"))
    return PostgresWallet(where, fenced) if is_url else SqliteWallet(where, fenced)
