"""What the log is told of one client's connection: lost, not to be had again, back; and of its session.

1. An outage is told when it begins, when it has lasted for as long as a call waits for the service, then each time
   it has lasted twice as long, and when it is over.
2. A session that was resumed kept all it held. One that was not is told as a warning: all of that is lost.
"""

import logging

from fencehold.client.reach import Reach
from fencehold.client.session import Session
from fencehold.locks.log import CONNECTIONS, Teller


class ConnectionLog:
    """Told of the connection by the shell that has it."""

    __slots__ = ("_down_at", "_session", "_tell_at_s", "_teller")

    def __init__(self, teller: Teller = CONNECTIONS) -> None:
        self._teller = teller
        self._session: Session | None = None
        """The one that was carried last, itself: a server that has forgotten everything gives numbers again."""
        self._down_at: float | None = None
        self._tell_at_s = 0.0

    def on_up(self, reach: Reach, session: Session, now: float) -> None:
        """A connection carries a session."""
        before, self._session = self._session, session
        down_at, self._down_at = self._down_at, None
        after_s = 0.0 if down_at is None else now - down_at
        if before is None:
            self._teller.tell(logging.DEBUG, "connected to %s, session %d", reach.node, session.id)
        elif before is session:
            message = "session %d resumed on %s after %.1f s"
            self._teller.tell(logging.INFO, message, session.id, reach.node, after_s)
        else:
            self._teller.tell(
                logging.WARNING,
                "session %d is over, and all it held is lost; session %d opened on %s after %.1f s",
                before.id,
                session.id,
                reach.node,
                after_s,
            )

    def on_down(self, reach: Reach, now: float) -> None:
        """No connection carries the session, or could be made that would."""
        if self._session is None:
            # Whoever connects is told by an error.
            return
        if self._down_at is None:
            self._down_at, self._tell_at_s = now, reach.patience
            self._teller.tell(logging.INFO, "connection to %s lost: %s", reach.node, reach.trouble)
        elif now - self._down_at >= self._tell_at_s:
            lasted_s = now - self._down_at
            self._tell_at_s = 2 * lasted_s
            self._teller.tell(logging.WARNING, "not connected for %.0f s: %s", lasted_s, reach.unreached())
