"""Shards: which names a machine grants, if it is one of several.

1. A machine is told once which shard it is, of how many, before any other command. That is permanent and in every
   snapshot. A machine that was never told is the only one, and nothing below costs it anything.
2. It grants names whose slots it serves, and no others. A request for another is refused with its slot and its
   shard, and changes nothing. For a slot that is about to be served here a request can queue.
3. What is held is released, extended and ended where it was granted, whatever the slot.
4. A slot can move (`slot_moves`); as long as none has, nothing is looked up.
"""

from collections.abc import Iterable

from fencehold.core.commands import Acquire, FoundShard
from fencehold.core.outcomes import Code, Refused, ShardFounded
from fencehold.core.state import Home, Stage, State
from fencehold.placement.map import SHARDS_MAX, even_map
from fencehold.placement.slots import slot_of


def found_shard(state: State, command: FoundShard) -> ShardFounded | Refused:
    """Let the machine be one shard of several, unless it is another, or the only one, already."""
    if not 0 <= command.shard < command.shards <= SHARDS_MAX or command.shards < 2:
        return Refused(Code.USAGE, f"shards are 0 to one less than their number, of {SHARDS_MAX} at the most")
    if state.home is None:
        if state.session_last:
            return Refused(Code.USAGE, "this machine has had sessions as the only shard: it stays that")
        settle_home(state, command.shard, command.shards)
    elif (state.home.shard, state.home.shards) != (command.shard, command.shards):
        return Refused(Code.USAGE, f"this is shard {state.home.shard} of {state.home.shards} already")
    return ShardFounded(command.shard, command.shards)


def settle_home(state: State, shard: int, shards: int) -> None:
    """Enter which shard this is."""
    (slots,) = even_map(shards).ranges_of(shard)
    state.home = Home(shard, shards, slots.first, slots.last)


def refuse_elsewhere(state: State, home: Home, ask: Acquire) -> Refused | None:
    """Why a request is not taken here, if a name is not granted here. It can wait for one that arrives."""
    for name in ask.names:
        slot = slot_of(name)
        if grants(state, home, slot):
            continue
        if slot not in state.arriving:
            return moved(state, home, slot)
        if not ask.wait_ms:
            return arrives(slot)
    return None


def is_early(state: State, names: Iterable[str]) -> bool:
    """Whether one of the names is of a slot that arrives: it is not granted yet."""
    return any(slot_of(name) in state.arriving for name in names)


def refuse_unknown(state: State, home: Home, name: str) -> Refused | None:
    """Why nothing is known of a name here, if so. Of one whose slot is closing, something may be held."""
    slot = slot_of(name)
    move = state.slots.get(slot)
    if move is not None and move.stage is Stage.ARRIVING:
        return arrives(slot)
    is_known = move.stage is not Stage.CLOSED if move is not None else home.first <= slot <= home.last
    return None if is_known else moved(state, home, slot)


def grants(state: State, home: Home, slot: int) -> bool:
    """Whether names of a slot are granted here."""
    move = state.slots.get(slot) if state.slots else None
    return move.stage is Stage.OPEN if move is not None else home.first <= slot <= home.last


def moved(state: State, home: Home, slot: int) -> Refused:
    """The refusal that says where the names of a slot are, as far as is known here."""
    placed = state.placed or even_map(home.shards)
    shard = placed.shard_of(slot)
    return Refused(Code.MOVED, f"{slot} is a slot of shard {shard}, and this is shard {home.shard}")


def arrives(slot: int) -> Refused:
    """The refusal that says that a slot is not open here yet."""
    return Refused(Code.ARRIVING, f"{slot} is a slot that is moving here: something of it is still held elsewhere")
