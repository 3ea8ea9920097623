"""The guard: what is checked before a command is handled, where there is a policy; there is none otherwise.

What a command needs is in one table (`security.rights`). Here it is checked that the client is authenticated,
within its quota of commands, and, for administration, allowed it. Rights on names are checked where they are
decided: in the machine, and in questions.
"""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from fencehold.core.outcomes import Deadlock, Link, ShardLink
from fencehold.core.policy import Verb
from fencehold.core.rulebook import Rights, Rulebook, denied, unknown
from fencehold.doors.resp.usage_errors import Wrong
from fencehold.security.rights import NEEDS, About

if TYPE_CHECKING:
    from fencehold.doors.resp.connection import Connection
    from fencehold.doors.resp.door import Door

WHO = "this Fencehold server requires authentication: show a client certificate, or send AUTH user secret"

_FOLLOW = b"NODE.FOLLOW"
_CONFIRM = b"CELL.CONFIRM"
_NEEDS = {command.encode(): need for command, need in NEEDS.items()}
ORDINARY = frozenset(command for command, need in _NEEDS.items() if need.about is not About.SERVICE)
"""What every user may send, unless it has a quota of commands."""


class NotAuthenticated(Wrong):
    """The client has to log in and has not, or its user no longer exists."""

    code = "NOAUTH"


class Denied(Wrong):
    """The policy does not allow it."""

    code = "DENIED"


class TooFast(Wrong):
    """More commands a second than a quota allows. The first word says when to retry, in milliseconds."""

    code = "BUSY"


class Guard:
    """Of one listener, while there is a policy."""

    def __init__(self, door: "Door", book: Rulebook) -> None:
        self._door = door
        self._book = book
        self._now_ms = door.clock.now_ms

    def admit(self, connection: "Connection", command: bytes) -> None:
        """Raise the error for a client that may not send this, now."""
        if connection.admitted_by is self and command in ORDINARY:
            return
        need = _NEEDS[command]
        if need.about is About.CONNECTION or (command == _FOLLOW and self._may_follow(connection)):
            return
        if command == _CONFIRM and self._door.is_node(connection):
            return
        principal = connection.principal
        if not principal:
            raise NotAuthenticated(WHO)
        rights = self._book.rights_of(principal)
        if rights.user is None:
            raise NotAuthenticated(unknown(principal).detail)
        if need.about is About.SERVICE and Verb.ADMIN not in rights.everywhere:
            raise Denied(denied(principal, Verb.ADMIN, "").detail)
        quota = rights.quota
        if quota is None or not quota[1].commands_per_s:
            connection.admitted_by = self
            return
        if need.is_counted:
            wait_ms = self._door.node.rates.wait_ms(principal, quota, self._now_ms())
            if wait_ms:
                most = quota[1].commands_per_s
                raise TooFast(f"{wait_ms} quota {quota[0]!r}: at most {most} commands a second")

    def _may_follow(self, connection: "Connection") -> bool:
        # A standby that follows a node which does not lead must learn that, admitted or not. Nodes are not users
        # of the policy: they show the certificate of nodes.
        return not connection.place.leads or self._door.is_node(connection)


def rights_of(connection: "Connection") -> Rights | None:
    """What a connection may do at the machine it belongs to; None: everything, for there is no policy."""
    book = connection.node.rulebook or connection.door.node.rulebook
    return None if book is None else book.rights_of(connection.principal)


def sees(connection: "Connection", name: str) -> bool:
    """Whether a connection may know who holds a name."""
    rights = rights_of(connection)
    return rights is None or rights.sees(name)


def redacted(connection: "Connection", deadlock: Deadlock) -> tuple[Link, ...]:
    """A circle without what a connection may not see: who holds a name, and since when; and who waits for it."""
    rights = rights_of(connection)
    circle = deadlock.circle
    if rights is None:
        return circle
    own = connection.member.session if connection.member is not None else 0
    links = []
    for before, link in zip((circle[-1], *circle[:-1]), circle, strict=True):
        if not link.session:
            # It stands for those that are left out of a long one.
            links.append(link)
            continue
        # The waiter here holds, or is queued earlier for, the name of the link before.
        is_own = link.session == own and _is_here(connection, link)
        is_known = is_own or (rights.sees(before.name) and rights.sees(link.name))
        session, owner = (link.session, link.owner) if is_known else (0, "")
        name, fence, since_at = link.name if is_own else "", 0, -1
        if rights.sees(link.name):
            name, fence, since_at = link.name, link.fence, link.since_at
        links.append(replace(link, session=session, owner=owner, name=name, fence=fence, since_at=since_at))
    return tuple(links)


def _is_here(connection: "Connection", link: Link) -> bool:
    """Whether a link is of the shard that the connection belongs to: session numbers of another mean another."""
    home = connection.node.home
    return not isinstance(link, ShardLink) or home is None or link.shard == home.shard
