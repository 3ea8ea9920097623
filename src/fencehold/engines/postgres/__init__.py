"""The Postgres engine: a journal in four tables of a schema, for several nodes.

What each module owns:

- `address`: the URL: whom to connect to, which schema, how durable
- `statements`: the tables, and every statement, each with why it is right when others run beside it
- `failures`: what an error of the driver says about the world
- `greeting`: what a server must be before anything is entrusted to it
- `link`: one connection: made when needed, bounded in time, made anew when lost
- `crew`: work that its caller may give up, but that goes on
- `tables`: making the tables
- `aside`: all that is asked beside appends
- `appender`: appending and leading, and what became of an append whose reply was lost
- `cursor`: reading entries in order
- `snapshots`: keeping a snapshot, beginning with one, reading it back
- `trimming`: giving room back
- `journal`: the port, and which connection does what
"""

from fencehold.engines.postgres.address import Address
from fencehold.engines.postgres.journal import Bounds, PostgresJournal

__all__ = ["Address", "Bounds", "PostgresJournal"]
