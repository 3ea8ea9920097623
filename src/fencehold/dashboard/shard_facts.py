"""Facts of all shards as those of one service: INFO of each, combined.

1. What is counted by a machine (sessions, names, waiters, fences, positions) is added up. What is a node's own
   (its connections) is counted once for each node. The rest is the same everywhere: it is taken from the first
   shard.
2. Of a shard that is away, the last facts stay, so that figures do not fall and rise with it; that it is away is
   shown.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from fencehold.gateway.lists import wide
from fencehold.locks.views import Event, Explanation, Party

_SUMMED = ("sessions", "names_held", "names_awaited", "waiters", "appends", "position", "fence")
_OF_A_NODE = ("connected_clients", "throttled_clients")
_AMPLE = ("ample", "")

Facts = dict[str, str]


def facts_in(info: str) -> Facts:
    """The facts of INFO, by key."""
    return dict(line.split(":", 1) for line in info.splitlines() if ":" in line)


def together(told: Iterable[Facts]) -> Facts:
    """The facts of several shards as those of one service."""
    all_told = list(told)
    if len(all_told) < 2:
        return all_told[0] if all_told else {}
    nodes = {facts.get("node", ""): facts for facts in all_told}
    found = dict(all_told[0])
    found |= {key: str(sum(_number(facts, key) for facts in all_told)) for key in _SUMMED}
    found |= {key: str(sum(_number(facts, key) for facts in nodes.values())) for key in _OF_A_NODE}
    for key, usual in (("room", _AMPLE), ("busiest_client", ("",))):
        found[key] = next(
            (facts[key] for facts in all_told if facts.get(key, "") not in usual), found.get(key, "")
        )
    return found


def _number(facts: Facts, key: str) -> int:
    said = facts.get(key, "")
    return int(said) if said.isdecimal() else 0


def event_in(shard: int, seen: Event) -> Event:
    """An event whose session number is unique over all shards."""
    if not shard or seen.party is None:
        return seen
    return replace(seen, session=wide(seen.session, shard), party=_party_in(shard, seen.party))


def explanation_in(shard: int, seen: Explanation) -> Explanation:
    """The same with the sessions of an explanation."""
    if not shard:
        return seen
    holders = tuple(each._replace(party=_party_in(shard, each.party)) for each in seen.holders)
    queue = tuple(each._replace(party=_party_in(shard, each.party)) for each in seen.queue)
    kept = None if seen.kept is None else seen.kept._replace(party=_party_in(shard, seen.kept.party))
    return seen._replace(holders=holders, queue=queue, kept=kept)


def _party_in(shard: int, seen: Party) -> Party:
    return seen._replace(session=wide(seen.session, shard)) if seen.session else seen
