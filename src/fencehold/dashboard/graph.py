"""The wait-for graph: who waits for whom, with circles and long chains found.

A node is an owner inside a client, a task or a thread; an arrow goes from a waiter to a holder of what it waits
for. The service refuses a wait that would close a circle of these. A circle between whole *processes* is not one,
as other tasks of them continue; it is pointed out all the same, as that is where deadlocks come from.

A client of several shards is one here, though it has a session in each: a circle over several shards is seen,
which no single shard knows of.
"""

from typing import Any, NamedTuple

from fencehold.dashboard.picture import Picture, ms_of
from fencehold.dashboard.views import event_shown, party_shown, status
from fencehold.locks.views import Party

NODES_MAX, ARROWS_MAX = 150, 400
LONG_CHAIN = 3
"""The length of a chain that is worth pointing out."""
_REFUSED_SHOWN = 8

Key = tuple[int, str]


class _Arrow(NamedTuple):
    waits: Key
    holds: Key
    name: str
    since_ms: int
    place: int


def graph(picture: Picture) -> dict[str, Any]:
    """Who waits for whom now; and which waits were refused lately, as they would have closed a circle."""
    parties: dict[Key, Party] = {}
    arrows: list[_Arrow] = []
    hidden = 0
    for seen in sorted(picture.looks.values(), key=lambda each: -each.waiter_count):
        for waiting in seen.queue:
            for holder in seen.holders[:3]:
                ends = _key(picture, waiting.party), _key(picture, holder.party)
                if len(arrows) >= ARROWS_MAX or len({*parties, *ends}) > NODES_MAX:
                    hidden += 1
                    continue
                parties |= {ends[0]: waiting.party, ends[1]: holder.party}
                arrows.append(_Arrow(*ends, seen.name, ms_of(waiting.since), waiting.position + 1))
        hidden += seen.waiter_count - len(seen.queue)
    numbers = {key: at for at, key in enumerate(parties)}
    towards = _towards(arrows)
    depths = _depths(towards, list(parties))
    refused = [each for each in reversed(picture.events) if each[1].kind == "deadlock"]
    return {
        "status": status(picture),
        "parties": [
            {"id": numbers[key], **party_shown(party), "depth": depths[key]} for key, party in parties.items()
        ],
        "arrows": [
            {"from": numbers[each.waits], "to": numbers[each.holds]} | dict(zip(_TOLD, each[2:], strict=True))
            for each in arrows
        ],
        "circles": [[numbers[key] for key in circle] for circle in circles(towards)],
        "process_circles": _process_circles(arrows, parties),
        "chains": _chains(arrows, numbers, depths),
        "hidden": hidden,
        "refused": [event_shown(*each) for each in refused[:_REFUSED_SHOWN]],
    }


_TOLD = ("name", "since_ms", "place")


def _key(picture: Picture, party: Party) -> Key:
    return picture.client_of(party.session), party.owner


def _towards(arrows: list[_Arrow]) -> dict[Key, list[Key]]:
    found: dict[Key, list[Key]] = {}
    for arrow in arrows:
        found.setdefault(arrow.waits, []).append(arrow.holds)
    return found


def circles(towards: dict[Any, list[Any]]) -> list[list[Any]]:
    """Sets of nodes from each of which all others of the set are reached (Tarjan, without recursion)."""
    number: dict[Any, int] = {}
    low: dict[Any, int] = {}
    stack: list[Any] = []
    on_stack: set[Any] = set()
    found: list[list[Any]] = []
    for root in towards:
        if root in number:
            continue
        work = [(root, iter(towards.get(root, ())))]
        number[root] = low[root] = len(number)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, following = work[-1]
            after = next(following, None)
            if after is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    at = stack.index(node)
                    circle = stack[at:]
                    del stack[at:]
                    on_stack.difference_update(circle)
                    if len(circle) > 1 or node in towards.get(node, ()):
                        found.append(circle)
            elif after not in number:
                number[after] = low[after] = len(number)
                stack.append(after)
                on_stack.add(after)
                work.append((after, iter(towards.get(after, ()))))
            elif after in on_stack:
                low[node] = min(low[node], number[after])
    return found


def _process_circles(arrows: list[_Arrow], parties: dict[Key, Party]) -> list[list[dict[str, Any]]]:
    towards: dict[int, list[int]] = {}
    for arrow in arrows:
        if arrow.waits[0] != arrow.holds[0]:
            towards.setdefault(arrow.waits[0], []).append(arrow.holds[0])
    by_session = {key[0]: party for key, party in parties.items()}
    return [[party_shown(by_session[one]._replace(owner="")) for one in circle] for circle in circles(towards)]


def _depths(towards: dict[Key, list[Key]], nodes: list[Key]) -> dict[Key, int]:
    """For each node the length of the longest chain of arrows from it; within a circle, up to its end."""
    depths = dict.fromkeys(nodes, 0)
    for _ in range(len(nodes)):
        changed = False
        for node, following in towards.items():
            depth = 1 + max((depths[each] for each in following), default=-1)
            if depth > depths[node] and depth <= len(nodes):
                depths[node], changed = depth, True
        if not changed:
            break
    return depths


def _chains(arrows: list[_Arrow], numbers: dict[Key, int], depths: dict[Key, int]) -> list[dict[str, Any]]:
    """The longest chains, each as its nodes and the names between them; no two with the same end."""
    found: list[dict[str, Any]] = []
    ends: set[Key] = set()
    for start in sorted(depths, key=lambda key: (-depths[key], numbers[key])):
        if depths[start] < LONG_CHAIN or len(found) >= 5:
            break
        nodes, between, node = [start], list[str](), start
        while len(nodes) <= len(depths):
            steps = [each for each in arrows if each.waits == node and depths[each.holds] == depths[node] - 1]
            if not steps:
                break
            between.append(steps[0].name)
            node = steps[0].holds
            nodes.append(node)
        if node not in ends:
            ends.add(node)
            found.append({"parties": [numbers[each] for each in nodes], "names": between})
    return found
