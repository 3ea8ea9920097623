"""Tiers on the wire: which of the two machines a connection belongs to.

1. A connection belongs to one machine: to that of the journal, unless it asks for the other.
2. It may ask only while it has nothing at either: no session, no watch, no pending reply. So what it opens, holds
   and watches is all of one machine, and no command has to say which.
"""

from fencehold.doors.resp import replies
from fencehold.doors.resp.arguments import exactly, shown
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.usage_errors import Wrong
from fencehold.node.node import Node
from fencehold.types import Tier


def tier(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """TIER [EFFICIENCY | CORRECTNESS]: choose; without a word, which one it is."""
    exactly(words, 0, 1)
    if len(words) == 1:
        slot.reply(connection.node.tier.name)
    else:
        choose(connection, words[1])
        slot.fill(replies.OK)


def choose(connection: Connection, word: bytes) -> None:
    """Let a connection belong to the machine of a tier."""
    node = _machine_of(connection, word)
    if node is connection.node:
        return
    check_free(connection, "tier")
    connection.node = node
    connection.take_place()


def check_free(connection: Connection, what: str) -> None:
    """See that a connection has nothing yet, and can choose a machine.

    Raises:
        Wrong: it has a session or a watch, or replies are due.
    """
    if connection.members() or not connection.is_plain or connection.awaiting_session or connection.branches:
        raise Wrong(f"the {what} is chosen before the first session of a connection: use another connection")
    if connection.watching is not None or connection.goodbye is not None:
        raise Wrong(f"the {what} is chosen before the first watch of a connection: use another connection")
    if connection.awaits_replies > 1:
        raise Wrong(f"the {what} cannot change while replies are due")


def _machine_of(connection: Connection, word: bytes) -> Node:
    match word.upper():
        case b"CORRECTNESS" | b"EFFICIENCY":
            wanted = Tier[word.upper().decode()]
        case _:
            raise Wrong(f"a tier is EFFICIENCY or CORRECTNESS, not {shown(word)}")
    node = connection.door.machine_of(connection.place, wanted)
    if node is None:
        raise Wrong(f"this server has no {wanted.name} tier")
    return node


HANDLERS: dict[bytes, Handler] = {b"TIER": tier}
