"""Spread: which of its shards a node hands over, so that all nodes lead about as many.

1. The nodes that are alive lead as many shards as one another, but for one. Then nothing is handed over, so two
   looks at the same nodes never move anything back.
2. The node that leads most hands over to the one that leads fewest, if they are at least two shards apart: each
   hand-over reduces that. Ties go by name, so nodes that see the same decide the same, and each acts on its own
   part only.
3. While the leader of some shard is not known, nothing is handed over: a node is about to take it.
4. A membership is believed when it has stayed the same for a while. A node that comes and goes moves nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

SETTLE_FACTOR = 3
"""For so many leader timeouts no node came, went or took over before anything is handed over."""


class Sight(NamedTuple):
    """What one node knows of all."""

    leaders: tuple[str, ...]
    """Of each shard, by name; empty: not known."""
    alive: frozenset[str]


class Membership:
    """What was seen, and since when it is the same. It is fed with `now`, in seconds."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._sight: Sight | None = None
        self._since = 0.0

    def is_settled(self, sight: Sight, now: float) -> bool:
        """Record what is seen now; returns whether it has been the same for long enough."""
        if sight != self._sight:
            self._sight, self._since = sight, now
        return now - self._since >= self._settle_s


def handovers(sight: Sight, node: str) -> dict[int, str]:
    """Which shards a node hands over, and to whom."""
    if not all(leader in sight.alive for leader in sight.leaders):
        return {}
    return {shard: taker for shard, giver, taker in _moves(sight.leaders, sight.alive) if giver == node}


def _moves(leaders: Sequence[str], alive: Iterable[str]) -> list[tuple[int, str, str]]:
    """All that is to be handed over: shard, giver and taker."""
    counts = Counter(leaders)
    led = {node: [shard for shard, leader in enumerate(leaders) if leader == node] for node in sorted(alive)}
    moves: list[tuple[int, str, str]] = []
    while True:
        giver, taker = _fullest(led, counts), _emptiest(led, counts)
        if counts[giver] - counts[taker] <= 1:
            return moves
        moves.append((led[giver].pop(), giver, taker))
        counts[giver] -= 1
        counts[taker] += 1


def _fullest(led: Mapping[str, list[int]], counts: Counter[str]) -> str:
    return min(led, key=lambda node: (-counts[node], node))


def _emptiest(led: Mapping[str, list[int]], counts: Counter[str]) -> str:
    return min(led, key=lambda node: (counts[node], node))
