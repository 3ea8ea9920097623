"""Cells: which names this service grants, if it is one of several. The laws, in every cell by itself
(how they are kept when something changes: `home_moves`):

1. A machine without a map grants every name, and nothing below costs it anything.
2. For each prefix of its map a machine has a *record*: open, closing or closed here. A name is granted only if the
   record of the longest prefix that it begins with is open. The map says which cell to ask instead, and decides no
   grant: a map that is old, or comes late, opens nothing.
3. A home moves as a slot does (`slot_moves`): *closed* where it was (no more grants, waiters are redirected),
   *sealed* when nothing of it is held, delayed or kept there, with a fence that none of its names ever exceeded,
   and *opened* elsewhere above that fence. So the fences of each name keep growing, and no two cells grant it.
4. Each step has a version, greater than any before it. What is not newer than what is known of a prefix changes
   nothing: a command that comes late opens nothing that has moved on. Steps are idempotent: a repeated one is
   answered the same.
5. A cell whose home was promoted elsewhere was told to close it, with a newer version; or is told when it is back.
6. A home that was sealed is opened again only by a version newer than its seal, of a move back, which first closes
   it at the destination of the move before. One that is closing may be opened again where it is.
7. A prefix that is new in a map has the stage its names had before; one that is not in it any more must stand as
   the prefix around it does. So a map changes no name's stage.
8. The first map founds the cells: what it gives to this one goes on as before. A cell that joins later has nothing
   open. To apply a map, all other cells first close and seal what is not theirs, then the fence here is raised.
9. A *leased* home grants only while another cell confirms it (`node.cell_keeper`). When it is not confirmed it
   lapses, by an entry: sessions that hold something of it end, what they held is not granted while their clients
   may still trust it, and waiters are refused. It begins lapsed, and is resumed by an entry. So is every home
   after a restore: a backup does not know what moved since.
"""

from collections.abc import Iterable, Sequence

from fencehold.core.outcomes import Code, Refused
from fencehold.core.state import CellState, HomeRecord, Stage


def refuse_away(cells: CellState, names: Iterable[str]) -> Refused | None:
    """Why names are not granted here, if one of them is at home in another cell, or nowhere at the moment."""
    for name in names:
        record = cells.record_of(name)
        if record.stage is not Stage.OPEN:
            return _where(cells, name, record)
        if record.prefix in cells.lapsed:
            return suspended(record.prefix)
    return None


def refuse_unknown_here(cells: CellState, name: str) -> Refused | None:
    """Why nothing is known of a name here, if so. Of one whose home is closing, something may be held."""
    record = cells.record_of(name)
    return _where(cells, name, record) if record.stage is Stage.CLOSED else None


def _where(cells: CellState, name: str, record: HomeRecord) -> Refused:
    placed = cells.map
    to = placed.home_of(name).cell if placed.version >= record.version else record.to
    if to == cells.cell or to not in placed.by_name:
        return Refused(Code.MOVING, f"names with {record.prefix!r} are on their way to cell {to}: ask again soon")
    return Refused(Code.ELSEWHERE, f"{to} {','.join(placed.by_name[to].addresses)}")


def suspended(prefix: str) -> Refused:
    detail = f"no other cell has confirmed lately that this one is the home of {prefix!r}: it may be cut off"
    return Refused(Code.SUSPENDED, detail)


def newer_records(cells: CellState, homes: Sequence[tuple[str, int]]) -> list[HomeRecord]:
    """Of homes that another cell believes to be its own, with their versions: those that have moved on since.

    An empty answer confirms: until this cell is told of a move, and one lease longer, it will not grant.
    """
    known = (cells.records.get(prefix) for prefix, _ in homes)
    return [
        record
        for record, (_, version) in zip(known, homes, strict=True)
        if record is not None and record.version > version
    ]
