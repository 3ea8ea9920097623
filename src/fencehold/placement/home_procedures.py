"""How a home is moved, promoted or reconciled with a map, step by step: what an operator's command carries out.

Each procedure is a generator: it yields a `Step` for one cell and is sent the reply; what the cell refuses, or
that it is not reached, is thrown into it. It may be interrupted anywhere, and be run again by any operator: it
looks first, and does what is left (`core.cells` has the laws that make that safe).

1. *Move*: announced to the cell it goes to, closed where it is open, sealed when nothing of it is left there,
   opened above the greatest fence of all other cells, then published to all. Every cell is asked: one that cannot
   be reached may be the home by a promotion that the others do not know of. An operator can vouch for a cell that
   is lost.
2. *Promote*: for a home that cannot be reached. All others promise first, by a record in their journals, not to
   confirm the old home any more. Then its lease is waited out, unless an operator says that it is switched off,
   and so is the lease of the clients that held something of it. It is opened above every fence the old home can
   have granted.
3. *Reconcile*: every prefix is closed and sealed wherever it is not at home, and then opened at home above that.
"""

from collections.abc import Generator, Mapping
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from fencehold.errors import Unavailable, UsageError
from fencehold.placement.cells import CellMap, PrefixHome, in_order

OPEN, CLOSING, CLOSED = "open", "closing", "closed"
DRIFT = 1.05
"""By how much clocks of two machines may differ in rate, and more: 2 % is what clients allow for."""
FENCE_MARGIN = 1 << 20
"""Microseconds by which a clock may be behind (see decision 7)."""


class HomeStatus(NamedTuple):
    """The status of a prefix in a cell."""

    stage: str
    version: int
    to: str
    fence: int
    names: int = 0
    """Still held or kept there, while it is closing."""
    map_version: int = 0


class CellStatus(NamedTuple):
    """The status of a cell. `map`: None, and no homes, if it never got one."""

    map: CellMap | None
    homes: Mapping[str, HomeStatus]
    fence: int


class Look(NamedTuple):
    """Ask for the status; answered with `CellStatus`."""


class Apply(NamedTuple):
    map: CellMap


class Close(NamedTuple):
    """Answered with `HomeStatus`, as are the next two."""

    prefix: str
    to: str
    version: int


class Seal(NamedTuple):
    prefix: str
    version: int
    force: bool


class Open(NamedTuple):
    prefix: str
    fence: int
    version: int
    map_version: int


class Wait(NamedTuple):
    """Let time pass, by a monotonic clock, and say what for."""

    seconds: float
    why: str


Ask: TypeAlias = Look | Apply | Close | Seal | Open | Wait


class Step(NamedTuple):
    """What to ask of a cell; of none, to wait."""

    cell: str
    ask: Ask


Reply: TypeAlias = CellStatus | HomeStatus | None
Procedure: TypeAlias = Generator[Step, Reply, CellMap]
POLL_S = 0.05


class Choice(NamedTuple):
    """The options that an operator has for a move."""

    force: bool = False
    """End what is held of it, rather than wait."""
    without: frozenset[str] = frozenset()
    """Cells that are lost or switched off, as the operator says."""


NO_CHOICE = Choice()


def move(placed: CellMap, prefix: str, to: str, choice: Choice = NO_CHOICE) -> Procedure:
    """Let a cell be the home of a prefix. `placed`: any map of the cells that is known."""
    seen = yield from _look(placed, choice.without)
    placed = _newest(placed, seen)
    _check(placed, to)
    if prefix not in placed.by_prefix:
        placed, seen = yield from _split(placed, prefix, seen)
    records = {cell: status.homes[prefix] for cell, status in seen.items() if prefix in status.homes}
    if to not in records:
        raise UsageError(f"cell {to!r} does not know {prefix!r}: run `fencehold cells apply` first")
    version = _version_of_move(records, to, _top(seen))
    others = {cell: record for cell, record in records.items() if cell != to}
    own = records[to]
    if own.stage != OPEN and own.version < version:
        yield Step(to, Close(prefix, to, version))
    for cell, record in sorted(others.items()):
        if _may_open(cell, record, records) and (record.stage == OPEN or record.version < version):
            others[cell] = yield from _status(Step(cell, Close(prefix, to, version)))
    sealed = yield from _sealed(prefix, others, force=choice.force)
    fence = max((each.fence for each in sealed.values()), default=0)
    needed = max((each.map_version for each in sealed.values()), default=placed.version)
    if needed > placed.version:
        raise Unavailable("the map was changed meanwhile: run the command again")
    yield Step(to, Apply(placed))
    yield Step(to, Open(prefix, fence, version, placed.version))
    return (yield from _publish(placed, prefix, to, seen, version))


class Loss(NamedTuple):
    """How a home was lost, and what is known of its clients."""

    now_us: int
    """The time of day in microseconds: fences go above it, as after a restore."""
    hold_ttl_s: float
    """How long clients of the lost home may trust what they hold."""
    switched_off: bool = False
    without: frozenset[str] = frozenset()
    fence_above: int = 0


def promote(placed: CellMap, prefix: str, to: str, loss: Loss) -> Procedure:
    """Let a cell be the home of a prefix whose home is lost."""
    lost = placed.home_of(prefix).cell
    seen = yield from _look(placed, loss.without | {lost})
    placed = _newest(placed, seen)
    _check(placed, to)
    lost = placed.home_of(prefix).cell
    if prefix not in placed.by_prefix:
        raise UsageError(f"the map has no prefix {prefix!r}: promote one that it has, then move what is to go on")
    if lost == to:
        raise UsageError(f"cell {to!r} is the home of {prefix!r} already")
    if lost in seen:
        raise UsageError(f"cell {lost!r} answers: run `fencehold home move` instead")
    if not loss.switched_off and not _was_leased(placed, prefix):
        raise UsageError(
            f"{prefix!r} has no lease: cell {lost!r} may be alive, cut off, and grant its names. See that it is "
            "switched off, and add --switched-off"
        )
    version = max(_top(seen), placed.version) + 1
    for cell in sorted(seen, key=lambda cell: cell == to):
        yield Step(cell, Close(prefix, to, version))
    lease_s = 0.0 if loss.switched_off else placed.wait_ms / 1000 * DRIFT
    if lease_s:
        yield Step("", Wait(lease_s, f"the lease of cell {lost} runs out"))
    if loss.hold_ttl_s:
        yield Step("", Wait(loss.hold_ttl_s * DRIFT, f"what clients hold of cell {lost} runs out"))
    heard = max(status.fence for status in seen.values())
    fence = max(loss.now_us, heard + FENCE_MARGIN, loss.fence_above)
    yield Step(to, Apply(placed))
    yield Step(to, Open(prefix, fence, version, placed.version))
    cells = tuple(replace(cell, out=cell.out or cell.name == lost) for cell in placed.cells)
    return (yield from _publish(replace(placed, cells=cells), prefix, to, seen, version))


def reconcile(target: CellMap, *, force: bool = False) -> Procedure:
    """Apply a map to all its cells; homes that differ from what is there are moved.

    `target`: its version counts only if no cell has a map.
    """
    seen = yield from _look(target, frozenset())
    known = [status.map for status in seen.values() if status.map is not None]
    placed = max(known, key=lambda each: each.version, default=None)
    first = _without_moves(placed, target)
    top = max(_top(seen), 0 if placed is None else placed.version)
    is_there = bool(known) and all(status.map is not None for status in seen.values())
    if (
        placed is None
        or not is_there
        or not _says_same(placed, first)
        or len({each.version for each in known}) > 1
    ):
        first = replace(first, version=top + 1, wait_ms=max(first.lease_ms, placed.wait_ms if placed else 0))
        for cell in sorted(seen):
            yield Step(cell, Apply(first))
    else:
        first = placed
    for home in first.homes:
        yield from _settle(first, home, force)
    for home in target.homes:
        if first.home_of(home.prefix).cell != home.cell:
            first = yield from move(first, home.prefix, home.cell, Choice(force))
    return first


def _settle(placed: CellMap, home: PrefixHome, force: bool) -> Generator[Step, Reply, None]:
    """Have a prefix closed and sealed wherever it is not at home, and raise the fence where it is."""
    seen = yield from _look(placed, frozenset())
    others = {cell: status.homes[home.prefix] for cell, status in seen.items() if cell != home.cell}
    for cell, record in sorted(others.items()):
        if record.stage == OPEN:
            raise UsageError(
                f"{home.prefix!r} is open in cell {cell!r}, and the map says {home.cell!r}: run `home move`"
            )
    sealed = yield from _sealed(home.prefix, others, force=force)
    own, fence = seen[home.cell].homes[home.prefix], max((each.fence for each in sealed.values()), default=0)
    if own.stage == OPEN and fence > seen[home.cell].fence:
        yield Step(home.cell, Open(home.prefix, fence, own.version, placed.version))


def _without_moves(placed: CellMap | None, target: CellMap) -> CellMap:
    """The target with the homes that there are: they are moved one by one, later."""
    if placed is None:
        return target
    homes = {}
    for home in target.homes:
        now = placed.home_of(home.prefix)
        homes[home.prefix] = replace(home, cell=now.cell if now.cell in target.by_name else home.cell)
    gone = [home for home in placed.homes if home.cell not in target.by_name]
    if gone:
        raise UsageError(
            f"cell {gone[0].cell!r} is the home of {gone[0].prefix!r}: move that before the map does without it"
        )
    for home in placed.homes:
        around = target.home_of(home.prefix)
        if home.prefix not in target.by_prefix and placed.home_of(around.prefix).cell != home.cell:
            raise UsageError(
                f"{home.prefix!r} is at home in {home.cell!r}, and {around.prefix!r} is not: move it there before "
                "the map does without it"
            )
    return replace(target, homes=in_order(homes.values()))


def _says_same(one: CellMap, other: CellMap) -> bool:
    return replace(one, version=0, wait_ms=0) == replace(other, version=0, wait_ms=0)


def _look(placed: CellMap, without: frozenset[str]) -> Generator[Step, Reply, dict[str, CellStatus]]:
    """The status of all cells; those of `without` may be silent."""
    seen: dict[str, CellStatus] = {}
    for cell in sorted(placed.by_name):
        try:
            status = yield Step(cell, Look())
        except Unavailable as error:
            if cell not in without:
                raise Unavailable(f"cell {cell!r} cannot be reached, and must be asked: {error}") from error
            continue
        if not isinstance(status, CellStatus):
            raise TypeError(f"a cell replies with its status, not {status!r}")
        seen[cell] = status
    return seen


def _status(step: Step) -> Generator[Step, Reply, HomeStatus]:
    status = yield step
    if not isinstance(status, HomeStatus):
        raise TypeError(f"a cell replies with the status of a home, not {status!r}")
    return status


def _sealed(
    prefix: str, others: Mapping[str, HomeStatus], *, force: bool
) -> Generator[Step, Reply, dict[str, HomeStatus]]:
    """Wait until nothing of a prefix is left in these cells."""
    found: dict[str, HomeStatus] = {}
    for cell, status in sorted(others.items()):
        found[cell] = status
        while found[cell].stage != CLOSED:
            found[cell] = yield from _status(Step(cell, Seal(prefix, found[cell].version, force)))
            if found[cell].stage != CLOSED:
                why = f"{found[cell].names} names with {prefix!r} are still held in cell {cell}"
                yield Step("", Wait(POLL_S, why))
    return found


def _split(
    placed: CellMap, prefix: str, seen: dict[str, CellStatus]
) -> Generator[Step, Reply, tuple[CellMap, dict[str, CellStatus]]]:
    """Add a prefix that no map knows to all maps, at home where its names are."""
    version = max(_top(seen), placed.version) + 1
    placed = placed.moved(prefix, placed.home_of(prefix).cell, version)
    for cell in sorted(seen):
        yield Step(cell, Apply(placed))
    again = yield from _look(placed, frozenset(placed.by_name) - seen.keys())
    return placed, again


def _publish(
    placed: CellMap, prefix: str, to: str, seen: Mapping[str, CellStatus], version: int
) -> Generator[Step, Reply, CellMap]:
    """Tell all cells that were reached where the home is now; others learn it from those."""
    if placed.by_prefix[prefix].cell == to and placed.version >= version:
        told = placed
    else:
        told = placed.moved(prefix, to, max(version, placed.version + 1))
    for cell in sorted(seen, key=lambda cell: cell != to):
        yield Step(cell, Apply(told))
    return told


def _version_of_move(records: Mapping[str, HomeStatus], to: str, top: int) -> int:
    """That of a move that was begun and is not done, if this is the same; otherwise a new one."""
    newest = max(record.version for record in records.values())
    own = records[to]
    if own.stage == OPEN:
        is_done = all(record.stage != OPEN or cell == to for cell, record in records.items())
        return own.version if is_done and own.version == newest else top + 1
    begun = [record for record in records.values() if record.version == newest]
    if all(record.to == to and record.stage != OPEN for record in begun):
        return newest
    return top + 1


def _may_open(cell: str, record: HomeStatus, records: Mapping[str, HomeStatus]) -> bool:
    """Whether a cell grants, or drains, or may yet be told to open what was sealed elsewhere for it."""
    return record.stage != CLOSED or any(other.to == cell for other in records.values())


def _top(seen: Mapping[str, CellStatus]) -> int:
    """The greatest version that anything has."""
    versions = [record.version for status in seen.values() for record in status.homes.values()]
    return max([*versions, *(status.map.version for status in seen.values() if status.map is not None)], default=0)


def _newest(placed: CellMap, seen: Mapping[str, CellStatus]) -> CellMap:
    for status in seen.values():
        if status.map is not None:
            placed = placed.newest(status.map)
    return placed


def _was_leased(placed: CellMap, prefix: str) -> bool:
    return placed.is_leased(prefix)


def _check(placed: CellMap, to: str) -> None:
    if to not in placed.by_name:
        raise UsageError(f"there is no cell {to!r}: the map has {', '.join(sorted(placed.by_name))}")
