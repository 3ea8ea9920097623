"""Backups on the wire: the state of the node that leads, asked for in pieces by a client that writes a file.

It is about the journal's machine, whatever the connection's tier. What is read in pieces stalls no other client:
each piece is a reply like any other, and between two of them others are served.
"""

import asyncio
from functools import partial
from typing import Any

from fencehold.doors.resp import replies
from fencehold.doors.resp.answers import refuse
from fencehold.doors.resp.arguments import exactly, shown
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.usage_errors import Wrong
from fencehold.errors import FenceholdError, Unavailable
from fencehold.node.online_backup import OnlineBackup, begin

_TURN_S_MAX = 30.0
"""How long to wait while another snapshot is in progress."""
_AGAIN_S = 0.2


def backup(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """NODE.BACKUP begins one; with NEXT it returns the next piece, null after the last; END abandons it."""
    exactly(words, 0, 1)
    match words[1].upper() if len(words) > 1 else b"BEGIN":
        case b"BEGIN":
            connection.end_backup()
            _begin(connection, slot, connection.door.now() + _TURN_S_MAX)
        case b"NEXT":
            _next(connection, slot)
        case b"END":
            connection.end_backup()
            slot.fill(replies.OK)
        case word:
            raise Wrong(f"NODE.BACKUP does not know {shown(word)}: it is BEGIN, NEXT or END")


def _begin(connection: Connection, slot: Slot, until: float) -> None:
    # As a question: it is answered when all that it saw is durable.
    node = connection.place
    node.ask(partial(begin, connection.door.now()), partial(_on_begun, connection, slot, until))


def _on_begun(connection: Connection, slot: Slot, until: float, found: Any) -> None:
    if isinstance(found, OnlineBackup):
        _offer(connection, slot, found)
    elif isinstance(found, FenceholdError):
        refuse(slot, found, 0)
    elif connection.door.now() >= until:
        refuse(slot, Unavailable("another snapshot or backup is in progress; try again when it is done"), 0)
    elif not connection.ending:
        asyncio.get_running_loop().call_later(_AGAIN_S, _begin, connection, slot, until)


def _offer(connection: Connection, slot: Slot, begun: OnlineBackup) -> None:
    if connection.ending:
        begun.close()
        return
    node = connection.place
    connection.backup = begun
    slot.reply(
        {
            "engine": node.journal.declared.engine,
            "epoch": node.epoch,
            "position": begun.position,
            "fence": begun.fence,
            "logical_ms": begun.logical_ms,
        }
    )


def _next(connection: Connection, slot: Slot) -> None:
    if connection.backup is None:
        raise Wrong("no backup is in progress here, or it was abandoned: begin one with NODE.BACKUP")
    piece = connection.backup.piece(connection.door.now())
    slot.reply(piece or None)
    if not piece:
        connection.backup = None


HANDLERS: dict[bytes, Handler] = {b"NODE.BACKUP": backup}
