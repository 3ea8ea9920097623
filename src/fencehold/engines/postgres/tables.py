"""Making the tables, once, whoever comes first.

1. All of them are made in one transaction, or none. Nodes that come up at the same time wait for one another.
2. Nobody needs to be a superuser. Whoever may not make a schema is told what to have made.
3. Tables that are there are never touched: a row that is missing from them is damage, not a new journal.
"""

from fencehold.engines.postgres.address import Address
from fencehold.engines.postgres.aside import Aside
from fencehold.errors import UsageError


async def make_tables(aside: Aside, address: Address) -> None:
    """Make the schema and the tables that are not there.

    Raises:
        UsageError: the user in the URL may not.
        Unavailable: nobody answers; calling again is safe.
    """
    statements = aside.statements
    ((has_tables, has_schema),) = await aside.ask(statements.has_tables)
    if has_tables:
        return
    schema = "" if has_schema else statements.create_schema
    try:
        await aside.run(statements.lock_creation + schema + statements.create_tables)
    except UsageError as error:
        raise UsageError(
            f"{error}; to have the tables made, run as an administrator: GRANT CREATE ON DATABASE … TO …, or "
            f"CREATE SCHEMA {address.schema} AUTHORIZATION …"
        ) from error
