"""Tiers on the wire: which of the two machines a connection belongs to.

1. A connection belongs to one machine: to that of the journal, unless it asks for the other.
2. It may ask only while it has nothing at either: no session, no watch, no reply that is due. So what it opened,
   holds and hears of is all of one machine, and no command has to say which.
"""

from fencehold.doors.resp import replies
from fencehold.doors.resp.arguments import Wrong, exactly, shown
from fencehold.doors.resp.connection import Connection, Handler, Slot
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
    if connection.member is not None or not connection.is_plain or connection.awaiting_session:
        raise Wrong("the tier is chosen before the first session of a connection: use another connection")
    if connection.watching is not None or connection.goodbye is not None:
        raise Wrong("the tier is chosen before the first watch of a connection: use another connection")
    if connection.awaits_replies > 1:
        raise Wrong("the tier cannot change while replies are due")
    connection.node = node
    connection.take_place()


def _machine_of(connection: Connection, word: bytes) -> Node:
    door = connection.door
    match word.upper():
        case b"CORRECTNESS":
            return door.node
        case b"EFFICIENCY" if door.volatile is not None:
            return door.volatile.node
        case b"EFFICIENCY":
            raise Wrong(f"this server has no {Tier.EFFICIENCY.name} tier")
        case _:
            raise Wrong(f"a tier is EFFICIENCY or CORRECTNESS, not {shown(word)}")


HANDLERS: dict[bytes, Handler] = {b"TIER": tier}
