"""Looking at a name, and taking it from whoever has it.

A hold that is taken away leaves a notice where its holder hears of it at once. The notice goes with the holder's
lease, if it is never read.
"""

import time
from typing import NamedTuple

from fencehold.backends import seen
from fencehold.backends.etcd.keys import Keys, Span, limit_in, token_in
from fencehold.backends.etcd.records import Record, decode
from fencehold.client.views import Explanation, Holder, Waiting
from fencehold.etcd import messages
from fencehold.etcd.cluster import Cluster, NoLease
from fencehold.etcd.transactions import delete, is_created_at, put, transaction

_SHOWN_MAX = 1_000


class Stander(NamedTuple):
    """One who has a name or waits for it."""

    key: bytes
    fence: int
    lease: int
    record: Record

    @property
    def limit(self) -> int:
        return limit_in(self.key)


async def standers(cluster: Cluster, queue: Span) -> tuple[list[Stander], list[Stander]]:
    """Who has a name, and who waits for it, in their order.

    Raises:
        Unavailable: nobody answered.
    """
    request = messages.RangeRequest(
        key=queue.start,
        range_end=queue.end,
        limit=_SHOWN_MAX,
        sort_order=messages.RangeRequest.ASCEND,
        sort_target=messages.RangeRequest.CREATE,
    )
    pairs = (await cluster.read(request)).kvs
    everyone = [Stander(pair.key, pair.create_revision, pair.lease, decode(pair.value)) for pair in pairs]
    count = _holders_among([stander.limit for stander in everyone])
    return everyone[:count], everyone[count:]


async def look(cluster: Cluster, name: str, queue: Span) -> Explanation:
    """As the port says."""
    holding, waiting = await standers(cluster, queue)
    return seen.explanation(
        name,
        [_holder(each) for each in holding],
        [_waiting(place, each, name) for place, each in enumerate(waiting)],
    )


async def break_hold(cluster: Cluster, keys: Keys, queue: Span, fence: int) -> int:
    """As the port says."""
    holding, _ = await standers(cluster, queue)
    broken = [each for each in holding if not fence or each.fence <= fence]
    for each in broken:
        await _break(cluster, keys, each)
    # Whoever waits came after them, and has a fence as high as this or higher.
    return max((each.fence + 1 for each in broken), default=0)


async def _break(cluster: Cluster, keys: Keys, holder: Stander) -> None:
    steps = [delete(holder.key)]
    if holder.lease:
        steps.append(put(keys.notice(holder.lease, token_in(holder.key)), b"", holder.lease))
    try:
        await cluster.transact(transaction([is_created_at(holder.key, holder.fence)], steps))
    except NoLease:
        # Its holder's lease is gone, and the key with it.
        return


def _holders_among(limits: list[int]) -> int:
    """How many of those in a queue have the name."""
    if not limits:
        return 0
    limit = limits[0]
    count = 1
    while count < min(limit, len(limits)) and limits[count] == limit:
        count += 1
    return count


def _holder(stander: Stander) -> Holder:
    stamp, since, ends = stander.record
    return seen.holder(
        stamp,
        fence=stander.fence,
        mode=_mode(stander),
        limit=stander.limit,
        held_for=max(0.0, time.time() - since),
        left=None if ends is None else max(0.0, ends - time.time()),
    )


def _waiting(place: int, stander: Stander, name: str) -> Waiting:
    waited_for = max(0.0, time.time() - stander.record.since)
    return seen.waiting(
        place, stander.record.stamp, mode=_mode(stander), name=name, waited_for=waited_for, left=None
    )


def _mode(stander: Stander) -> str:
    return "P" if stander.limit else "X"
