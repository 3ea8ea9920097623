"""Inspecting a name, and force-releasing it.

A hold that is force-released leaves a notice, which its holder watches. The notice ends with the holder's lease,
if it is never read. The tombstone of a name that is kept is deleted with its hold, or after it.
"""

import time
from typing import NamedTuple

from fencehold.backends.etcd.calls import KeyRange
from fencehold.backends.etcd.queues import (
    EntryRecord,
    LockKeys,
    client_in,
    decode_entry,
    is_tombstone,
    limit_in,
    token_in,
)
from fencehold.backends.lease import explanation as seen
from fencehold.drivers.etcd import messages
from fencehold.drivers.etcd.client import EtcdClient, NoLease
from fencehold.drivers.etcd.transactions import delete, is_created_at, put, transaction
from fencehold.locks.views import Explanation, Kept, Waiting

_SHOWN_MAX = 1_000


class SeenEntry(NamedTuple):
    """A holder or a waiter."""

    key: bytes
    fence: int
    lease: int
    record: EntryRecord

    @property
    def limit(self) -> int:
        return limit_in(self.key)

    @property
    def keeps(self) -> bool:
        """Whether it is the tombstone of a name that is kept; that of a waiter is not yet."""
        return is_tombstone(self.key) and self.lease != client_in(self.key)


class SeenQueue(NamedTuple):
    """The entries of a queue, each in their order."""

    holding: list[SeenEntry]
    waiting: list[SeenEntry]
    kept: list[SeenEntry]
    """Tombstones."""


async def standers(cluster: EtcdClient, queue: KeyRange) -> SeenQueue:
    """Who holds a name, who waits for it, and for whom it is kept.

    Raises:
        Unavailable: no member answered.
    """
    request = messages.RangeRequest(
        key=queue.start,
        range_end=queue.end,
        limit=_SHOWN_MAX,
        sort_order=messages.RangeRequest.ASCEND,
        sort_target=messages.RangeRequest.CREATE,
    )
    pairs = (await cluster.read(request)).kvs
    everyone = [SeenEntry(pair.key, pair.create_revision, pair.lease, decode_entry(pair.value)) for pair in pairs]
    kept = [stander for stander in everyone if stander.keeps]
    asking = [stander for stander in everyone if not is_tombstone(stander.key)]
    is_kept = bool(kept) and (not asking or kept[0].fence < asking[0].fence)
    count = 0 if is_kept else _holders_among([stander.limit for stander in asking])
    return SeenQueue(asking[:count], asking[count:], kept)


async def look(cluster: EtcdClient, name: str, queue: KeyRange) -> Explanation:
    """As the port says."""
    holding, waiting, kept = await standers(cluster, queue)
    explained = seen.explanation(
        name,
        [_holder(each) for each in holding],
        [_waiting(place, each, name) for place, each in enumerate(waiting)],
    )
    return explained._replace(kept=_kept(kept[0]) if kept else None)


async def break_hold(cluster: EtcdClient, keys: LockKeys, queue: KeyRange, fence: int) -> int:
    """As the port says."""
    holding, _, kept = await standers(cluster, queue)
    broken = [each for each in (*holding, *kept) if not fence or each.fence <= fence]
    for each in broken:
        await _break(cluster, keys, each)
    # The waiters came after them, with a fence as high as this or higher.
    return max((each.fence + 1 for each in broken), default=0)


async def _break(cluster: EtcdClient, keys: LockKeys, holder: SeenEntry) -> None:
    steps = [delete(holder.key)]
    if holder.lease and not holder.keeps:
        steps.append(put(keys.notice(holder.lease, token_in(holder.key)), b"", holder.lease))
    try:
        await cluster.transact(transaction([is_created_at(holder.key, holder.fence)], steps))
    except NoLease:
        # Its holder's lease is gone, and the key with it.
        return


def _holders_among(limits: list[int]) -> int:
    """How many of a queue hold the name."""
    if not limits:
        return 0
    limit = limits[0]
    count = 1
    while count < min(limit, len(limits)) and limits[count] == limit:
        count += 1
    return count


def _kept(stander: SeenEntry) -> Kept:
    stamp, since, ends = stander.record
    said, _ = seen.holder(stamp, fence=stander.fence, mode="X", limit=0, held_for=0.0, left=None)
    now = time.time()
    return Kept(said.party, stander.fence, max(0.0, now - since), max(0.0, (ends or now) - now), said.meta)


def _holder(stander: SeenEntry) -> seen.SeenHolder:
    stamp, since, ends = stander.record
    return seen.holder(
        stamp,
        fence=stander.fence,
        mode=_mode(stander),
        limit=stander.limit,
        held_for=max(0.0, time.time() - since),
        left=None if ends is None else max(0.0, ends - time.time()),
    )


def _waiting(place: int, stander: SeenEntry, name: str) -> Waiting:
    waited_for = max(0.0, time.time() - stander.record.since)
    return seen.waiting(
        place, stander.record.stamp, mode=_mode(stander), name=name, waited_for=waited_for, left=None
    )


def _mode(stander: SeenEntry) -> str:
    return "P" if stander.limit else "X"
