"""The schema in the database: two tables, two sequences, and a function for each step.

1. *A step is one call of a function, and a transaction of its own.* It begins by taking an advisory lock on the
   name, for that transaction only, so the steps on a name come one after the other; each statement in a function
   sees all that was committed before.
2. *No call waits inside the database* except for such a step to end, and for that two seconds at most.
3. *Time is the database's*, and what has expired is free, whether or not it has been removed.
4. *A fence is drawn on a grant*, from a sequence, in the transaction that grants. A sequence may skip, but what a
   committed transaction drew is never drawn again, not even after a crash: the commit waits until the log up to
   there is on disk.
5. *The queue goes by tickets.* A name that is free is granted to the first waiter that is alive: one that has
   called in the last ten seconds, or in the last five after it was notified of its turn. One that is not alive is
   removed by the next call.
6. *A release notifies only if there is a waiter*: notifications are serialized by commit in all of a server.
7. Nothing depends on session settings: whether commits wait for the disk is set in each transaction, and the
   functions refuse any isolation but READ COMMITTED.

`python -m fencehold.backends.postgres [schema [table]]` prints it, for an administrator who may create it.
"""

from importlib.resources import files

VERSION = "v1"
"""Of the functions. Others are beside them in the same schema while clients of two versions run."""

_LOCK_OF_MAKERS = 0x66656E6365686F6C
"""Clients that find no schema create it one after the other."""


def script(schema: str, table: str) -> str:
    """All of it. Idempotent."""
    text = files("fencehold.backends.postgres").joinpath("tables.sql").read_text(encoding="utf-8")
    return text.replace("{schema}", schema).replace("{table}", table).replace("{version}", VERSION)


def making(schema: str, table: str) -> bytes:
    """All of it as one statement, which is one transaction."""
    body = script(schema, table).replace("CREATE SCHEMA IF NOT EXISTS", "CREATE SCHEMA")
    head, _, rest = body.partition(";\n")
    return (
        f"DO $fencehold$ BEGIN PERFORM pg_advisory_xact_lock({_LOCK_OF_MAKERS}); "
        # To create an existing schema IF NOT EXISTS needs the right to create one.
        f"IF to_regnamespace('{schema}') IS NULL THEN {head}; END IF;\n{rest}END $fencehold$"
    ).encode()


def is_made(schema: str, table: str) -> bytes:
    """The query whether it is there. This function is created last."""
    return f"SELECT to_regproc('{schema}.{table}_sweep_{VERSION}') IS NOT NULL".encode()
