"""Inspecting a name: holders and waiters, by its queue; and force-releasing it.

The age of a place is the time of the server that made it, against the clock here: it is shown, and decides
nothing. ZooKeeper does not know when a place was granted: the time of a holder includes its wait.
"""

import time
from collections.abc import Sequence
from typing import Any

from fencehold.backends.lease.explanation import SeenHolder, explanation, holder, waiting
from fencehold.backends.zookeeper.queue import QueuePlace, holders, in_order
from fencehold.backends.zookeeper.session import ZookeeperSession
from fencehold.drivers.zookeeper.kazoo_client import ZookeeperAnswer
from fencehold.drivers.zookeeper.requests import children, delete, exists, get, proof, sync
from fencehold.locks.views import Explanation, Waiting


async def explained(session: ZookeeperSession, name: str, parent: str, seconds: float) -> Explanation:
    """Raises: Lost."""
    # Behind a sync: a member may lag behind what was granted before this request.
    _, listed = await session.ask(sync(parent), children(parent), seconds=seconds)
    places = in_order(listed.value or [])
    count = holders(places)
    seen = await session.ask(*[get(f"{parent}/{place.node}") for place in places], seconds=seconds)
    held = [_holder(place, answer) for place, answer in _there(places[:count], seen)]
    queue: list[Waiting] = []
    for place, answer in _there(places[count:], seen[count:]):
        queue.append(_waiting(len(queue), place, answer, name))
    return explanation(name, held, queue)


async def break_holders(session: ZookeeperSession, parent: str, fence: int, seconds: float) -> int:
    """Remove the holders of a name up to a fence; returns a fence above theirs, or 0.

    Raises:
        Lost: some may have been removed.
    """
    _, listed = await session.ask(proof(session.address.root), children(parent), seconds=seconds)
    places = in_order(listed.value or [])
    paths = [f"{parent}/{place.node}" for place in places[: holders(places)]]
    seen = await session.ask(*[exists(path) for path in paths], seconds=seconds)
    fences = {path: answer.value.czxid for path, answer in zip(paths, seen, strict=True) if answer.value}
    broken = [path for path, own in fences.items() if not fence or own <= fence]
    answers = await session.ask(*[delete(path) for path in broken], seconds=seconds)
    gone = [fences[path] for path, answer in zip(broken, answers, strict=True) if not answer.is_missing]
    # The places of waiters were made later, and so have a fence as great as this or greater.
    return max(gone) + 1 if gone else 0


def _there(
    places: Sequence[QueuePlace], seen: Sequence[ZookeeperAnswer]
) -> list[tuple[QueuePlace, ZookeeperAnswer]]:
    """Without those that were removed meanwhile."""
    return [(place, answer) for place, answer in zip(places, seen, strict=False) if answer.error is None]


def _holder(place: QueuePlace, answer: ZookeeperAnswer) -> SeenHolder:
    data, stat = answer.value
    mode, limit = place.mode.upper(), place.limit
    return holder(_text(data), fence=stat.czxid, mode=mode, limit=limit, held_for=_age(stat), left=None)


def _waiting(position: int, place: QueuePlace, answer: ZookeeperAnswer, name: str) -> Waiting:
    data, stat = answer.value
    return waiting(position, _text(data), mode=place.mode.upper(), name=name, waited_for=_age(stat), left=None)


def _text(data: Any) -> str:
    return (data or b"").decode(errors="replace")


def _age(stat: Any) -> float:
    return max(0.0, time.time() - float(stat.ctime) / 1_000)
