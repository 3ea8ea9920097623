"""Rows that have a fence of their own, updated by SQLAlchemy.

1. The fence of a row is written with the row, and a row with a greater one is not written.
2. If no row was written, either there is none or the fence is stale: a query in the same transaction tells which.
"""

from typing import Any

from sqlalchemy import Update, select
from sqlalchemy.sql.elements import ColumnElement

from fencehold.errors import UsageError
from fencehold.guards.offer import Offer, Offered, offer_of
from fencehold.guards.sqlalchemy.guard import AsyncConnected, Connected, connected
from fencehold.guards.statements import FencedUpdate


def fenced(update: Update, column: Any, hold: Offered, name: str | None = None) -> Update:
    """The update, which also writes the fence to its column, and only where there is no greater one.

    After executing it, check its `rowcount`, or use `fenced_update`, which does that.

    Raises:
        UsageError: no fence for that name.
    """
    return _fenced(update, column, offer_of(hold, name))


def fenced_update(
    connection: Connected, update: Update, column: Any, hold: Offered, name: str | None = None
) -> bool:
    """Execute the update of one row under a fence; False if there is no such row.

    Raises:
        StaleFence: the row has seen a greater fence, and was not written.
        UsageError: the connection is in autocommit mode, or the update matches several rows; roll back.
        sqlalchemy.exc.DBAPIError: as it is.
    """
    offer = offer_of(hold, name)
    on, where = connected(connection), update.whereclause
    if where is None:
        raise UsageError("fenced_update needs an update with a where that means one row")
    written = on.execute(_fenced(update, column, offer)).rowcount
    # Locking, where the dialect has that: MySQL's snapshot may be older than what the update met.
    look = select(column).where(where).order_by(column.desc()).limit(1).with_for_update()
    mark = on.execute(look).scalar() if written == 0 else None
    return FencedUpdate("", "", str(update.table)).judge(offer, written, mark)


async def async_fenced_update(
    connection: AsyncConnected, update: Update, column: Any, hold: Offered, name: str | None = None
) -> bool:
    """As `fenced_update`."""
    return await connection.run_sync(fenced_update, update, column, hold, name)


def _fenced(update: Update, column: "ColumnElement[int]", offer: Offer) -> Update:
    return update.where(column <= offer.fence).values({column: offer.fence})
