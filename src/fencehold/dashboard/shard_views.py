"""What pages show of shards: the leader of each, how much it has, and how many each node leads."""

from typing import Any

from fencehold.dashboard.picture import Picture

Shown = dict[str, Any]


def shards(picture: Picture) -> list[Shown]:
    """Each shard; of one that is away, what was known last. Its leader and followers are for administrators."""
    told = picture.by_shard or []
    return [_shard(picture, shard, told[shard] if shard < len(told) else {}) for shard in range(picture.shards)]


def _shard(picture: Picture, shard: int, told: Shown) -> Shown:
    facts = picture.shard_facts.get(shard, {})

    def number(key: str) -> int:
        return int(facts.get(key, "0") or 0)

    return {
        "shard": shard,
        "leader": facts.get("leader") or facts.get("node", ""),
        "epoch": number("epoch"),
        "position": number("position"),
        "sessions": number("sessions"),
        "names_held": number("names_held"),
        "waiters": number("waiters"),
        "standbys": len(told.get("standbys") or ()),
        "lag": max((one["lag"] for one in told.get("standbys") or ()), default=0),
        "away": picture.away[shard][0] if shard in picture.away else "",
        "away_s": round(picture.away_s(shard), 1) if shard in picture.away else 0,
    }


def nodes_of_shards(told: list[Shown]) -> list[Shown]:
    """Each node that leads a shard or is a standby for one, with what it leads."""
    found: dict[tuple[str, str], Shown] = {}

    def node(one: Shown) -> Shown:
        key = one["node"] or "", one["address"] or ""
        empty = {"leads": [], "lag": 0, "heard_ms_ago": 0, "note": "", "position": 0, "epoch": 0}
        return found.setdefault(key, {"node": key[0], "address": key[1], **empty})

    for each in told:
        if each["away"] is None:
            leader = node(each)
            leader["leads"].append(each["shard"])
            leader["note"] = leader["note"] or each["note"]
    for each in told:
        for standby in each["standbys"]:
            seen = node(standby)
            seen["lag"] = max(seen["lag"], standby["lag"])
            seen["heard_ms_ago"] = max(seen["heard_ms_ago"], standby["heard_ms_ago"])
    for one in found.values():
        one["role"] = "leader" if one["leads"] else "standby"
    return sorted(found.values(), key=lambda one: (one["node"], one["address"]))
