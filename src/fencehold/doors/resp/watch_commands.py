"""Watching: events pushed to a client that observes; never on the path of an acquire.

A connection watches some prefixes; where one begins another, only the shorter one matters. What it is sent, and
when, is up to the `broadcast` of the machine it belongs to. A standby sends what it has followed, if asked with
STALE: the same events, a moment later.
"""

from typing import Any

from fencehold.core.policy import Verb
from fencehold.core.rulebook import denied
from fencehold.doors.resp import replies
from fencehold.doors.resp.answers import refuse
from fencehold.doors.resp.arguments import at_least, exactly, kinds, number, options, text
from fencehold.doors.resp.broadcast import Broadcast
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.event_batches import WHOLE, Place
from fencehold.doors.resp.guard import Denied, rights_of
from fencehold.doors.resp.usage_errors import Wrong

_PREFIX_BYTES_MAX = 1_024
_FROM = kinds(FROM=("position", number), INDEX=("index", number))
_FLAGS = frozenset({b"STALE"})


class TooMuch(Wrong):
    """More is watched than one connection may."""

    code = "LIMIT"


class Watching:
    """The prefixes one connection watches."""

    def __init__(self, connection: Connection, place: Place) -> None:
        self._prefixes: dict[str, None] = {}
        self._connection = connection
        self._broadcast = _broadcast_to(connection)
        self._member = self._broadcast.enter(connection, place)

    @property
    def place(self) -> Place:
        """Up to where it was sent events."""
        return self._broadcast.place_of(self._member)

    def rewind(self, place: Place) -> None:
        """Send all of it once more from a place on: the client recognizes what it had by the places of events."""
        if self._broadcast.rewind(self._member, place):
            # The reply may wait for others before it, and pushes wait for none: only a push separates old from
            # new.
            self._connection.push(replies.push("again", *place))

    def add(self, prefix: str) -> None:
        """Watch one more prefix."""
        prefixes_max = self._connection.door.bounds.prefixes_max
        if len(prefix.encode()) > _PREFIX_BYTES_MAX:
            raise TooMuch(f"a prefix has at most {_PREFIX_BYTES_MAX} bytes")
        if len(self._prefixes) >= prefixes_max and prefix not in self._prefixes:
            raise TooMuch(f"a connection watches at most {prefixes_max} prefixes")
        self._prefixes[prefix] = None
        self._broadcast.watch(self._member, shortest(self._prefixes))

    def remove(self, prefix: str) -> None:
        """Watch one prefix less; its unsent events are dropped."""
        self._prefixes.pop(prefix, None)
        self._broadcast.watch(self._member, shortest(self._prefixes))

    def wake(self) -> None:
        """The client reads again."""
        self._broadcast.go_on(self._member)

    def end(self) -> None:
        self._broadcast.leave(self._member)
        if not self._broadcast.members:
            self._connection.door.broadcasts.pop(self._connection.node, None)


def _broadcast_to(connection: Connection) -> Broadcast:
    """The one of the machine that a connection belongs to."""
    broadcasts, node = connection.door.broadcasts, connection.node
    if node not in broadcasts:
        broadcasts[node] = Broadcast(node, clock=connection.door.clock)
    return broadcasts[node]


def shortest(prefixes: dict[str, None]) -> tuple[str, ...]:
    """Prefixes without those that another of them begins: every name begins with at most one of these."""
    found: list[str] = []
    for prefix in sorted(prefixes):
        if not found or not prefix.startswith(found[-1]):
            found.append(prefix)
    return tuple(found)


def watch(connection: Connection, words: list[bytes], slot: Slot) -> None:
    at_least(words, 1)
    prefix, found = text(words[1], "the prefix"), options(words, 2, _FROM, _FLAGS)
    if connection.version != 3:
        raise Wrong("watching needs pushes: send HELLO 3 first")
    if not connection.node.leads and not ("STALE" in found and connection.node.role == "standby"):
        refuse(slot, connection.node.refusal(), 0)
        return
    rights = rights_of(connection)
    if rights is not None and not rights.may_somewhere(Verb.EVENTS, prefix):
        raise Denied(denied(connection.principal, Verb.EVENTS, prefix).detail)
    place = _place(found, connection.node.position)
    _check_happened(connection, place)
    if connection.watching is None:
        connection.watching = Watching(connection, place)
    else:
        connection.watching.rewind(place)
    connection.watching.add(prefix)
    position, index = connection.watching.place
    slot.reply({"position": position, "index": index})


def _place(found: dict[str, Any], now: int) -> Place:
    """After which place it begins: all of a position, or one event of it."""
    if "position" not in found:
        if "index" in found:
            raise Wrong("INDEX comes with FROM: it is an event of that position")
        return now, WHOLE
    return found["position"], found.get("index", WHOLE)


def _check_happened(connection: Connection, place: Place) -> None:
    """Refuse a place that no event can have had: nothing would be sent until the journal gets that far.

    A standby cannot know: what it has not followed yet may have been sent by another node.
    """
    node = connection.node
    # Entries in flight to the journal count: a standby may have sent their events before the leader knows they are
    # there.
    newest = max(node.position, node.replica.machine.position)
    if node.leads and place[0] > newest:
        shard = "" if node.home is None else f" of shard {node.home.shard}"
        raise Wrong(
            f"position {place[0]}{shard} has not happened yet: the newest is {newest}. The place is of another "
            "service, or of a journal that was recreated; without a place, events are sent from now on"
        )


def unwatch(connection: Connection, words: list[bytes], slot: Slot) -> None:
    exactly(words, 1)
    if connection.watching is not None:
        connection.watching.remove(text(words[1], "the prefix"))
    slot.fill(replies.OK)


HANDLERS: dict[bytes, Handler] = {
    b"LOCK.WATCH": watch,
    b"LOCK.UNWATCH": unwatch,
}
