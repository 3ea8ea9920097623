"""A session that is guarded as a whole.

1. *Every transaction enters first*: the mark is raised on each connection that the session begins to use, before
   the first statement of the session runs there.
2. *It is checked before each flush, and before each commit*, in the same transaction. Usually the row is locked
   since `enter` and cannot have changed; but what ended the transaction below the session (DDL in MySQL, a COMMIT
   as text) has unlocked it.
3. *Refused once, a transaction can only be rolled back*: until then every use of the session raises the same
   `StaleFence` again, or, if a flush was refused, SQLAlchemy's `PendingRollbackError`.
4. Objects that were loaded before a transaction began are old for it, too. The session expires them at each commit
   and rollback, unless `expire_on_commit=False`: then refresh them.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.orm import Session, SessionTransaction

from fencehold.errors import StaleFence, UsageError
from fencehold.guards.offer import Offered, offer_of
from fencehold.guards.sqlalchemy.guard import Guard

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession


class GuardedSession:
    """What `guard_session` returns: the guard of a session, until `end`, or until the end of a `with`."""

    def __init__(self, session: Session, guard: Guard, hold: Offered, name: str | None) -> None:
        self._session = session
        self._guard = guard
        self._hold = hold
        self._name = name
        self._connections: list[Connection] = []
        self._refusal: StaleFence | None = None
        self._hooks: dict[str, Callable[..., Any]] = {
            "after_begin": self._on_begin,
            "do_orm_execute": self._on_execute,
            "before_flush": self._on_flush,
            "before_commit": self._on_commit,
            "after_transaction_end": self._on_end,
        }
        for moment, hook in self._hooks.items():
            event.listen(session, moment, hook)

    def end(self) -> None:
        """Stop guarding. A transaction that is open then is not checked again. Idempotent."""
        hooks, self._hooks = self._hooks, {}
        for moment, hook in hooks.items():
            event.remove(self._session, moment, hook)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _on_begin(self, _: Session, transaction: SessionTransaction, connection: Connection) -> None:
        # A savepoint is part of a transaction that has entered.
        if not transaction.nested:
            self._connections.append(connection)
            self._ask(connection)

    def _on_execute(self, _: Any) -> None:
        self._refuse_again()

    def _on_flush(self, *_: Any) -> None:
        self._check()

    def _on_commit(self, session: Session) -> None:
        self._refuse_again()
        # What is left to write is flushed by the commit, which checks.
        if not (session.new or session.dirty or session.deleted):
            self._check()

    def _on_end(self, _: Session, transaction: SessionTransaction) -> None:
        if transaction.parent is None:
            self._connections, self._refusal = [], None

    def _check(self) -> None:
        self._refuse_again()
        for connection in self._connections:
            self._ask(connection)

    def _ask(self, connection: Connection) -> None:
        try:
            self._guard.enter(connection, self._hold, self._name)
        except StaleFence as refusal:
            self._refusal = refusal
            raise

    def _refuse_again(self) -> None:
        if self._refusal is not None:
            raise self._refusal


def guard_session(
    session: "Session | AsyncSession", hold: Offered, name: str | None = None, *, guard: Guard | None = None
) -> GuardedSession:
    """Guard every transaction of a session from now on, by this hold.

    Called before the session's first statement: what was read before the mark was raised is not guarded.

    Raises:
        UsageError: there is no fence for that name, or the session has used a connection already.
    """
    offer_of(hold, name)
    plain = getattr(session, "sync_session", session)
    if not isinstance(plain, Session):
        raise UsageError(f"guard_session takes a Session or an AsyncSession, not {session!r}")
    if _has_connection(plain):
        raise UsageError("guard a session before its first statement: what it has read already is not guarded")
    return GuardedSession(plain, guard or Guard(), hold, name)


def _has_connection(session: Session) -> bool:
    transaction = session.get_transaction()
    # Not public; where it should be gone one day, a transaction counts as used.
    return transaction is not None and bool(getattr(transaction, "_connections", True))
