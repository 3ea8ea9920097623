"""Packed spans: what was written by the thousand is answered and dropped as if each had a row of its own."""

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from fencehold.observe.history.ended_spans import PACKED_MIN
from fencehold.observe.history.span import HOLD, WAIT, Span
from fencehold.observe.history.store import Bounds, Store
from tests.unit.observe.journaled import START_MS

IN_ROWS = Bounds(rows_max=PACKED_MIN * 50 - 1)
"""So few that a slice would be too much of it."""
LASTING_MS = (0, 1, 5, 64, 65, 2_000, 2_049, 70_000, 3_000_000)


def spans_of(count: int, *, since: int = START_MS, seed: int = 1) -> Iterator[Span]:
    """Holds and waits of one hot name, some warm ones, and many that come once."""
    lots = random.Random(seed)
    for number in range(count):
        kind = lots.random()
        name = "hot" if kind < 0.3 else f"warm:{lots.randrange(20)}" if kind < 0.5 else f"näme:{seed}:{number}"
        what = WAIT if lots.random() < 0.2 else HOLD
        lasted = lots.choice(LASTING_MS) if lots.random() < 0.2 else lots.randrange(20)
        began = since + number // 10
        fence, ticket = (number + 1, 0) if what == HOLD else (0, number + 1)
        who, shard = f"client {number % 7}", number % 3
        more = (began + lasted, 3, "expired", None, None, ticket, shard)
        yield Span(what, name, fence, "X", number % 7, who, "", began, number, *more)


def written(store: Store, spans: list[Span], batch: int) -> Store:
    for start in range(0, len(spans), batch):
        store.begin()
        store.add(spans[start : start + batch])
        store.commit(start + batch)
    return store


def packed(store: Store) -> int:
    return int(store._db.execute("SELECT coalesce(sum(rows), 0) FROM slices").fetchone()[0])


@pytest.mark.parametrize("batch", [300, 3_000])
def test_answers_are_the_same_whether_spans_are_packed_or_not(tmp_path: Path, batch: int) -> None:
    """At an instant, between two times, of all time; of names that come once or all the time; only the newest."""
    spans = list(spans_of(9_000))
    in_rows = written(Store(tmp_path / "rows", IN_ROWS), spans, batch)
    in_packs = written(Store(tmp_path / "packs"), spans, batch)
    assert packed(in_rows) == 0
    assert 0.6 * len(spans) < packed(in_packs) < len(spans)
    assert in_rows.rows == in_packs.rows == len(spans)
    lots = random.Random(2)
    ends = [span.until for span in spans if span.until is not None]
    seen = 0
    for span in [*lots.sample(spans, 150), *(span for span in spans if span.name == "hot")][:250]:
        at = lots.choice((span.since, span.since - 1, lots.choice(ends)))
        for since, until in ((at, at), (None, None), (at, at + 500), (None, at), (at, None)):
            for count in (1, 10, 1_000):
                found = in_packs.spans(span.what, span.name, since, until, count)
                assert found == in_rows.spans(span.what, span.name, since, until, count)
                seen += len(found)
    assert seen > 10_000
    assert in_packs.spans(HOLD, "unknown", None, None, 10) == []


def test_slices_of_many_batches_become_few(tmp_path: Path) -> None:
    """Whatever is looked for is looked for in each: none is lost on the way, and none is larger than it may be."""
    bounds = Bounds(rows_max=400_000)
    spans = [span for span in spans_of(25_000) if span.what == HOLD and (span.until or 0) - span.since <= 20]
    store = written(Store(tmp_path / "h", bounds), spans, 150)
    rows = [row for (row,) in store._db.execute("SELECT rows FROM slices ORDER BY id")]
    assert len(rows) < 15
    assert 2_000 < max(rows) <= bounds.slice_spans_max
    assert sum(rows) + len(spans) % 150 * (len(spans) % 150 < PACKED_MIN) == len(spans) == store.rows
    ids = [number for (number,) in store._db.execute("SELECT DISTINCT slice FROM packs ORDER BY slice")]
    assert len(ids) == len(rows)
    for span in random.Random(3).sample(spans, 300):
        assert span in store.spans(HOLD, span.name, span.since, span.since, 1_000)


def test_the_past_of_all_slices_is_there_after_a_restart(tmp_path: Path) -> None:
    """With how many spans there are, and the numbers of new ones behind those that are there."""
    spans = list(spans_of(4_000))
    written(Store(tmp_path / "h"), spans[:3_000], 1_000).close()
    store = written(Store(tmp_path / "h"), spans[3_000:], 1_000)
    assert store.rows == 4_000
    known = [span for span in spans if span.name == "hot" and span.what == HOLD]
    known.sort(key=lambda span: (span.since, span.position, span.fence), reverse=True)
    assert store.spans(HOLD, "hot", None, None, 5_000) == known


def test_a_late_release_is_noted_of_a_hold_that_is_packed(tmp_path: Path) -> None:
    """Of that hold and of no other; one that is not known is passed over."""
    spans = [span for span in spans_of(3_000) if span.what == HOLD]
    store = written(Store(tmp_path / "h"), spans, 3_000)
    late = [next(span for span in spans if span.name == name) for name in ("hot", "warm:3")]
    store.begin()
    for span in late:
        store.note_late(span.name, span.fence, START_MS + 10**6)
    store.note_late("hot", 10**6, START_MS)
    store.note_late("unknown", 1, START_MS)
    store.commit(3_001)
    for span in late:
        told = store.spans(HOLD, span.name, None, None, 5_000)
        assert [(one.fence, one.late) for one in told if one.late] == [(span.fence, START_MS + 10**6)]
        assert [one._replace(late=None) for one in told if one.late] == [span]


def test_slices_go_as_a_whole_the_oldest_first(tmp_path: Path) -> None:
    """In rows there is never more than the bound, and not much less; what is known begins behind what went."""
    bounds = Bounds(rows_max=60_000)
    store = Store(tmp_path / "h", bounds)
    for batch in range(30):
        since = START_MS + batch * 1_000
        spans = [
            Span(
                HOLD, f"n{batch}.{at}", batch * 3_000 + at + 1, "X", 1, "", "", since, at, since + 5, 0, "released"
            )
            for at in range(3_000)
        ]
        written(store, spans, 3_000)
        store.keep_bound(START_MS)
        assert store.rows <= bounds.rows_max
    assert store.rows >= bounds.rows_max - bounds.slice_spans_max
    assert store.spans(HOLD, "n9.5", None, None, 10) == []
    assert len(store.spans(HOLD, "n29.5", None, None, 10)) == 1
    assert START_MS + 9_000 < store.known_since < START_MS + 12_000
    rows = store.rows
    store.close()
    store = Store(tmp_path / "h", bounds)
    assert store.rows == rows
    store.keep_bound(START_MS + 40 * 86_400_000)
    assert store.rows == 0
    assert store._db.execute("SELECT count(*) FROM packs").fetchone() == (0,)


def test_the_file_stays_within_its_bytes_with_slices(tmp_path: Path) -> None:
    """What slices leave is given back."""
    bounds = Bounds(bytes_max=8 << 20)
    store = Store(tmp_path / "h", bounds)
    for batch in range(30):
        written(store, list(spans_of(4_000, since=START_MS + batch * 1_000, seed=batch)), 4_000)
        store.keep_bound(START_MS)
    assert store.size_bytes <= bounds.bytes_max
    assert store.rows > 20_000


def test_what_could_not_be_written_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that fails half-way leaves nothing."""
    store = written(Store(tmp_path / "h"), list(spans_of(2_000)), 2_000)
    store.begin()
    store.add(list(spans_of(2_000, seed=2)))
    assert store.rows == 4_000
    store.rollback()
    assert store.rows == 2_000

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(store, "set_fact", full)
    with pytest.raises(sqlite3.OperationalError):
        store.keep_bound(START_MS + 40 * 86_400_000)
    monkeypatch.undo()
    assert store.rows == 2_000
    written(store, list(spans_of(2_000, seed=2)), 2_000)
    assert store.rows == 4_000
    store.keep_bound(START_MS + 40 * 86_400_000)
    assert store.rows == 0


def test_what_sqlite_takes_back_by_itself_is_not_counted(tmp_path: Path) -> None:
    """A file that is full ends the transaction before anyone says so: what is kept is not dropped for that."""
    store = written(Store(tmp_path / "h"), list(spans_of(2_000)), 2_000)
    pages = int(store._db.execute("PRAGMA page_count").fetchone()[0])
    store._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    store.begin()
    with pytest.raises(sqlite3.OperationalError, match="full"):
        _add_bit_by_bit(store, [span for seed in range(2, 12) for span in spans_of(1_000, seed=seed)])
    assert not store._db.in_transaction
    store.rollback()
    assert store.rows == 2_000
    store.close()
    assert Store(tmp_path / "h").rows == 2_000


def _add_bit_by_bit(store: Store, spans: list[Span]) -> None:
    """Fewer at once than are packed, of which some last."""
    for start in range(0, len(spans), 100):
        bit = spans[start : start + 100]
        store.add([span if at % 4 else span._replace(until=None) for at, span in enumerate(bit)])


def test_slices_of_quiet_nights_do_not_outlive_their_days(tmp_path: Path) -> None:
    """What is written together once in a night does not become one with what is weeks older."""
    store, day = Store(tmp_path / "h", Bounds(days_max=30)), 86_400_000
    for night in range(70):
        now = START_MS + night * day
        spans = [
            Span(
                HOLD, f"n{night}.{at}", night * 1_000 + at + 1, "X", 1, "", "", now, night, now + 5, 0, "released"
            )
            for at in range(400)
        ]
        written(store, spans, 200)
        store.keep_bound(now)
        (oldest,) = store._db.execute("SELECT min(since) FROM slices").fetchone()
        assert now - oldest <= 31 * day
    assert store.rows >= 30 * 400
