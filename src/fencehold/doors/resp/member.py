"""A member: the session a connection speaks for, and how its life depends on the connection's.

An *explicit* session was opened by its client and outlives the connection: it can be resumed on another. An
*implicit* one was opened for a connection that asked for a lock without one: it is kept alive by the connection
itself, and ends when either end closes that.

If its server is lost, or another node leads, no server knows whether that connection is still open, and its client
may not know that it is not. So an implicit session lives out its ttl then; and a plain client is told of no more
time than it certainly has, should its server be lost the next moment.

A resume may be an old one: sent on a connection that its client abandoned long ago, and delayed by the network. So
the end of a connection counts as the client's only after a keep-alive came by it, which a client sends once it was
answered; before, the session has its ttl, whatever becomes of the connection (G7).
"""

from fencehold.core.commands import CloseSession, Suspend
from fencehold.core.outcomes import Ending, HoldEnded, Notice, SessionEnded, WaitEnded
from fencehold.doors.resp import replies
from fencehold.doors.resp.answers import ignore, settle
from fencehold.doors.resp.connection import Connection, Slot
from fencehold.doors.resp.guard import sees

_TOLD = {Ending.EXPIRED, Ending.BROKEN}


class Member:
    """One session on one connection."""

    def __init__(
        self, connection: Connection, session: int, ttl_ms: int, *, implicit: bool, resumed: bool = False
    ) -> None:
        self.session = session
        self.is_proven = not resumed
        """The client is known to be at the other end of this connection now."""
        self.ttl_ms = ttl_ms
        """How long the session certainly lives from any moment at which its client is told so."""
        self.implicit = implicit
        self.ending = False
        """Its client has requested its end."""
        self.renewals = 0
        """Keep-alives of its client that wait for the next entry."""
        self._connection = connection
        self._node = connection.node
        self._blocked: dict[int, list[Slot]] = {}
        connection.door.on_attached(connection, session)
        replaced = self._node.routes.attach(session, connection)
        if isinstance(replaced, Connection):
            replaced.member = None
            # Not that the session has ended: a client that is still there resumes it, and has lost nothing.
            replaced.end("UNAVAILABLE", f"session {session} was resumed by another connection")

    def block(self, ticket: int, slot: Slot) -> None:
        """Let a plain client's acquire block until its wait ends; it may have several pending."""
        self._blocked.setdefault(ticket, []).append(slot)

    def lasts_ms(self, own_ttl_ms: int) -> int:
        """The reported duration of a grant that has a ttl of its own, or 0.

        An explicit session is its client's to keep alive; of an implicit one it knows only what it is told.
        """
        if not own_ttl_ms:
            return self.ttl_ms
        return min(own_ttl_ms, self.ttl_ms) if self.implicit else own_ttl_ms

    def keep_alive(self) -> None:
        """Renew an implicit session: its connection is open."""
        self._node.renew(self.session, ignore)

    def on_disconnected(self, by_client: bool) -> None:
        """Leave the session its grace, if the client's end closed; an implicit one has none."""
        was_attached = self._node.routes.detach(self.session, self._connection)
        if was_attached and ((by_client and self.is_proven) or self.implicit):
            self._node.submit(Suspend(self.session), ignore)

    def close(self) -> None:
        """End the session for good."""
        self._connection.submit(CloseSession(self.session), ignore)

    def on_notice(self, notice: Notice, at_ms: int) -> None:
        """Tell the client what happened to its session."""
        connection = self._connection
        match notice:
            case WaitEnded():
                for slot in self._blocked.pop(notice.ticket, (None,)):
                    settle(connection, self.lasts_ms, notice, slot, at_ms)
            case HoldEnded() if notice.ending in _TOLD:
                # Who broke it is told only to a client that may see who holds it.
                by = notice.by if sees(connection, notice.name) else ""
                connection.push(replies.push("lost", notice.name, notice.fence, notice.ending.value, by))
            case SessionEnded():
                self._on_ended(notice)
            case _:
                pass

    def _on_ended(self, notice: SessionEnded) -> None:
        self._node.routes.detach(self.session, self._connection)
        self._connection.member = None
        if not self.ending:
            self._connection.push(replies.push("ended", self.session, notice.ending.value))
        for slots in self._blocked.values():
            for slot in slots:
                slot.error("NOSESSION", f"session {self.session} has ended while this waited")
        self._blocked.clear()
        if self.implicit and not self.ending:
            # It lives as long as its connection, so the connection cannot outlive it: the next acquire would get a
            # new session, and the client would never learn that it lost what it held. Before any client is told of
            # a grant that this made possible.
            is_lost = notice.ending in (Ending.EXPIRED, Ending.REVOKED)
            self._connection.end("NOSESSION" if is_lost else "", f"session {self.session} has ended")
