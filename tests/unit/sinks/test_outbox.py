"""The outbox: in order, bounded, and honest about what became of everything."""

import random

from fencehold.sinks.cloudevents import record_of
from fencehold.sinks.outbox import Bounds, Outbox
from fencehold.sinks.port import Record
from rig.event_targets import gap, story

RECORDS = [record_of(event, "test") for event in (*story(9), gap(4, 7))]


def _filled(bounds: Bounds = Bounds(), records: list[Record] = RECORDS) -> Outbox:  # noqa: B008
    outbox = Outbox(bounds, random.Random(1).random)
    for record in records:
        outbox.put(record)
    return outbox


def test_what_is_delivered_leaves_in_order() -> None:
    """Batches are as large as they may be, and stay until they are delivered."""
    outbox = _filled(Bounds(batch_max=4))
    assert outbox.batch() == outbox.batch() == RECORDS[:4]
    outbox.on_delivered(RECORDS[:4])
    assert (outbox.cursors.get(0), outbox.batch()) == (RECORDS[3].cursor, RECORDS[4:8])
    outbox.on_delivered(RECORDS[4:8])
    outbox.on_delivered(RECORDS[8:])
    assert (len(outbox), outbox.size_bytes, outbox.batch()) == (0, 0, [])
    assert (outbox.counters.delivered, outbox.counters.gaps) == (10, 1)


def test_it_is_bounded_by_records_and_bytes() -> None:
    """When it is full, its reader waits; a batch has one record at the least, however large."""
    assert not _filled(Bounds(records_max=11)).is_full
    assert _filled(Bounds(records_max=10)).is_full
    assert _filled(Bounds(bytes_max=5_000)).is_full
    assert len(_filled(Bounds(batch_bytes_max=10)).batch()) == 1


def test_few_events_wait_for_others_to_travel_with() -> None:
    """But not if there is a whole batch of them, nor after a failure: then the pause was enough."""
    outbox = _filled(Bounds(batch_max=11, gather_s=0.5))
    assert outbox.gather_s == 0.5
    outbox.on_failed(RECORDS, "away")
    assert outbox.gather_s == 0
    outbox.on_delivered(RECORDS)
    assert outbox.gather_s == 0.5
    assert _filled(Bounds(batch_max=10, gather_s=0.5)).gather_s == 0


def test_what_the_target_has_already_is_not_delivered_again() -> None:
    """After a failure it says how far it got."""
    outbox = _filled()
    outbox.on_opened({0: RECORDS[2].cursor})
    assert (outbox.batch()[0], outbox.cursors.get(0)) == (RECORDS[3], RECORDS[2].cursor)
    outbox.on_opened({})
    assert outbox.batch()[0] == RECORDS[3]
    outbox.clear(0, (1, 1))
    assert (len(outbox), outbox.cursors.get(0)) == (0, (1, 1))


def test_what_is_wrong_is_dropped_and_counted() -> None:
    """The others stay, in their order."""
    outbox = _filled()
    outbox.on_rejected([RECORDS[1].place, RECORDS[5].place])
    assert outbox.batch() == [record for at, record in enumerate(RECORDS) if at not in (1, 5)]
    assert (outbox.counters.dropped, outbox.size_bytes) == (2, _filled(records=outbox.batch()).size_bytes)


def test_pauses_grow_up_to_a_bound_and_begin_anew() -> None:
    """Each try that fails waits longer than the one before it, until one does not fail."""
    outbox = _filled(Bounds(pause_s_first=0.1, pause_s_max=1.0))
    pauses = [outbox.on_failed(RECORDS[:3], "away") for _ in range(8)]
    assert all(0.05 * 2**at <= pause <= 0.1 * 2**at for at, pause in enumerate(pauses[:3]))
    assert all(0.5 <= pause <= 1.0 for pause in pauses[4:])
    assert (outbox.counters.retried, outbox.counters.error) == (24, "away")
    outbox.on_delivered(RECORDS[:3])
    assert outbox.counters.error == ""
    assert outbox.on_failed(RECORDS[3:4], "again") <= 0.1
