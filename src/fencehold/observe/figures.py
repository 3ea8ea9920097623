"""Figures that a node looks up when it is asked: how much there is of everything, and what is oldest.

Nothing here is counted while locks are granted, and a look has a bound: it goes through so many names at the most.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import islice
from typing import Any

from fencehold import __version__
from fencehold.core.state import State
from fencehold.journal.port import SyncedJournal
from fencehold.node.node import Node

_LOOKED_AT_MAX = 10_000

Figures = dict[str, list[list[Any]]]


def figures_of(machines: Sequence[tuple[Node, Node | None]]) -> Figures:
    """By metric: the values of its labels, and a number, or those of a histogram.

    Of each shard its node and its volatile machine.
    """
    found: Figures = {}
    for shard, (node, volatile) in enumerate(machines):
        label = str(shard)
        for name, rows in _of_node(node, label).items():
            found.setdefault(name, []).extend(rows)
        for machine in (node, volatile):
            if machine is not None:
                for name, value in _of_machine(machine).items():
                    found.setdefault(name, []).append([[machine.tier.value, label], value])
    found["fencehold_build_info"] = _build(machines[0][0])
    found["fencehold_quota_exceeded_total"] = _exceeded([node for node, _ in machines])
    return found


def _build(node: Node) -> list[list[Any]]:
    return [[[__version__, node.journal.declared.engine, node.member.name], 1]]


def _exceeded(nodes: list[Node]) -> list[list[Any]]:
    counts: Counter[tuple[str, ...]] = Counter()
    for usage in (node.replica.machine.state.usage for node in nodes):
        if usage is not None:
            counts.update(usage.exceeded)
    return [[list(key), count] for key, count in counts.items()]


def _of_node(node: Node, shard: str) -> Figures:
    state, room = node.replica.machine.state, node.room
    numbers: dict[str, float] = {
        "fencehold_leader": int(node.leads),
        "fencehold_standby": int(node.role == "standby"),
        "fencehold_epoch": node.epoch,
        "fencehold_position": node.position,
        "fencehold_fence": state.fence,
        "fencehold_standbys": len(node.standbys.all()),
        "fencehold_journal_room_used_bytes": room.room.used_bytes or 0,
        "fencehold_journal_room_allowed_bytes": room.room.allowed_bytes or 0,
        "fencehold_held_back": int(room.refusal() is not None),
    }
    if node.followed_s is not None:
        numbers["fencehold_followed_seconds"] = round(node.followed_s, 3)
    found: Figures = {name: [[[shard], value]] for name, value in numbers.items()}
    found["fencehold_standby_lag_positions"] = [
        [[standby.member.name, shard], max(0, node.position - standby.position)] for standby in node.standbys.all()
    ]
    if isinstance(node.journal, SyncedJournal):
        times = node.journal.sync_times
        found["fencehold_sync_seconds"] = [[[shard], list(times.counts), times.total_s]]
    return found


def _of_machine(node: Node) -> dict[str, float]:
    state = node.replica.machine.state
    return {
        "fencehold_sessions": len(state.sessions),
        "fencehold_names_held": len(state.held) + len(state.crowds),
        "fencehold_names_with_waiters": len(state.queues),
        "fencehold_waiters": len(state.waiters),
        "fencehold_longest_hold_seconds": _longest_hold_ms(state) / 1000,
        "fencehold_longest_wait_seconds": _longest_wait_ms(state) / 1000,
        "fencehold_longest_queue": max(map(len, islice(state.queues.values(), _LOOKED_AT_MAX)), default=0),
        "fencehold_appends_total": node.appends,
        "fencehold_pending_commands": node.pending_commands,
        "fencehold_ring_bytes": node.ring.size_bytes,
    }


def _longest_hold_ms(state: State) -> int:
    oldest = min((hold.since_at for hold in islice(state.held.values(), _LOOKED_AT_MAX)), default=state.now_at)
    return max(0, state.now_at - oldest)


def _longest_wait_ms(state: State) -> int:
    waiters = islice(state.waiters.values(), _LOOKED_AT_MAX)
    oldest = min((waiter.since_at for waiter in waiters), default=state.now_at)
    return max(0, state.now_at - oldest)
