"""Opening a journal: what is there, seen at one moment; or the making of an empty one.

Whoever opens while another saves and trims may find the snapshot gone that it was told of: then it looks again.
What cannot come about by any order of our own calls is damage, and told as such.
"""

from typing import NamedTuple

from fencehold.drivers.etcd.cluster import Cluster
from fencehold.drivers.etcd.transactions import (
    count_in,
    first_of,
    get,
    is_absent,
    put,
    transaction,
    value_in,
)
from fencehold.engines.etcd import records
from fencehold.engines.etcd.keys import Keys
from fencehold.engines.etcd.snapshots import Pointer, load, pointer_of
from fencehold.errors import Damaged, OutcomeUnknown, Unavailable
from fencehold.journal.port import Opened
from fencehold.types import BEGINNING, Epoch, Position

_LOOKS_MAX = 16
"""How often a snapshot may be replaced while it is being loaded."""


class Sight(NamedTuple):
    """What stood at one moment."""

    epoch: Epoch
    pointer: Pointer | None
    end: Position


async def open_journal(cluster: Cluster, keys: Keys) -> Opened:
    """As the port says."""
    gone: Pointer | None = None
    for _ in range(_LOOKS_MAX):
        sight = await _look(cluster, keys)
        if sight is None:
            await _make(cluster, keys)
        elif sight.pointer is None:
            return Opened(None, sight.epoch, sight.end)
        elif sight.pointer == gone:
            raise Damaged(f"the snapshot at position {gone.position} is gone from etcd in part or whole")
        elif (snapshot := await load(cluster, keys, sight.pointer)) is not None:
            return Opened(snapshot, sight.epoch, sight.end)
        else:
            gone = sight.pointer
    raise Unavailable("snapshots are replaced faster than one can be read")


def epoch_in(value: bytes | None) -> Epoch:
    """The epoch that the epoch's key holds.

    Raises:
        Damaged: it holds none.
    """
    if value is None or not value.isdigit():
        raise Damaged("the epoch is gone from etcd, or was overwritten: restore etcd from a copy")
    return Epoch(int(value))


async def _look(cluster: Cluster, keys: Keys) -> Sight | None:
    look = [get(keys.epoch), get(keys.snapshot), first_of(keys.entries_start, keys.entries_end)]
    epoch, snapshot, entries = (await cluster.read(transaction(then=look))).responses
    pointer, total = pointer_of(snapshot), count_in(entries)
    if value_in(epoch) is None and pointer is None and not total:
        return None
    begins = BEGINNING if pointer is None else Position(pointer.position)
    if not total or (first := keys.position(entries.response_range.kvs[0].key)) > begins:
        raise Damaged(f"entries after position {begins} are gone from etcd: restore it from a copy")
    return Sight(epoch_in(value_in(epoch)), pointer, Position(first + total - 1))


async def _make(cluster: Cluster, keys: Keys) -> None:
    start = keys.entry(BEGINNING)
    so = [is_absent(keys.epoch), is_absent(keys.snapshot), is_absent(start)]
    try:
        # If another made it meanwhile, that is as good.
        await cluster.transact(transaction(so, [put(keys.epoch, b"0"), put(start, records.beginning(BEGINNING))]))
    except OutcomeUnknown as error:
        raise Unavailable(str(error)) from error
