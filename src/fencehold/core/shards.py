"""Shards: which names a machine grants, if it is one of several.

1. A machine is told once which shard it is, of how many, before anything is asked of it. That stays, is in every
   snapshot, and cannot be told otherwise. A machine that was never told is the only one, and nothing below
   costs it anything.
2. It grants names whose slots it serves, and no others. Who asks for another is told its slot and its shard, and
   nothing has happened.
3. What is held is released, extended and ended where it was granted, whatever the slot.
"""

from collections.abc import Iterable

from fencehold.core.commands import FoundShard
from fencehold.core.outcomes import Code, Refused, ShardFounded
from fencehold.core.state import Home, State
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


def refuse_elsewhere(home: Home, names: Iterable[str]) -> Refused | None:
    """Why names are not granted here, if one of them is at home in another shard."""
    for name in names:
        slot = slot_of(name)
        if not home.first <= slot <= home.last:
            shard = even_map(home.shards).shard_of(slot)
            return Refused(Code.MOVED, f"{slot} is a slot of shard {shard}, and this is shard {home.shard}")
    return None
