"""Cells on the wire: the map of prefixes to cells, moving homes, and what one cell asks of another.

1. `CELL.MAP STALE` is for clients: any node answers it, as it knows it. Without `STALE` it is current, for a
   client that is about to change it.
2. A change is about one shard, if there are several: an operator's command goes through all of them.
3. `CELL.CONFIRM` is answered by the leader of the first shard alone, after a barrier: what a replaced leader
   believes confirms nothing.
"""

from functools import partial

import msgspec

from fencehold.core.cells import newer_records
from fencehold.core.commands import ApplyCells, CloseHome, Command, OpenHome, SealHome
from fencehold.core.outcomes import CellsApplied, HomeClosed, HomeClosing, HomeOpened, Outcome
from fencehold.core.state import State
from fencehold.doors.resp.answers import refuse, tell_found
from fencehold.doors.resp.arguments import exactly, number, shown, text
from fencehold.doors.resp.connection import Connection, Handler, Slot
from fencehold.doors.resp.guard import Denied
from fencehold.doors.resp.policy_commands import is_admin
from fencehold.doors.resp.usage_errors import Wrong
from fencehold.errors import FenceholdError
from fencehold.placement.cells import PREFIXES_MAX, CellMap

_decode_map = msgspec.json.Decoder(CellMap).decode
_decode_homes = msgspec.json.Decoder(list[tuple[str, int]]).decode
_encode = msgspec.json.Encoder().encode


def cell_map(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """CELL.MAP [STALE]: which cell this is, the map as JSON, and what each prefix is here."""
    exactly(words, 0, 1)
    question = partial(_shown, connection.door.spans.value)
    if len(words) == 1:
        connection.place.ask(question, partial(tell_found, slot))
    elif words[1].upper() == b"STALE":
        connection.place.look(question, partial(tell_found, slot))
    else:
        raise Wrong(f"CELL.MAP takes STALE, not {shown(words[1])}")


def _shown(spans: str, state: State) -> dict[str, object]:
    cells = state.cells
    if cells is None:
        return {"version": 0, "cell": "", "map": "", "spans": spans, "fence": state.fence, "homes": []}
    homes = [
        [record.prefix, record.stage.value, record.version, record.to, record.fence, int(prefix in cells.lapsed)]
        for prefix, record in sorted(cells.records.items())
    ]
    return {
        "version": cells.map.version,
        "cell": cells.cell,
        "map": _encode(cells.map).decode(),
        "spans": spans,
        "fence": state.fence,
        "homes": homes,
    }


def apply(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """CELL.APPLY cell map: take a newer map, as JSON; the first says which cell this is."""
    exactly(words, 2)
    try:
        placed = _decode_map(words[2])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Wrong(f"that is not a map of cells: {error}") from None
    _submit(connection, ApplyCells(placed, text(words[1], "the cell")), slot)


def close(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """CELL.CLOSE prefix cell version: grant nothing of a prefix any more, as it moves to a cell."""
    exactly(words, 3)
    prefix, to = text(words[1], "the prefix"), text(words[2], "the cell")
    _submit(connection, CloseHome(prefix, to, number(words[3], "the version")), slot)


def seal(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """CELL.SEAL prefix version [FORCE]: the fence above which a prefix may be opened elsewhere, if nothing is
    left."""
    exactly(words, 2, 3)
    if len(words) == 4 and words[3].upper() != b"FORCE":
        raise Wrong(f"CELL.SEAL takes FORCE, not {shown(words[3])}")
    prefix, version = text(words[1], "the prefix"), number(words[2], "the version")
    _submit(connection, SealHome(prefix, version, len(words) == 4), slot)


def open_(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """CELL.OPEN prefix fence version map_version: grant the names of a prefix from here on, above a fence."""
    exactly(words, 4)
    numbers = [
        number(word, what) for word, what in zip(words[2:], ("the fence", "the version", "the map"), strict=True)
    ]
    _submit(connection, OpenHome(text(words[1], "the prefix"), *numbers), slot)


def _submit(connection: Connection, command: Command, slot: Slot) -> None:
    connection.place.submit(command, partial(_done, slot))


def _done(slot: Slot, outcome: Outcome | FenceholdError, at_ms: int) -> None:
    match outcome:
        case CellsApplied():
            slot.reply({"version": outcome.version})
        case HomeClosing():
            _tell_home(slot, "closing", outcome.version, outcome.to, 0, outcome.names, 0)
        case HomeClosed():
            _tell_home(slot, "closed", outcome.version, outcome.to, outcome.fence, 0, outcome.map_version)
        case HomeOpened():
            _tell_home(slot, "open", outcome.version, "", outcome.fence, 0, 0)
        case _:
            refuse(slot, outcome, at_ms)


def _tell_home(slot: Slot, stage: str, version: int, to: str, fence: int, names: int, map_version: int) -> None:
    told = {"stage": stage, "version": version, "to": to, "fence": fence}
    slot.reply(told | {"names": names, "map_version": map_version})


def confirm(connection: Connection, words: list[bytes], slot: Slot) -> None:
    """CELL.CONFIRM asker map_version homes: those that have moved on; none: all are confirmed."""
    exactly(words, 3)
    if connection.door.asks and not connection.door.is_node(connection) and not is_admin(connection):
        raise Denied("only nodes of cells ask, and they show a certificate of the same name as this node's own")
    asker, version = text(words[1], "the cell"), number(words[2], "the version")
    try:
        homes = _decode_homes(words[3])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Wrong(f"homes are prefixes and versions, as JSON: {error}") from None
    if len(homes) > PREFIXES_MAX:
        raise Wrong(f"a cell has at most {PREFIXES_MAX} homes")
    connection.door.node.ask(partial(_confirmed, asker, version, homes), partial(tell_found, slot))


def _confirmed(asker: str, version: int, homes: list[tuple[str, int]], state: State) -> object:
    cells = state.cells
    if cells is None or asker not in cells.map.by_name:
        return FenceholdError(f"this cell does not know a cell {asker!r}")
    newer = [[record.prefix, record.version, record.to] for record in newer_records(cells, homes)]
    told = _encode(cells.map).decode() if cells.map.version > version else ""
    return {"newer": newer, "map": told, "fence": state.fence}


HANDLERS: dict[bytes, Handler] = {
    b"CELL.MAP": cell_map,
    b"CELL.APPLY": apply,
    b"CELL.CLOSE": close,
    b"CELL.SEAL": seal,
    b"CELL.OPEN": open_,
    b"CELL.CONFIRM": confirm,
}
