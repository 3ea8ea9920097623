"""Watching: events pushed to a client that looks on; never on the path of an acquire."""

import asyncio
from collections.abc import Iterator

from fencehold.core.events import Event
from fencehold.doors.resp import replies
from fencehold.doors.resp.arguments import Wrong
from fencehold.doors.resp.connection import Connection

_PREFIX_BYTES_MAX = 1_024


class TooMuch(Wrong):
    """More is watched than one connection may."""

    code = "LIMIT"


class Watching:
    """The prefixes one connection watches, and how far it has been told."""

    def __init__(self, connection: Connection, position: int) -> None:
        self.prefixes: dict[str, None] = {}
        self._connection = connection
        self.position = position
        self._rest: Iterator[Event] = iter(())
        """What is still to be told of the entry at that position. One entry may end ten thousand holds: told in
        one go, that would be more than a connection may leave unsent."""
        self._scheduled = False
        connection.node.routes.watch(self.wake)

    def add(self, prefix: str) -> None:
        """Watch one more prefix."""
        prefixes_max = self._connection.door.bounds.prefixes_max
        if len(prefix.encode()) > _PREFIX_BYTES_MAX:
            raise TooMuch(f"a prefix has at most {_PREFIX_BYTES_MAX} bytes")
        if len(self.prefixes) >= prefixes_max and prefix not in self.prefixes:
            raise TooMuch(f"a connection watches at most {prefixes_max} prefixes")
        self.prefixes[prefix] = None

    def wake(self) -> None:
        """There may be news: look at it when whoever brought it is done."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._tell)

    def end(self) -> None:
        self._connection.node.routes.unwatch(self.wake)

    def _tell(self) -> None:
        self._scheduled = False
        connection, ring = self._connection, self._connection.node.ring
        if not self._tell_rest():
            # When there is room again, the rest of it follows, and what was missed and is still in the ring.
            return
        if ring.lost_up_to > self.position:
            self.position = ring.lost_up_to
            connection.push(replies.push("event", {"kind": "gap", "position": self.position}))
        for position, events in connection.node.events_since(self.position):
            self.position, self._rest = position, events
            if not self._tell_rest():
                return

    def _tell_rest(self) -> bool:
        """Tell what is left of an entry, as far as there is room; says whether that was all of it."""
        while self._has_room():
            event = next(self._rest, None)
            if event is None:
                return True
            if self._is_wanted(event):
                self._connection.push(replies.push("event", as_map(event)))
        return False

    def _has_room(self) -> bool:
        return not (self._connection.ending or self._connection.is_full)

    def _is_wanted(self, event: Event) -> bool:
        prefixes = tuple(self.prefixes)
        return "" in self.prefixes or any(name.startswith(prefixes) for name in event.names)


def as_map(event: Event) -> dict[str, object]:
    """An event in the words of the protocol."""
    return {
        "kind": event.kind.value,
        "position": event.position,
        "at": event.at_ms,
        "session": event.session,
        "owner": event.owner,
        "names": list(event.names),
        "fence": event.fence,
        "detail": event.detail,
        "unix_ms": event.unix_ms,
        "session_meta": event.session_meta,
        "by": event.by,
    }
