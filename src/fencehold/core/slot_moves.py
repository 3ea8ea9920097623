"""Moving a slot from one shard to another: it drains, it never copies holds.

1. *Closed* (in the shard it leaves): no name of the slot is granted any more. Who waits for one is sent on, in the
   order of the tickets; what is held stays held until it ends, and is released and extended here.
2. *Sealed*: when nothing of it is held, delayed or kept any more, the shard says so, and above which fence: its
   counter, which no fence of the slot was ever above.
3. *Opened* (in the shard it goes to): that one's counter is raised to the fence, then the names are granted. So
   fences of each name go on growing.
4. Each step is done once: told again, it is answered the same. A move has the version of its map, and what is
   older than what is known of a slot is refused: a command that comes late opens nothing that has moved on.
5. A slot that is closing may be opened again where it is: a move can be given up until it is sealed.
"""

from itertools import chain

from fencehold.core.commands import CloseSlot, OpenSlot, SealSlot
from fencehold.core.grants import FENCE_MAX
from fencehold.core.outcomes import Code, Refused, SlotClosed, SlotClosing, SlotOpened
from fencehold.core.queues import end_wait, hand_on
from fencehold.core.shards import grants, moved
from fencehold.core.state import Home, SlotMove, Stage, State
from fencehold.placement.slots import SLOTS, slot_of


def close_slot(state: State, command: CloseSlot) -> SlotClosing | SlotClosed | Refused:
    """Grant no name of a slot any more."""
    home, move = state.home, state.slots.get(command.slot)
    if home is None or not 0 <= command.slot < SLOTS:
        return _no_slot(command.slot)
    if not 0 <= command.to < home.shards or command.to == home.shard:
        return Refused(Code.USAGE, f"a slot moves to another of {home.shards} shards, not to {command.to}")
    if (
        move is not None
        and move.stage is not Stage.OPEN
        and (move.to, move.version) == (command.to, command.version)
    ):
        return _told(state, move)
    if _is_old(move, command.version):
        return _old(command.slot, move)
    if not grants(state, home, command.slot):
        return moved(state, home, command.slot)
    move = state.slots[command.slot] = SlotMove(command.slot, command.version, Stage.CLOSING, command.to, 0)
    _send_on(state, home, command.slot)
    return _told(state, move)


def seal_slot(state: State, command: SealSlot) -> SlotClosing | SlotClosed | Refused:
    """Say above which fence a slot may be opened elsewhere, if nothing of it is left."""
    move = state.slots.get(command.slot)
    if move is None or move.stage is Stage.OPEN:
        return Refused(Code.USAGE, f"slot {command.slot} is not being closed here")
    if move.stage is Stage.CLOSING and not _left(state, command.slot):
        sealed = SlotMove(move.slot, move.version, Stage.CLOSED, move.to, state.fence)
        move = state.slots[command.slot] = sealed
        state.draining.pop(command.slot, None)
    return _told(state, move)


def open_slot(state: State, command: OpenSlot) -> SlotOpened | Refused:
    """Grant the names of a slot from here on, above a fence."""
    home, move = state.home, state.slots.get(command.slot)
    if home is None or not 0 <= command.slot < SLOTS:
        return _no_slot(command.slot)
    if not 0 <= command.fence <= FENCE_MAX:
        return Refused(Code.USAGE, f"a fence is 0 to {FENCE_MAX}, not {command.fence}")
    if move is not None and move.stage is Stage.OPEN and move.version == command.version:
        return SlotOpened(move.slot, move.fence)
    if _is_old(move, command.version):
        return _old(command.slot, move)
    if grants(state, home, command.slot):
        return Refused(Code.CONFLICT, f"slot {command.slot} is open here, and was not closed")
    state.fence = max(state.fence, command.fence)
    state.draining.pop(command.slot, None)
    move = SlotMove(command.slot, command.version, Stage.OPEN, home.shard, state.fence)
    state.slots[command.slot] = move
    return SlotOpened(move.slot, move.fence)


def _send_on(state: State, home: Home, slot: int) -> None:
    """Tell all who wait for a name of the slot where it goes, first come first."""
    names = [name for name in state.queues if slot_of(name) == slot]
    tickets = sorted({ticket for name in names for ticket in state.queues[name]})
    freed: list[str] = []
    for ticket in tickets:
        waiter = state.waiters[ticket]
        freed += waiter.ask.names
        end_wait(state, waiter, moved(state, home, slot))
    # Names of other slots that the same requests stood in line for.
    hand_on(state, freed)


def _left(state: State, slot: int) -> int:
    """How many names of a closing slot are held, delayed or kept: looked for once, then among those only."""
    names = state.draining.get(slot)
    if names is None:
        used = chain(state.held, state.crowds, state.delays, state.kept)
        names = {name for name in used if slot_of(name) == slot}
    tables = (state.held, state.crowds, state.delays, state.kept)
    left = state.draining[slot] = {name for name in names if any(name in table for table in tables)}
    return len(left)


def _told(state: State, move: SlotMove) -> SlotClosing | SlotClosed:
    if move.stage is Stage.CLOSED:
        return SlotClosed(move.slot, move.to, move.fence)
    return SlotClosing(move.slot, move.to, _left(state, move.slot))


def _is_old(move: SlotMove | None, version: int) -> bool:
    return version <= (0 if move is None else move.version)


def _old(slot: int, move: SlotMove | None) -> Refused:
    known = 0 if move is None else move.version
    return Refused(Code.CONFLICT, f"slot {slot} has moved by version {known} of the map already: read it again")


def _no_slot(slot: int) -> Refused:
    return Refused(
        Code.USAGE, f"slot {slot} cannot move: slots are 0 to {SLOTS - 1}, where there are several shards"
    )
