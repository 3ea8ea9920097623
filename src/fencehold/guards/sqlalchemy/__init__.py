"""Guards for what SQLAlchemy 2 writes to Postgres, MySQL, MariaDB or SQLite, in the caller's own transaction.

* `Guard` and `AsyncGuard` for a connection or a session: `guard.enter(session, hold)`.
* `guard_session` for a whole session: every transaction of it enters first, and is checked before it writes.
* `fenced` and `fenced_update` for tables whose rows have a fence of their own.
"""

from fencehold.guards.sqlalchemy.guard import AsyncGuard, Guard
from fencehold.guards.sqlalchemy.rows import async_fenced_update, fenced, fenced_update
from fencehold.guards.sqlalchemy.session import GuardedSession, guard_session

__all__ = [
    "AsyncGuard",
    "Guard",
    "GuardedSession",
    "async_fenced_update",
    "fenced",
    "fenced_update",
    "guard_session",
]
