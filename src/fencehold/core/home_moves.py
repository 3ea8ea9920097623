"""Maps that are applied, homes that are closed, sealed and opened, leases that lapse: what changes which names a
cell grants. The laws are those of `cells`.
"""

from itertools import chain

from fencehold.core.cells import refuse_away, suspended
from fencehold.core.commands import (
    ApplyCells,
    CloseHome,
    LapseHomes,
    OpenHome,
    ResumeHomes,
    SealHome,
)
from fencehold.core.grants import FENCE_MAX
from fencehold.core.outcomes import (
    CellsApplied,
    Code,
    Ending,
    HomeClosed,
    HomeClosing,
    HomeOpened,
    HomesLapsed,
    HomesResumed,
    Refused,
)
from fencehold.core.queues import end_wait, hand_on
from fencehold.core.sessions import end_session
from fencehold.core.state import CellState, HomeRecord, Stage, State
from fencehold.placement.cells import CellMap

# Maps.


def apply_cells(state: State, command: ApplyCells) -> CellsApplied | Refused:
    """Take a map that is newer than the one that is known."""
    placed, cells = command.map, state.cells
    problem = placed.problem()
    if problem or command.cell not in placed.by_name:
        return Refused(Code.USAGE, problem or f"the map knows no cell {command.cell!r}")
    if cells is None:
        _found(state, command)
        return CellsApplied(placed.version)
    if cells.cell != command.cell:
        return Refused(Code.USAGE, f"this is cell {cells.cell!r}, not {command.cell!r}")
    if placed == cells.map:
        return CellsApplied(placed.version)
    if placed.version <= cells.map.version:
        return Refused(Code.CONFLICT, f"the map here has version {cells.map.version} already: read it again")
    return _replace(cells, placed)


def _found(state: State, command: ApplyCells) -> None:
    placed = command.map
    records = {}
    for home in placed.homes:
        is_own = placed.version == 1 and home.cell == command.cell
        stage = Stage.OPEN if is_own else Stage.CLOSING
        records[home.prefix] = HomeRecord(home.prefix, placed.version, stage, home.cell, 0)
    cells = state.cells = CellState(command.cell, placed, records)
    cells.lapsed = cells.open_leased()
    for prefix, record in records.items():
        if record.stage is Stage.CLOSING:
            _send_on(state, cells, prefix)


def _replace(cells: CellState, placed: CellMap) -> CellsApplied | Refused:
    gone = [prefix for prefix in cells.records if prefix not in placed.by_prefix]
    for prefix in gone:
        around = cells.record_around(prefix, placed)
        is_alike = around.stage is cells.records[prefix].stage and around.stage is not Stage.CLOSING
        if not is_alike or (prefix in cells.lapsed) is not (around.prefix in cells.lapsed):
            return Refused(
                Code.CONFLICT,
                f"{prefix!r} is {cells.records[prefix].stage.value} in cell {cells.cell}, and {around.prefix!r} "
                f"{around.stage.value}: move them to one home before the map knows only one of them",
            )
    before = cells.open_leased()
    records = {prefix: record for prefix, record in cells.records.items() if prefix in placed.by_prefix}
    added = [home.prefix for home in placed.homes if home.prefix not in records]
    inherited: set[str] = set()
    for prefix in added:
        around = cells.record_of(prefix)
        records[prefix] = HomeRecord(prefix, placed.version, around.stage, around.to, around.fence)
        if around.prefix in cells.lapsed:
            inherited.add(prefix)
    cells.map = placed
    cells.set_records(records)
    # What has become leased was not, and is confirmed before it grants again; what was split off is as it was.
    fresh = cells.open_leased() - before - set(added)
    # What needs no confirmation any more, as no cell is left to give it, is not waited for.
    eased = before - cells.open_leased()
    cells.lapsed = ((cells.lapsed & records.keys()) | inherited | fresh) - eased
    cells.draining.clear()
    return CellsApplied(placed.version)


# Moves.


def close_home(state: State, command: CloseHome) -> HomeClosing | HomeClosed | Refused:
    """Grant no name of a prefix any more: it moves to another cell, or has been promoted there."""
    found = _found_record(state, command.prefix)
    if isinstance(found, Refused):
        return found
    cells, record = found
    if command.to == cells.cell and record.stage is Stage.OPEN:
        return Refused(
            Code.USAGE, f"{command.prefix!r} is open in cell {cells.cell}: it cannot be on its way there"
        )
    if record.stage is not Stage.OPEN and (record.to, record.version) == (command.to, command.version):
        return _told(state, cells, record)
    if _is_old(record, command.version):
        return _old(record)
    stage = Stage.CLOSED if record.stage is Stage.CLOSED else Stage.CLOSING
    record = HomeRecord(record.prefix, command.version, stage, command.to, record.fence)
    cells.records[record.prefix] = record
    cells.lapsed.discard(record.prefix)
    if stage is Stage.CLOSING:
        _send_on(state, cells, record.prefix)
    return _told(state, cells, record)


def seal_home(state: State, command: SealHome) -> HomeClosing | HomeClosed | Refused:
    """Say above which fence a prefix may be opened elsewhere, if nothing of it is left here."""
    found = _found_record(state, command.prefix)
    if isinstance(found, Refused):
        return found
    cells, record = found
    if record.version != command.version:
        return _old(record)
    if record.stage is Stage.OPEN:
        return Refused(Code.USAGE, f"{command.prefix!r} is not being closed here")
    if record.stage is Stage.CLOSING and command.force:
        _end_holders(state, cells, {record.prefix})
        cells.draining.pop(record.prefix, None)
    if record.stage is Stage.CLOSING and not _left(state, cells, record.prefix):
        record = HomeRecord(record.prefix, record.version, Stage.CLOSED, record.to, state.fence)
        cells.records[record.prefix] = record
        cells.draining.pop(record.prefix, None)
    return _told(state, cells, record)


def open_home(state: State, command: OpenHome) -> HomeOpened | Refused:
    """Grant the names of a prefix from here on, above a fence; or, where they are granted, raise the fence."""
    found = _found_record(state, command.prefix)
    if isinstance(found, Refused):
        return found
    cells, record = found
    if not 0 <= command.fence <= FENCE_MAX:
        return Refused(Code.USAGE, f"a fence is 0 to {FENCE_MAX}, not {command.fence}")
    if cells.map.version < command.map_version:
        # It may not know a longer prefix that is open elsewhere, and would grant its names by this one.
        known, needed = cells.map.version, command.map_version
        detail = f"the map here has version {known}, and {needed} is needed: apply it first"
        return Refused(Code.CONFLICT, detail)
    is_same = record.stage is Stage.OPEN and record.version == command.version
    is_expected = record.version == command.version and record.to == cells.cell
    if not is_same and not is_expected and _is_old(record, command.version):
        return _old(record)
    if is_same and record.fence >= command.fence:
        return HomeOpened(record.prefix, record.version, record.fence)
    state.fence = max(state.fence, command.fence)
    opened = HomeRecord(record.prefix, command.version, Stage.OPEN, cells.cell, state.fence)
    cells.records[record.prefix] = opened
    cells.draining.pop(record.prefix, None)
    if record.stage is not Stage.OPEN and cells.map.is_leased(record.prefix):
        cells.lapsed.add(record.prefix)
    return HomeOpened(opened.prefix, opened.version, opened.fence)


# Leases.


def lapse_homes(state: State, command: LapseHomes) -> HomesLapsed:
    """Grant nothing of these homes until they are resumed, and end the sessions that hold something of them."""
    cells = state.cells
    if cells is None:
        return HomesLapsed(0)
    prefixes = {prefix for prefix in command.prefixes or cells.records if cells.is_open(prefix)}
    cells.lapsed |= prefixes
    return HomesLapsed(_end_holders(state, cells, prefixes))


def resume_homes(state: State, command: ResumeHomes) -> HomesResumed:
    """Grant again what another cell has confirmed, if it stands as it was confirmed."""
    cells = state.cells
    if cells is None:
        return HomesResumed(0)
    confirmed = {
        prefix
        for prefix, version in command.homes
        if cells.is_open(prefix) and cells.records[prefix].version == version and prefix in cells.lapsed
    }
    cells.lapsed -= confirmed
    return HomesResumed(len(confirmed))


# What they share.


def _found_record(state: State, prefix: str) -> tuple[CellState, HomeRecord] | Refused:
    cells = state.cells
    if cells is None:
        return Refused(Code.USAGE, "this service is not a cell: apply a map first")
    record = cells.records.get(prefix)
    if record is None:
        return Refused(Code.CONFLICT, f"{prefix!r} is not in map {cells.map.version} of cell {cells.cell}")
    return cells, record


def _send_on(state: State, cells: CellState, prefix: str) -> None:
    """Redirect all waiters for names of the prefix, first come first."""
    _refuse_waiters(state, cells, {prefix}, None)


def _refuse_waiters(state: State, cells: CellState, prefixes: set[str], answer: Refused | None) -> None:
    names = {name for name in state.queues if cells.prefix_of(name) in prefixes}
    tickets = sorted({ticket for name in names for ticket in state.queues[name]})
    freed: list[str] = []
    for ticket in tickets:
        waiter = state.waiters[ticket]
        freed += waiter.ask.names
        end_wait(state, waiter, answer or refuse_away(cells, waiter.ask.names) or suspended(""))
    # Names of other prefixes that the same requests were queued for.
    hand_on(state, freed)


def _end_holders(state: State, cells: CellState, prefixes: set[str]) -> int:
    """End the sessions that hold names of these prefixes, and the waits for them.

    The sessions, not the holds alone: a client that is not connected, or whose grant is still on its way, learns
    of the end of its session and of nothing less. What it held is not granted while the client may trust it (G7):
    until the session would have expired.
    """
    if not prefixes:
        return 0
    # First: what becomes free must not be granted to a waiter.
    _refuse_waiters(state, cells, prefixes, None)
    names = [name for name in (*state.held, *state.crowds) if cells.prefix_of(name) in prefixes]
    ending = sorted({hold.session for name in names for hold in state.holders(name)})
    freed: list[str] = []
    for number in ending:
        session, until_at = state.sessions[number], state.sessions_until[number]
        for hold in session.holds():
            state.delay_until(hold.name, until_at)
        freed += end_session(state, session, Ending.EXPIRED)
    hand_on(state, freed)
    return len(ending)


def _left(state: State, cells: CellState, prefix: str) -> int:
    """How many names of a closing prefix are held, delayed or kept: looked for once, then among those only."""
    tables = (state.held, state.crowds, state.delays, state.kept)
    names = cells.draining.get(prefix)
    if names is None:
        names = {name for name in chain(*tables) if cells.prefix_of(name) == prefix}
    left = cells.draining[prefix] = {name for name in names if any(name in table for table in tables)}
    return len(left)


def _told(state: State, cells: CellState, record: HomeRecord) -> HomeClosing | HomeClosed:
    if record.stage is Stage.CLOSED:
        return HomeClosed(record.prefix, record.version, record.to, record.fence, cells.map.version)
    return HomeClosing(record.prefix, record.version, record.to, _left(state, cells, record.prefix))


def _is_old(record: HomeRecord, version: int) -> bool:
    return version <= record.version


def _old(record: HomeRecord) -> Refused:
    return Refused(
        Code.CONFLICT,
        f"{record.prefix!r} is {record.stage.value} by version {record.version} already: read it again",
    )
