"""The history of holds: what is recorded, what is answered, and that it keeps its bound."""

import contextlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from fencehold.core.commands import Break, Cancel, CloseSession
from fencehold.observe.facts import facts_of
from fencehold.observe.history.answers import history, instant
from fencehold.observe.history.lasting_spans import EndOfHold
from fencehold.observe.history.recorder import Recorder
from fencehold.observe.history.schema import positions_in
from fencehold.observe.history.span import HOLD, LONGER, WAIT, Span, class_of
from fencehold.observe.history.store import Bounds, Store
from tests.unit.observe.journaled import SHARED, START_MS, Story


def recorded(story: Story, path: Path, *, since: int = 0) -> Recorder:
    recorder = Recorder(Store(path))
    tell(recorder, story, since=since)
    return recorder


def tell(recorder: Recorder, story: Story, *, since: int = 0) -> None:
    recorder.on_gap(since)
    for thing in story.told:
        if thing.applied.position > since:
            recorder.on_entry(thing.applied, facts_of(thing.entry, thing.applied))
    recorder.flush()


def past(recorder: Recorder, name: str, **asked: Any) -> dict[str, Any]:
    terms: dict[str, Any] = {"since": None, "until": None, "count": 100, **asked}
    return history(recorder.store, name, **terms)


def test_a_hold_is_told_from_its_grant_to_its_end(tmp_path: Path) -> None:
    """Who held it, as whom, with which fence, since when, for how long, and how it ended."""
    story = Story()
    one = story.open("worker", principal="billing")
    fence = story.acquire(one, "a", owner="task", elapsed_ms=1_000)
    story.release(one, fence, "a", elapsed_ms=250)
    (hold,) = past(recorded(story, tmp_path / "h"), "a")["holds"]
    assert hold == {
        "fence": fence,
        "mode": "exclusive",
        "session": one,
        "client": "worker",
        "host": "box",
        "pid": 7,
        "principal": "billing",
        "owner": "task",
        "since": instant(START_MS + 1_000),
        "until": instant(START_MS + 1_250),
        "held_ms": 250,
        "waited_ms": 0,
        "ended": "released",
        "by": None,
        "shard": 0,
        "position": 2,
    }


def test_waits_are_told_and_so_is_how_long_a_holder_had_waited(tmp_path: Path) -> None:
    """One that was granted, one that gave up, one that was withdrawn, one that would have closed a circle."""
    story = Story()
    one, two = story.open("one"), story.open("two")
    fence = story.acquire(one, "a", owner="x")
    story.acquire(two, "b", owner="y")
    story.acquire(two, "a", owner="y", request=1)
    story.acquire(one, "a", owner="z", wait_ms=100)
    story.acquire(one, "a", owner="w", request=9)
    story.entry(Cancel(one, 9))
    story.acquire(one, "b", owner="x")
    story.entry(elapsed_ms=150)
    story.release(one, fence, "a", elapsed_ms=50)
    recorder = recorded(story, tmp_path / "h")
    found = past(recorder, "a")
    assert {(wait["host"], wait["pid"]) for wait in found["waits"]} == {("box", 7)}
    assert {(wait["owner"], wait["ended"], wait["waited_ms"]) for wait in found["waits"]} == {
        ("y", "acquired", 200),
        ("z", "timed_out", 150),
        ("w", "cancelled", 0),
    }
    assert [(hold["waited_ms"], hold["mode"], hold["until"]) for hold in found["holds"][:1]] == [
        (200, "exclusive", None)
    ]
    assert [wait["ended"] for wait in past(recorder, "b")["waits"]] == ["deadlock"]


def test_ends_of_all_kinds_and_breaks_are_pointed_out(tmp_path: Path) -> None:
    """Expired, force-released with who did it, ended with its session."""
    story = Story()
    one = story.open("one")
    story.acquire(one, "a", ttl_ms=100)
    story.entry(elapsed_ms=200)
    story.acquire(one, "a")
    story.entry(Break("a", by=json.dumps({"client": "ops", "host": "desk"})), elapsed_ms=10)
    story.acquire(one, "a")
    story.entry(CloseSession(one))
    found = past(recorded(story, tmp_path / "h"), "a")
    assert [(hold["ended"], hold["by"]) for hold in found["holds"]] == [
        ("released", None),
        ("broken", "ops on desk"),
        ("expired", None),
    ]
    (remark,) = found["remarks"]
    assert remark["kind"] == "break"
    assert "ops on desk" in remark["text"]
    assert "one on box (pid 7)" in remark["text"]


def test_a_late_release_and_the_overlap_are_pointed_out(tmp_path: Path) -> None:
    """A holder that released what it had lost took itself for the holder, while the next one was."""
    story = Story()
    one, two = story.open("slow"), story.open("next")
    fence = story.acquire(one, "a", ttl_ms=100)
    story.acquire(two, "a")
    story.entry(elapsed_ms=200)
    story.release(one, fence, "a", elapsed_ms=500)
    kinds = {remark["kind"]: remark["text"] for remark in past(recorded(story, tmp_path / "h"), "a")["remarks"]}
    assert "0.5 s after it had expired" in kinds["late_release"]
    assert "slow on box" in kinds["overlap"]
    assert "next on box" in kinds["overlap"]


def test_a_hold_far_longer_than_usual_is_pointed_out(tmp_path: Path) -> None:
    """Against the median of those that are shown."""
    story = Story()
    one = story.open("one")
    for held_ms in (10, 10, 2_000, 10, 10, 10):
        story.release(one, story.acquire(one, "a"), "a", elapsed_ms=held_ms)
    (remark,) = past(recorded(story, tmp_path / "h"), "a")["remarks"]
    assert remark["kind"] == "late_release"
    assert "2 s, where 0.01 s is usual" in remark["text"]


def test_what_covers_an_instant_is_found_whether_it_lasted_for_moments_or_for_days(tmp_path: Path) -> None:
    """Spans are filed by how long they lasted; none is missed, and none is told that was over."""
    store = Store(tmp_path / "h")
    spans = []
    for number, lasted in enumerate((0, 1, 64, 65, 2_048, 5_000, 70_000, 3_000_000, 70_000_000, 100_000_000), 1):
        spans.append(
            Span(HOLD, "a", number, "S", 1, "", "", START_MS - lasted // 2, 1, START_MS - lasted // 2 + lasted, 0)
        )
        spans.append(
            Span(HOLD, "a", 100 + number, "S", 1, "", "", START_MS - 2 * lasted - 2, 1, START_MS - lasted - 1, 0)
        )
    spans.append(Span(HOLD, "a", 50, "S", 1, "", "", START_MS - 10**9, 1))
    store.begin()
    store.add(spans)
    store.commit(1)
    found = {span.fence for span in store.spans(HOLD, "a", START_MS, START_MS, 100)}
    assert found == {*range(1, 11), 50}
    assert [class_of(lasted) for lasted in (0, 64, 65, 10**12)] == [0, 0, 1, LONGER]


def test_recorded_again_nothing_is_there_twice(tmp_path: Path) -> None:
    """After a restart the journal tells its entries again: those that are known are passed over, and what had
    not ended is ended where it is."""
    story = Story()
    one = story.open("one")
    first = story.acquire(one, "a")
    crowd = story.acquire(one, "many", mode=SHARED)
    recorded(story, tmp_path / "h").store.close()
    story.release(one, first, "a", elapsed_ms=5)
    story.acquire(one, "a")
    recorder = recorded(story, tmp_path / "h")
    assert [(hold["fence"] == first, hold["ended"]) for hold in past(recorder, "a")["holds"]] == [
        (False, None),
        (True, "released"),
    ]
    assert [hold["fence"] for hold in past(recorder, "many")["holds"]] == [crowd]
    assert recorder.store.rows == 3
    assert positions_in(tmp_path / "h") == {0: story.machine.position}


def test_holds_that_are_packed_are_there_once_after_a_crash(tmp_path: Path) -> None:
    """What was committed is passed over when it is told again, what was not is recorded then."""
    story = Story()
    one = story.open("one")
    lasting = story.acquire(one, "lasting")
    for number in range(400):
        story.release(one, story.acquire(one, f"n{number % 150}"), f"n{number % 150}", elapsed_ms=1)
    recorder = recorded(story, tmp_path / "h")
    position = story.machine.position
    story.release(one, lasting, "lasting", elapsed_ms=1)
    for number in range(200):
        story.release(one, story.acquire(one, f"n{number % 150}"), f"n{number % 150}", elapsed_ms=1)
    for thing in story.told:
        recorder.on_entry(thing.applied, facts_of(thing.entry, thing.applied))
    # It ends here, before it has written the rest.
    recorder.store.close()
    again = Recorder(Store(tmp_path / "h"))
    assert (again.position, again.store.rows) == (position, 401)
    tell(again, story)
    assert again.store.rows == 601
    assert [hold["ended"] for hold in past(again, "lasting")["holds"]] == ["released"]
    found = [hold["fence"] for number in range(150) for hold in past(again, f"n{number}")["holds"]]
    assert len(found) == len(set(found)) == 600
    assert past(again, "n0")["remarks"] == []


def test_a_lost_history_is_filled_again_from_a_snapshot_and_the_entries_after_it(tmp_path: Path) -> None:
    """With who holds and waits in the snapshot, since when, and who they are."""
    story = Story()
    one, two = story.open("one", principal="p"), story.open("two")
    fence = story.acquire(one, "a", elapsed_ms=70)
    story.acquire(two, "a", elapsed_ms=10)
    snapshot, at = b"".join(story.machine.snapshot()), story.machine.position
    story.release(one, fence, "a", elapsed_ms=20)
    recorder = Recorder(Store(tmp_path / "h"))
    recorder.on_began(story.machine.position, at, snapshot)
    tell(recorder, story, since=at)
    found = past(recorder, "a")
    assert [(hold["client"], hold["since"], hold["waited_ms"]) for hold in found["holds"]] == [
        ("two", instant(START_MS + 100), 20),
        ("one", instant(START_MS + 70), None),
    ]
    assert found["holds"][1]["principal"] == "p"
    assert found["remarks"] == []


def test_what_ended_while_the_recorder_was_away_is_not_said_to_last(tmp_path: Path) -> None:
    """A gap names the positions; what is open in the history and not in the snapshot after it ended in it."""
    story = Story()
    one = story.open("one")
    fence = story.acquire(one, "a")
    known = story.machine.position
    recorded(story, tmp_path / "h").store.close()
    story.release(one, fence, "a", elapsed_ms=5)
    story.acquire(one, "b")
    recorder = Recorder(Store(tmp_path / "h"))
    recorder.on_began(story.machine.position, story.machine.position, b"".join(story.machine.snapshot()))
    recorder.flush()
    found = past(recorder, "a")
    assert [(hold["ended"], hold["until"] is None) for hold in found["holds"]] == [("unknown", False)]
    (gap,) = found["remarks"]
    assert f"positions {known + 1} to {story.machine.position}" in gap["text"]
    assert [hold["ended"] for hold in past(recorder, "b")["holds"]] == [None]


def test_after_a_gap_what_is_not_held_any_more_is_not_said_to_last(tmp_path: Path) -> None:
    """Without a snapshot the machine itself is asked who holds the name now."""
    story = Story()
    one = story.open("one")
    fence = story.acquire(one, "a")
    recorder = recorded(story, tmp_path / "h")
    assert past(recorder, "a", held=[])["holds"][0]["ended"] is None
    recorder.on_gap(story.machine.position + 5)
    recorder.flush()
    assert past(recorder, "a", held=[fence])["holds"][0]["ended"] is None
    assert past(recorder, "a", held=[], now=START_MS)["holds"][0]["ended"] == "unknown"


def test_a_journal_restored_from_a_copy_is_recorded_from_its_beginning(tmp_path: Path) -> None:
    """Its positions begin before what was recorded; what was recorded stays."""
    story = Story()
    one = story.open("one")
    for _ in range(5):
        story.release(one, story.acquire(one, "a"), "a", elapsed_ms=5)
    recorder = recorded(story, tmp_path / "h")
    other = Story()
    fence = other.acquire(other.open("restored"), "a", elapsed_ms=2_000)
    recorder.on_began(other.machine.position, 0, b"")
    tell(recorder, other)
    found = past(recorder, "a")
    assert [(hold["client"], hold["fence"]) for hold in found["holds"]][:1] == [("restored", fence)]
    assert len(found["holds"]) == 6


def test_a_hold_that_is_recorded_again_is_counted_once(tmp_path: Path) -> None:
    """A journal that was restored tells it a second time, at the same position; it may end there, or last."""
    story = Story()
    one = story.open("one")
    story.acquire(one, "lasts")
    fence = story.acquire(one, "ends")
    recorder = recorded(story, tmp_path / "h")
    told = list(story.told)
    recorder.on_began(1, 0, b"")
    tell(recorder, story)
    story.told.clear()
    assert recorder.store.rows == 2
    story.release(one, fence, "ends")
    tell(recorder, story, since=len(told))
    assert recorder.store.rows == 2
    recorder.store.close()
    assert Store(tmp_path / "h").rows == 2


def test_the_bound_is_kept_and_what_lasts_is_not_dropped(tmp_path: Path) -> None:
    """In rows, in days and in bytes: the oldest go, but for what has not ended; that goes in its turn."""
    story = Story()
    one = story.open("one")
    lasting = story.acquire(one, "lasting")
    for number in range(300):
        story.release(one, story.acquire(one, f"n{number}"), f"n{number}", elapsed_ms=1)
    recorder = Recorder(Store(tmp_path / "h", Bounds(rows_max=100)))
    tell(recorder, story)
    store = recorder.store
    while store.prune(START_MS):
        pass
    assert store.rows == 100
    assert past(recorder, "lasting")["holds"][0]["ended"] is None
    assert past(recorder, "n0")["holds"] == []
    assert past(recorder, "n299")["holds"]
    assert past(recorder, "n299")["known_since"] > instant(START_MS + 150)
    position = story.machine.position
    story.release(one, lasting, "lasting", elapsed_ms=1)
    tell(recorder, story, since=position)
    assert past(recorder, "lasting")["holds"][0]["ended"] == "released"
    assert store.prune(START_MS + 31 * 86_400_000)
    assert store.rows == 0


def test_the_file_stays_within_its_bytes(tmp_path: Path) -> None:
    """What is given back is taken from the file, too."""
    story = Story()
    one = story.open("one")
    for number in range(400):
        name = f"{number:04d}" * 40
        story.release(one, story.acquire(one, name), name, elapsed_ms=1)
    recorder = Recorder(Store(tmp_path / "h", Bounds(bytes_max=80 << 10)))
    tell(recorder, story)
    store = recorder.store
    assert store.size_bytes > 80 << 10
    for _ in range(4):
        store.keep_bound(START_MS)
    assert store.size_bytes <= 80 << 10
    assert store.rows > 50


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    """It says who locks what; so do the files beside it."""
    story = Story()
    story.open("one")
    recorder = recorded(story, tmp_path / "h ?#%")
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    assert positions_in(tmp_path / "h ?#%") == {0: recorder.position}


def test_a_damaged_file_is_put_aside(tmp_path: Path) -> None:
    """It begins anew, and says so."""
    path = tmp_path / "h"
    path.write_bytes(b"this is no database, whatever its name says" * 100)
    store = Store(path)
    assert store.was_damaged
    assert store.position() == 0
    assert (tmp_path / "h.damaged").exists()


def test_what_cannot_be_written_is_missed_and_a_gap_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is kept for ever in memory; what comes later is recorded again."""
    story = Story()
    one = story.open("one")
    recorder = recorded(story, tmp_path / "h")
    position = story.machine.position
    story.release(one, story.acquire(one, "a"), "a")
    monkeypatch.setattr(recorder.store, "add", _full)
    with pytest.raises(sqlite3.OperationalError):
        tell(recorder, story, since=position)
    monkeypatch.undo()
    recorder.miss()
    position = story.machine.position
    story.release(one, story.acquire(one, "a"), "a")
    tell(recorder, story, since=position)
    found = past(recorder, "a")
    assert len(found["holds"]) == 1
    assert [remark["kind"] for remark in found["remarks"]] == ["gap"]


def _full(*_: object) -> None:
    raise sqlite3.OperationalError("database or disk is full")


def test_shards_share_a_file_and_nothing_else(tmp_path: Path) -> None:
    """Sessions, tickets and positions are a shard's own: the same numbers in another one are others."""
    store = Store(tmp_path / "h")
    stories = [Story(), Story()]
    for shard, story in enumerate(stories):
        first, second = story.open(f"first of {shard}"), story.open(f"second of {shard}")
        fence = story.acquire(first, f"name:{shard}")
        story.acquire(second, f"name:{shard}", elapsed_ms=10)
        tell(Recorder(store, shard), story)
        # Written by now: the end of the wait is found in the file, by its ticket.
        story.told.clear()
        story.release(first, fence, f"name:{shard}", elapsed_ms=100 + shard)
    for shard, story in enumerate(stories):
        recorder = Recorder(store, shard)
        tell(recorder, story, since=recorder.position)
        found = history(store, f"name:{shard}", None, None, 10, shard=shard)
        assert [hold["client"] for hold in found["holds"]] == [f"second of {shard}", f"first of {shard}"]
        assert [hold["shard"] for hold in found["holds"]] == [shard, shard]
        assert [(wait["client"], wait["waited_ms"]) for wait in found["waits"]] == [
            (f"second of {shard}", 100 + shard)
        ]
        assert found["remarks"] == []
    assert positions_in(tmp_path / "h") == {shard: story.machine.position for shard, story in enumerate(stories)}


def test_a_gap_is_told_of_its_own_shard_only(tmp_path: Path) -> None:
    """Of a name of another shard nothing was missed."""
    store = Store(tmp_path / "h")
    for shard in (0, 3):
        story = Story()
        story.acquire(story.open("worker"), f"name:{shard}")
        tell(Recorder(store, shard), story)
    recorder = Recorder(store, 3)
    recorder.on_gap(recorder.position + 5)
    recorder.flush()
    assert history(store, "name:0", None, None, 10, shard=0)["remarks"] == []
    (gap,) = history(store, "name:3", None, None, 10, shard=3)["remarks"]
    assert "positions 3 to 7 of shard 3" in gap["text"]


_OF_VERSION_2 = """
CREATE TABLE facts (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE sessions (shard INTEGER NOT NULL, session INTEGER NOT NULL, who TEXT NOT NULL,
    PRIMARY KEY (shard, session)) WITHOUT ROWID;
CREATE TABLE gaps (first INTEGER NOT NULL, last INTEGER NOT NULL, since INTEGER NOT NULL, until INTEGER NOT NULL,
    shard INTEGER NOT NULL);
CREATE TABLE spans (id INTEGER PRIMARY KEY, what INTEGER NOT NULL, name TEXT NOT NULL, fence INTEGER NOT NULL,
    mode TEXT NOT NULL, session INTEGER NOT NULL, who TEXT NOT NULL, owner TEXT NOT NULL, since INTEGER NOT NULL,
    until INTEGER, class INTEGER NOT NULL, waited INTEGER, ended TEXT, by TEXT, late INTEGER,
    ticket INTEGER NOT NULL, position INTEGER NOT NULL, shard INTEGER NOT NULL);
CREATE INDEX spans_of_name ON spans (name, what, class, since);
CREATE INDEX open_spans ON spans (id) WHERE until IS NULL;
CREATE INDEX open_waits ON spans (shard, ticket) WHERE what = 1 AND until IS NULL;
PRAGMA user_version = 2;
"""
_WITHOUT_SHARDS = """
DROP INDEX open_waits;
ALTER TABLE spans DROP COLUMN shard;
ALTER TABLE gaps DROP COLUMN shard;
CREATE INDEX open_waits ON spans (ticket) WHERE what = 1 AND until IS NULL;
DROP TABLE sessions;
CREATE TABLE sessions (session INTEGER PRIMARY KEY, who TEXT NOT NULL);
PRAGMA user_version = 1;
"""


@pytest.mark.parametrize("version", [1, 2])
def test_a_file_of_an_older_version_goes_on(tmp_path: Path, version: int) -> None:
    """What had not ended is ended where it is; what has ended is found; without shards it is the first one's."""
    story = Story()
    one, two = story.open("worker"), story.open("waiter")
    first = story.acquire(one, "a")
    story.release(one, first, "a", elapsed_ms=3)
    fence = story.acquire(one, "a")
    story.acquire(two, "a", elapsed_ms=1)
    with contextlib.closing(sqlite3.connect(tmp_path / "h")) as db:
        db.executescript(_OF_VERSION_2)
        shared = ("X", one, "worker", "")
        rows = [
            (7, HOLD, "a", first, *shared, START_MS, START_MS + 3, 0, 0, "released", None, None, 0, 2, 0),
            (8, HOLD, "a", fence, *shared, START_MS + 3, None, 6, 0, None, None, None, 0, 4, 0),
            (9, WAIT, "a", 0, "X", two, "waiter", "", START_MS + 4, None, 6, None, None, None, None, 1, 5, 0),
        ]
        db.executemany(f"INSERT INTO spans VALUES ({', '.join('?' * 18)})", rows)
        db.execute("INSERT INTO sessions VALUES (0, ?, 'worker')", (one,))
        db.execute("INSERT INTO facts VALUES ('position', ?)", (story.machine.position,))
        db.commit()
        if version == 1:
            db.executescript(_WITHOUT_SHARDS)
            db.execute("INSERT INTO sessions VALUES (?, 'worker')", (one,))
            db.commit()
    store = Store(tmp_path / "h")
    assert not store.was_damaged
    assert store.rows == 3
    assert store.sessions() == {one: "worker"}
    story.told.clear()
    story.release(one, fence, "a", elapsed_ms=5)
    tell(Recorder(store), story, since=store.position())
    found = history(store, "a", None, None, 10)
    assert [(hold["ended"], hold["shard"], hold["held_ms"]) for hold in found["holds"]] == [
        (None, 0, None),
        ("released", 0, 6),
        ("released", 0, 3),
    ]
    assert [(wait["ended"], wait["waited_ms"]) for wait in found["waits"]] == [("acquired", 5)]
    assert store.rows == 4
    store.close()
    assert Store(tmp_path / "h").rows == 4


def test_what_an_older_version_would_never_drop_goes_in_its_turn(tmp_path: Path) -> None:
    """It left numbers behind that are no newer than those that it had dropped, of what ended in a gap."""
    with contextlib.closing(sqlite3.connect(tmp_path / "h")) as db:
        db.executescript(_OF_VERSION_2)
        shared = ("X", 1, "worker", "", START_MS, START_MS + 3)
        rows = [
            (number, HOLD, "a", number, *shared, LONGER, 0, "unknown", None, None, 0, 2, 0) for number in (7, 120)
        ]
        db.executemany(f"INSERT INTO spans VALUES ({', '.join('?' * 18)})", rows)
        db.execute("INSERT INTO facts VALUES ('pruned_to', 100)")
        db.commit()
    store = Store(tmp_path / "h")
    assert store.rows == len(store.spans(HOLD, "a", None, None, 10)) == 2
    store.keep_bound(START_MS + 31 * 86_400_000)
    assert store.rows == len(store.spans(HOLD, "a", None, None, 10)) == 0


def test_a_file_of_a_later_version_is_put_aside(tmp_path: Path) -> None:
    """It is not written into: a new one is begun, and filled from the journal."""
    Store(tmp_path / "h").close()
    with contextlib.closing(sqlite3.connect(tmp_path / "h")) as db:
        db.execute("PRAGMA user_version = 99")
    assert Store(tmp_path / "h").was_damaged
    assert (tmp_path / "h.damaged").exists()


def test_holds_that_end_together_are_kept_as_if_they_ended_one_by_one(tmp_path: Path) -> None:
    """However long they lasted, and whether they are known or not; the first end of one counts."""
    starts = [START_MS, *(START_MS + many for many in (0, 64, 65, 2_049, 70_000, 100))]
    holds = [Span(HOLD, f"n{at}", at + 1, "X", 1, "", "", since, at + 1) for at, since in enumerate(starts)]
    ends = [
        *(
            EndOfHold(span.name, span.fence, START_MS + 66 * at, "expired", "who" if at % 2 else None)
            for at, span in enumerate(holds)
        ),
        EndOfHold("unknown", 7, START_MS, "expired", None),
        EndOfHold("n1", 99, START_MS, "expired", None),
        EndOfHold("n2", 3, START_MS + 10_000, "released", None),
    ]
    found = []
    for name in ("one by one", "together"):
        store = Store(tmp_path / name)
        store.begin()
        store.add(holds)
        store.commit(len(holds))
        store.begin()
        for part in [ends] if name == "together" else [[end] for end in ends]:
            store.add(store.end_holds(part))
        store.commit(len(holds) + 1)
        assert store.lasting() == []
        assert store.rows == len(holds)
        found.append([store.spans(HOLD, span.name, None, None, 10) for span in holds])
    assert found[0] == found[1]
    assert [(span.until, span.ended, span.by) for (span,) in found[0]] == [
        (max(span.since, START_MS + 66 * at), "expired", "who" if at % 2 else None)
        for at, span in enumerate(holds)
    ]
