"""What an observer counts, logs and answers, told what a node tells it."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from fencehold.core.commands import Announce, Break, ChangeMap, ForceSlots, FoundShard, Release
from fencehold.observe.catalogue import BY_NAME, COUNTED, HISTOGRAM
from fencehold.observe.frames import Answered, Asked, Began, Entries, Measured, Unframer, framed, read_said
from fencehold.observe.observer import NO_HISTORY, Observer, Settings
from fencehold.observe.page import page
from fencehold.placement.map import even_map
from fencehold.placement.slots import slot_of
from tests.unit.observe.journaled import Story


def figures(observer: Observer) -> dict[tuple[str, ...], Any]:
    """By metric and labels."""
    answer = observer.take(Measured(1))
    assert isinstance(answer, Answered)
    found = json.loads(answer.data)
    return {(name, *row[0]): row[1] if len(row) == 2 else row[1:] for name, rows in found.items() for row in rows}


def busy_story() -> Story:
    """Everything that is counted, once at least."""
    story = Story()
    one, two = story.open("one"), story.open("two", via="http")
    fence = story.acquire(one, "order:1", owner="x")
    story.acquire(two, "order:1", wait_ms=0)
    story.acquire(two, "order:1")
    story.release(one, fence, "order:1", elapsed_ms=400)
    story.release(one, fence, "order:1")
    held = story.acquire(one, "job", ttl_ms=50)
    story.entry(elapsed_ms=100)
    story.entry(Release(one, ("job",), held))
    story.entry(Break("order:1"), Announce("node", "box:1"))
    story.acquire(one, "p", owner="x")
    story.acquire(two, "q", owner="y")
    story.acquire(one, "q", owner="x")
    story.acquire(two, "p", owner="y")
    story.acquire(one, "n" * 5_000)
    return story


def test_operations_are_counted_by_what_came_of_them() -> None:
    """Once each, by their template and listener."""
    observer = Observer(Settings())
    observer.take(busy_story().entries(append_s=(0.002,)))
    found = figures(observer)

    def count(*labels: str) -> int:
        op, outcome, door, template = labels
        return int(found.get(("fencehold_operations_total", op, outcome, "correctness", door, template), 0))

    assert count("acquire", "granted", "resp", "order:*") == 1
    assert count("acquire", "granted", "http", "order:*") == 1
    assert count("acquire", "busy", "http", "order:*") == 1
    assert count("release", "ok", "resp", "order:*") == 1
    assert count("release", "already_released", "resp", "order:*") == 1
    assert count("release", "expired", "resp", "job") == 1
    assert count("break", "ok", "resp", "order:*") == 1
    assert count("acquire", "deadlock", "http", "p") == 1
    assert found["fencehold_hold_losses_total", "expired", "correctness", "job"] == 1
    assert found["fencehold_hold_losses_total", "broken", "correctness", "order:*"] == 1
    assert found["fencehold_fences_late_total", "correctness", "job"] == 1
    assert found["fencehold_deadlocks_total", "correctness", "p"] == 1
    assert found["fencehold_leader_changes_total", "0"] == 1
    assert found["fencehold_acquires_queued_total", "correctness", "order:*"] == 1
    counts, total = found["fencehold_acquire_wait_seconds", "correctness", "order:*"]
    assert (sum(counts), total) == (2, 0.4)
    assert sum(found["fencehold_append_seconds", "correctness", "0"][0]) == 1


def test_who_waited_for_a_name_that_moves_was_turned_away_and_not_denied(tmp_path: Path) -> None:
    """No right was taken from anybody, and neither metrics nor the history say so."""
    story = Story()
    story.entry(FoundShard(1, 4))
    one, two = story.open("one"), story.open("two")
    story.acquire(one, "c")
    story.acquire(two, "c")
    story.entry(ChangeMap(replace(even_map(4).moved([slot_of("c")], 3), version=2)), ForceSlots())
    observer = Observer(Settings(history=str(tmp_path / "h"), shards=4))
    observer.take(replace(story.entries(), shard=1))
    outcomes = {key[2] for key in figures(observer) if key[:2] == ("fencehold_operations_total", "acquire")}
    assert outcomes == {"granted", "turned_away"}
    answer = observer.take(Asked(7, "c", None, None, 10, None, 1))
    assert answer is not None
    assert [wait["ended"] for wait in json.loads(answer.data)["waits"]] == ["turned_away"]
    observer.close()


def test_shards_are_counted_together_and_their_journals_apart(tmp_path: Path) -> None:
    """The same session, ticket or fence of another shard is another; how long appends take is told of each."""
    observer = Observer(Settings(history=str(tmp_path / "h"), shards=2))
    stories = [busy_story(), busy_story()]
    for shard, story in enumerate(stories):
        observer.take(replace(story.entries(append_s=(0.002,)), shard=shard))
    alone = Observer(Settings())
    alone.take(busy_story().entries(append_s=(0.002,)))
    found, once = figures(observer), figures(alone)
    for key in once:
        if key[0] == "fencehold_operations_total":
            assert found[key] == 2 * once[key]
    for label in ("0", "1"):
        assert sum(found["fencehold_append_seconds", "correctness", label][0]) == 1
        assert found["fencehold_leader_changes_total", label] == 1
    waits, _ = found["fencehold_acquire_wait_seconds", "correctness", "order:*"]
    assert sum(waits) == 4
    for shard in (0, 1):
        answer = observer.take(Asked(7, "job", None, None, 10, None, shard))
        assert answer is not None
        assert sorted({hold["shard"] for hold in json.loads(answer.data)["holds"]}) == [0, 1]
    observer.close()


def test_every_metric_has_the_labels_of_the_catalogue(tmp_path: Path) -> None:
    """What an observer counts can be shown, and Prometheus reads the page."""
    observer = Observer(Settings(history=str(tmp_path / "h")))
    observer.take(busy_story().entries(append_s=(0.002,)))
    for (name, *labels), value in figures(observer).items():
        metric = BY_NAME[name]
        assert len(labels) == len(metric.labels), name
        assert (metric.kind == HISTOGRAM) is isinstance(value, list), name
    text = page(observer.figures()).decode()
    families = {family.name for family in text_string_to_metric_families(text)}
    assert families <= {metric.name.removesuffix("_total") for metric in COUNTED}
    assert "fencehold_acquire_wait_seconds" in families


def test_a_million_names_leave_the_page_as_it_is() -> None:
    """The page of many names is as long as that of a few, but for longer numbers."""

    def lines(count: int) -> int:
        observer, story = Observer(Settings()), Story()
        session = story.open("one")
        for number in range(count):
            story.release(session, story.acquire(session, f"order:{number}"), f"order:{number}")
        observer.take(story.entries())
        return len(page(observer.figures()).splitlines())

    assert lines(5) == lines(2_000)


def test_a_standby_remembers_and_does_not_count() -> None:
    """Or a sum over nodes would count everything several times. What began before it led is measured then."""
    observer, story = Observer(Settings()), Story()
    session = story.open("one")
    fence = story.acquire(session, "a")
    observer.take(story.entries(leads=False))
    assert not [key for key in figures(observer) if key[0] == "fencehold_operations_total"]
    position = story.machine.position
    story.release(session, fence, "a", elapsed_ms=2_000)
    observer.take(story.entries(position))
    assert figures(observer)["fencehold_hold_seconds", "correctness", "a"][1] == 2.0


def test_missed_entries_are_counted_as_a_gap() -> None:
    """By positions: nobody need say so."""
    observer = Observer(Settings())
    observer.take(Entries("correctness", 0, 10, True, [], []))
    observer.take(Entries("correctness", 10, 12, True, [], []))
    assert figures(observer)["fencehold_observer_gaps_total",] == 0
    observer.take(Entries("correctness", 15, 16, True, [], []))
    assert figures(observer)["fencehold_observer_gaps_total",] == 1


def test_incidents_are_logged_with_names_and_principals(caplog: pytest.LogCaptureFixture) -> None:
    """Expiries, losses, deadlocks, late releases and slow appends; by the node that leads."""
    observer = Observer(Settings(slow_append_s=0.1))
    story = busy_story()
    lost = story.open("gone", principal="billing", ttl_ms=1_000)
    story.acquire(lost, "kept")
    story.entry(elapsed_ms=5_000)
    with caplog.at_level(logging.INFO, "fencehold.server"):
        observer.take(story.entries(append_s=(0.05, 0.3)))
    told = {record.getMessage(): getattr(record, "facts", {}) for record in caplog.records}
    assert {"expired", "session_lost", "deadlock", "late", "slow_append"} <= told.keys()
    assert told["expired"]["name"] == "job"
    assert told["session_lost"]["principal"] == "billing"
    assert told["session_lost"]["names"] == "kept"
    assert told["slow_append"] == {"took_s": 0.3}
    assert "waits for" in told["deadlock"]["circle"]


def test_a_flood_of_incidents_is_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    """And a word that more were left out."""
    observer, story = Observer(Settings()), Story()
    session = story.open("one")
    for number in range(100):
        story.acquire(session, f"a{number}", ttl_ms=10)
    story.entry(elapsed_ms=20)
    with caplog.at_level(logging.INFO, "fencehold.server"):
        observer.take(story.entries())
    assert len(caplog.records) == 11
    assert "left out" in caplog.records[-1].getMessage()


def test_a_standby_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """One node tells it, and that is the one that leads."""
    with caplog.at_level(logging.INFO, "fencehold.server"):
        Observer(Settings()).take(busy_story().entries(leads=False))
    assert not caplog.records


def test_the_past_is_answered_as_of_the_question(tmp_path: Path) -> None:
    """What was told before it is in the answer, written or not."""
    observer, story = Observer(Settings(history=str(tmp_path / "h"))), Story()
    observer.take(Began(0))
    story.acquire(story.open("one"), "a")
    observer.take(story.entries())
    answer = observer.take(Asked(7, "a", None, None, 10, None))
    assert answer is not None
    assert answer.number == 7
    assert json.loads(answer.data)["holds"][0]["client"] == "one"
    observer.close()


def test_without_a_history_a_question_says_how_to_have_one() -> None:
    """In its own words."""
    answer = Observer(Settings()).take(Asked(1, "a", None, None, 10, None))
    assert answer is not None
    assert answer.error == NO_HISTORY


def test_frames_survive_any_cut() -> None:
    """Bytes come as they like."""
    frames = [framed(Began(5)), framed(Measured(3)), framed(busy_story().entries())]
    whole, unframer, found = b"".join(frames), Unframer(), []
    for at in range(0, len(whole), 7):
        found += unframer.feed(whole[at : at + 7])
    assert [framed(read_said(frame)) for frame in found] == frames
