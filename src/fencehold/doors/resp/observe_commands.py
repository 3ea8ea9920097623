"""History and metrics: LOCK.HISTORY and METRICS.

Both are about the node that is asked, whether it leads or not, and answered by the process that observes it. The
reply is JSON: this node only passes it on.
"""

import json
from functools import partial
from typing import TYPE_CHECKING

from fencehold.core.policy import Verb
from fencehold.core.rulebook import denied
from fencehold.doors.resp.answers import refuse
from fencehold.doors.resp.arguments import at_least, exactly, kinds, number, options, text
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.guard import Denied
from fencehold.doors.resp.usage_errors import Wrong
from fencehold.errors import FenceholdError
from fencehold.node.node import Node
from fencehold.observe.figures import figures_of
from fencehold.observe.frames import Asked

if TYPE_CHECKING:
    from fencehold.doors.resp.door import Door

_HISTORY = kinds(AT=("at", number), SINCE=("since", number), UNTIL=("until", number), COUNT=("count", number))
_COUNT = 100


def history(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """LOCK.HISTORY name [AT ms | SINCE ms UNTIL ms] [COUNT n]: times are Unix milliseconds."""
    at_least(words, 1)
    name, found = text(words[1], "a name"), options(words, 2, _HISTORY)
    # Of the node itself, though the connection may be of the other tier.
    book = connection.door.node.rulebook
    if book is not None and not book.rights_of(connection.principal).sees(name):
        raise Denied(denied(connection.principal, Verb.OBSERVE, name).detail)
    if "at" in found and ("since" in found or "until" in found):
        raise Wrong("give either AT, or SINCE and UNTIL")
    since, until = (found["at"],) * 2 if "at" in found else (found.get("since"), found.get("until"))
    observer, (shard, node) = connection.door.observer, _home_of(connection, name)
    if observer is None or not observer.keeps_history:
        raise Wrong("this server keeps no history: start it with `--data DIRECTORY`, or `--history-file FILE`")
    state = node.replica.machine.state if node.role != "waiting" else None
    asked = Asked(0, name, since, until, found.get("count", _COUNT) or 1, None, shard)
    observer.ask_history(state, asked, partial(_found, slot))


def _home_of(connection: Connection, name: str) -> tuple[int, Node]:
    """The shard of a name, and what this node knows of it: every node follows all shards."""
    shards = connection.door.shards
    if shards is None:
        return 0, connection.door.node
    shard = shards.shard_of(name)
    return shard, shards.hosts[shard].node


def _found(slot: Slot, found: bytes | FenceholdError) -> None:
    if slot.connection.ending:
        return
    if isinstance(found, FenceholdError):
        refuse(slot, found, 0)
    else:
        slot.reply(found)


def metrics(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """METRICS: the figures of this node by metric, with their labels, as JSON."""
    exactly(words, 0)
    door = connection.door
    book = door.node.rulebook
    if book is not None and not {Verb.OBSERVE, Verb.ADMIN} & book.rights_of(connection.principal).everywhere:
        raise Denied(denied(connection.principal, Verb.OBSERVE, "").detail)
    figures = figures_of(_machines(door))
    figures["fencehold_connections"] = [[[], len(door.connections)]]
    figures["fencehold_throttled_clients"] = [[[], door.traffic.throttled]]
    figures["fencehold_commands_unknown_total"] = [[[], door.unknown_commands]]
    figures["fencehold_denials_total"] = [[[], door.denials]]
    if door.observer is None:
        slot.reply(_joined(json.dumps(figures).encode(), b"{}"))
        return
    figures.update(door.observer.figures)
    door.observer.ask_figures(partial(_measured, slot, json.dumps(figures).encode()))


def _machines(door: "Door") -> list[tuple[Node, Node | None]]:
    if door.shards is not None:
        return [(host.node, host.volatile.node) for host in door.shards.hosts]
    return [(door.node, None if door.volatile is None else door.volatile.node)]


def _measured(slot: Slot, figures: bytes, counted: bytes) -> None:
    if not slot.connection.ending:
        slot.reply(_joined(figures, counted))


def _joined(figures: bytes, counted: bytes) -> bytes:
    return b'{"looked_up":' + figures + b',"counted":' + counted + b"}"


HANDLERS: dict[bytes, Handler] = {b"LOCK.HISTORY": history, b"METRICS": metrics}
