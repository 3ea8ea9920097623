"""The Postgres engine: a journal in four tables of a schema, for several nodes.

- `address`: the URL, and what a server must be
- `statements`: the tables, and every statement, each with why it is right when others run beside it
- `queries`: all statements but appends: making the tables, reading entries, how full the database is
- `appender`: appending and leading, and the outcome of an append whose reply was lost
- `snapshots`: keeping a snapshot, beginning with one, reading it back, trimming
- `journal`: the port, and which connection does what

How Postgres is reached is in `fencehold.drivers.postgres`.
"""

from fencehold.engines.postgres.address import PostgresJournalAddress
from fencehold.engines.postgres.journal import PostgresBounds, PostgresJournal

__all__ = ["PostgresBounds", "PostgresJournal", "PostgresJournalAddress"]
