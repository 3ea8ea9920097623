"""Moving slots from one shard to another: a slot drains, its holds are never copied.

1. A newer map is taken as a whole, in one entry. A slot that is served here and is another's by the map is
   *closing*: no new request for its names is taken here any more. What is held stays held until it ends, and a
   request that waits already is served here in its turn: so the queue has one order, before the move and after it.
2. *Closed*: when nothing of it is held, awaited, delayed or kept any more, and above which fence: this machine's
   counter, which no fence of the slot was ever above. A slot of which nothing is left is closed in the entry that
   brings the map.
3. *Arriving*: a slot that is this shard's by the map, and is not open here yet. Requests that can wait are queued
   for its names, and nothing is granted. *Open*: it was closed where it came from, by the same version of the map;
   the counter is raised to that fence, then its names are granted, first come first.
4. The right to grant the names of a slot is therefore always in one place: with the machine that serves it, or,
   closed, on its way to the one shard that it was closed for. It is not sent elsewhere on the way: a machine with
   slots that are closing or arriving takes no newer map.
5. Each step is idempotent: repeated, it is answered the same; of an older map, it is refused.
6. An operator can force-release the holds of closing slots (`ForceSlots`); their waiters are redirected.
"""

from collections.abc import Iterable
from itertools import chain

from fencehold.core.commands import ChangeMap, FollowMap, ForceSlots, OpenSlots, SealSlots
from fencehold.core.grants import FENCE_MAX
from fencehold.core.outcomes import Code, Ending, MapTaken, Refused, SlotsForced, SlotsOpened, SlotsSealed
from fencehold.core.queues import end_wait, hand_on
from fencehold.core.release import end_uncleanly
from fencehold.core.rights import refuse_placing
from fencehold.core.shards import grants, moved
from fencehold.core.state import Home, SlotMove, Stage, State
from fencehold.placement.map import ShardMap, even_map
from fencehold.placement.slots import SLOTS, slot_of


def change_map(state: State, command: ChangeMap) -> MapTaken | Refused:
    """Take the next map, unless it was derived from another than the one known here."""
    refusal = refuse_placing(state, command.principal)
    if refusal is not None:
        return refusal
    known, version = _version(state), command.placed.version
    if version not in (known, known + 1):
        return _old(version, known)
    return _take(state, command.placed)


def follow_map(state: State, command: FollowMap) -> MapTaken | Refused:
    """Take a newer map, which another shard has."""
    return _take(state, command.placed)


def seal_slots(state: State, command: SealSlots) -> SlotsSealed:
    """Close all closing slots of which nothing is left."""
    return _seal(state)


def open_slots(state: State, command: OpenSlots) -> SlotsOpened | Refused:
    """Grant the names of slots that have arrived, above a fence; all of them, or none."""
    home, fence = state.home, command.fence
    if home is None:
        return _only_shard()
    if not 0 <= fence <= FENCE_MAX:
        return Refused(Code.USAGE, f"a fence is 0 to {FENCE_MAX}, not {fence}")
    opening: list[int] = []
    for slot in sorted(set(command.slots)):
        move = state.slots.get(slot)
        if move is None or move.version != command.version or move.stage not in (Stage.ARRIVING, Stage.OPEN):
            detail = f"slot {slot} does not arrive here by version {command.version} of the map"
            return Refused(Code.CONFLICT, detail)
        if move.stage is Stage.ARRIVING:
            opening.append(slot)
    # Before any grant: the outcome has the fence that all grants here are above.
    above = state.fence = max(state.fence, fence)
    for slot in opening:
        state.slots[slot] = SlotMove(slot, command.version, Stage.OPEN, home.shard, fence)
        del state.arriving[slot]
    if opening:
        state.steps += 1
        opened = set(opening)
        hand_on(state, [name for name in state.queues if slot_of(name) in opened])
    return SlotsOpened(len(opening), above)


def force_slots(state: State, command: ForceSlots) -> SlotsForced | Refused:
    """Break what is held of closing slots, redirect its waiters, and close what can be closed then."""
    refusal = refuse_placing(state, command.principal)
    home = state.home
    if refusal is not None or home is None:
        return refusal or _only_shard()
    _look_for_names(state)
    names = sorted(chain.from_iterable(each or () for each in state.draining.values()))
    waits = _send_on(state, home, names)
    holds = [hold for name in names for hold in state.holders(name)]
    if holds:
        # As any break: what comes after it outranks every holder that was broken.
        state.fence += 1
    for hold in holds:
        state.keep_no_longer(hold.name, state.fence)
        end_uncleanly(state, hold, Ending.BROKEN, command.by)
    for name in names:
        state.keep_no_longer(name, state.fence)
    _seal(state)
    return SlotsForced(len(holds), waits)


def can_seal(state: State) -> bool:
    """Whether a closing slot has nothing left, so that it can be closed. It changes nothing that is saved."""
    _look_for_names(state)
    tables = (state.held, state.crowds, state.queues, state.delays, state.kept)
    return any(
        not any(name in table for name in names or () for table in tables) for names in state.draining.values()
    )


def names_left(state: State) -> dict[int, list[str]]:
    """What is still held, awaited, delayed or kept of each closing slot. It changes nothing that is saved."""
    _look_for_names(state)
    return {slot: sorted(_used(state, names)) for slot, names in sorted(state.draining.items())}


def _take(state: State, placed: ShardMap) -> MapTaken | Refused:
    home = state.home
    if home is None:
        return _only_shard()
    if placed.shards != home.shards or not placed.is_whole():
        return Refused(Code.USAGE, f"a map has a shard, of {home.shards}, for each of {SLOTS} slots")
    if state.placed == placed:
        return _taken(state, placed.version)
    if not _is_newer(state, placed):
        return _old(placed.version, _version(state))
    if state.draining or state.arriving:
        here = f"{len(state.draining)} leave and {len(state.arriving)} arrive"
        return Refused(Code.CONFLICT, f"slots of this shard are still on their way: {here}")
    # Nothing is on its way, so all stands as the last map says: only what the two say differently can change.
    before = state.placed or even_map(home.shards)
    state.placed = placed
    state.steps += 1
    for each in placed.changes_to(before):
        for slot in range(each.first, each.last + 1):
            _place(state, home, slot, each.shard, placed.version)
    _look_for_names(state)
    _seal(state)
    return _taken(state, placed.version)


def _place(state: State, home: Home, slot: int, shard: int, version: int) -> None:
    """Let a slot leave, or expect it, if the map differs from where it is now."""
    is_granted = grants(state, home, slot)
    if is_granted == (shard == home.shard):
        return
    if is_granted:
        state.slots[slot] = SlotMove(slot, version, Stage.CLOSING, shard, 0)
        state.draining[slot] = None
    else:
        state.slots[slot] = SlotMove(slot, version, Stage.ARRIVING, shard, 0)
        state.arriving[slot] = None


def _seal(state: State) -> SlotsSealed:
    _look_for_names(state)
    sealed = 0
    for slot, names in list(state.draining.items()):
        left = state.draining[slot] = _used(state, names)
        if not left:
            move = state.slots[slot]
            state.slots[slot] = SlotMove(slot, move.version, Stage.CLOSED, move.to, state.fence)
            del state.draining[slot]
            sealed += 1
    state.steps += bool(sealed)
    return SlotsSealed(sealed, len(state.draining))


def _look_for_names(state: State) -> None:
    """Find the names of closing slots, in one pass, if they are not known: no more of them ever come."""
    if all(names is not None for names in state.draining.values()):
        return
    found: dict[int, set[str]] = {slot: set() for slot, names in state.draining.items() if names is None}
    for name in chain(state.held, state.crowds, state.queues, state.delays, state.kept):
        slot = slot_of(name)
        if slot in found:
            found[slot].add(name)
    for slot, names in found.items():
        state.draining[slot] = tuple(sorted(names))


def _used(state: State, names: Iterable[str] | None) -> tuple[str, ...]:
    tables = (state.held, state.crowds, state.queues, state.delays, state.kept)
    return tuple(name for name in names or () if any(name in table for table in tables))


def _send_on(state: State, home: Home, names: list[str]) -> int:
    """Redirect all waiters for one of these names, first come first."""
    tickets = sorted({ticket for name in names for ticket in state.queues.get(name, ())})
    freed: list[str] = []
    for ticket in tickets:
        waiter = state.waiters[ticket]
        freed += waiter.ask.names
        slot = next(slot for slot in map(slot_of, waiter.ask.names) if slot in state.draining)
        end_wait(state, waiter, moved(state, home, slot))
    # Names of other slots that the same requests were queued for.
    hand_on(state, freed)
    return len(tickets)


def _version(state: State) -> int:
    return 1 if state.placed is None else state.placed.version


def _is_newer(state: State, placed: ShardMap) -> bool:
    return placed.version > _version(state)


def _taken(state: State, version: int) -> MapTaken:
    return MapTaken(version, len(state.draining), len(state.arriving))


def _old(version: int, known: int) -> Refused:
    return Refused(Code.CONFLICT, f"version {known} of the map is known here, and {version} does not follow it")


def _only_shard() -> Refused:
    return Refused(Code.USAGE, "this is the only shard, and has nowhere to move a slot to")
