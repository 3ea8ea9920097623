"""The table of marks in a migration of Alembic::

    from alembic import op
    from fencehold.guards.alembic import create_fences, drop_fences

    def upgrade() -> None:
        create_fences(op)

    def downgrade() -> None:
        drop_fences(op)

1. It runs the SQL that `python -m fencehold.guards` prints, for the dialect of the migration; also with `--sql`.
2. Dropping the table forgets every mark: a stale holder passes again. Do it only when no program uses the guard
   any more.
"""

from typing import Any

from fencehold.guards.statements import TABLE, identifier, script


def create_fences(op: Any, table: str = TABLE) -> None:
    """Make the table. `op` is Alembic's.

    Raises:
        UsageError: there is no SQL for the dialect, or the table name is invalid.
    """
    name = op.get_context().dialect.name
    op.execute(script("mysql" if name == "mariadb" else name, table))


def drop_fences(op: Any, table: str = TABLE) -> None:
    """Drop the table, and with it every mark.

    Raises:
        UsageError: that is no name of a table.
    """
    op.execute(f"DROP TABLE {identifier(table)}")
