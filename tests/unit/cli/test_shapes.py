"""Shapes: the JSON of one thing is the same everywhere, and says null for what there is none of."""

import json

from fencehold.cli import shapes
from fencehold.cli.holders import holding

_LOCK = {
    "name": "jobs",
    "holds": [],
    "waiters": [],
    "hold_count": 0,
    "waiter_count": 0,
    "delayed_ms": 0,
    "kept": [],
}
_HOLD = {
    "session": 3,
    "owner": "report#1",
    "fence": 7,
    "mode": "X",
    "limit": 0,
    "held_ms": 4_200,
    "left_ms": -1,
    "meta": "",
    "session_meta": json.dumps({"client": "nightly", "host": "web1", "pid": 81, "version": "1"}),
}


def test_a_client_is_its_name_before_its_number() -> None:
    """What it said of itself beyond that is its metadata."""
    client = shapes.client(_HOLD)
    assert list(client)[:2] == ["name", "host"]
    assert client == {
        "name": "nightly",
        "host": "web1",
        "pid": 81,
        "user": None,
        "session": 3,
        "owner": "report#1",
        "meta": {"version": "1"},
    }


def test_metadata_may_be_anything() -> None:
    """What is no JSON, or no object, is told as it is."""
    for said, meta in (("plain words", "plain words"), ("[1]", [1]), ("", None)):
        client = shapes.client({"session": 1, "session_meta": said})
        assert (client["name"], client["meta"]) == (None, meta)


def test_times_are_iso_and_seconds() -> None:
    """Since and for how long; until and how long still; null without an end."""
    dated = shapes.hold("jobs", {**_HOLD, "since_unix_ms": 1_767_268_800_123, "age_ms": 9_000})
    assert (dated["since"], dated["for_s"]) == ("2026-01-01T12:00:00.123Z", 9)
    assert (dated["until"], dated["left_s"]) == (None, None)
    ends = shapes.until(1_500)
    assert ends["left_s"] == 1.5
    assert ends["until"].endswith("Z")
    assert shapes.instant(10**30) is None


def test_what_is_not_known_is_null_rather_than_reckoned() -> None:
    """A hold from before the server kept the time of day, or a server that does not."""
    for unknown in ({}, {"since_unix_ms": None, "age_ms": 4_200}):
        hold = shapes.hold("jobs", {**_HOLD, **unknown})
        assert (hold["since"], hold["for_s"]) == (None, 4.2)
    view = {
        "name": "jobs",
        "holds": [_HOLD],
        "waiters": [],
        "hold_count": 1,
        "waiter_count": 0,
        "delayed_ms": 0,
        "kept": [],
    }
    assert holding(view) == "held by nightly on web1 (pid 81) since unknown (4.2s), fence 7; no waiters"


def test_an_event_names_the_client_and_who_broke_its_hold() -> None:
    """In the shapes of everything else; a gap has neither."""
    seen = {
        "kind": "broken",
        "position": 9,
        "at": 4,
        "session": 3,
        "owner": "",
        "names": ["jobs"],
        "fence": 7,
        "detail": "",
        "unix_ms": 1_767_268_800_000,
        "session_meta": _HOLD["session_meta"],
        "by": '{"client":"fencehold break","user":"alice","host":"ops1"}',
    }
    event = shapes.event(seen)
    assert (event["time"], event["names"], event["detail"]) == ("2026-01-01T12:00:00.000Z", ["jobs"], None)
    assert (event["client"]["name"], event["by"]["user"], event["by"]["session"]) == ("nightly", "alice", None)
    gap = shapes.event({"kind": "gap", "position": 9})
    assert (gap["client"], gap["time"], gap["by"], gap["names"]) == (None, None, None, [])


def test_a_hold_is_the_same_in_a_list_and_by_itself() -> None:
    """So that a script need learn one shape."""
    view = {
        "name": "jobs",
        "holds": [_HOLD],
        "waiters": [],
        "hold_count": 1,
        "waiter_count": 0,
        "delayed_ms": 0,
        "kept": [],
    }
    summary = {"name": "jobs", "mode": "X", "holders": 1, "waiters": 0, "fence": 7}
    listed = shapes.listed({**summary, "hold": _HOLD, "kept": []})
    whole, alone = shapes.lock(view)["holds"][0], listed["hold"]
    assert whole == alone


def test_a_name_may_be_kept_though_nobody_holds_it() -> None:
    """For whom, and until when."""
    kept = {**_HOLD, "kept_ms": 1_000, "left_ms": 9_000}
    view = {
        "name": "jobs",
        "holds": [],
        "waiters": [],
        "hold_count": 0,
        "waiter_count": 0,
        "delayed_ms": 0,
        "kept": [kept],
    }
    told = shapes.lock(view)["kept"]
    assert (told["fence"], told["client"]["name"], told["left_s"]) == (7, "nightly", 9)
    assert holding(view).startswith("kept for nightly on web1 (pid 81) until ")
    assert shapes.lock({**view, "kept": []})["kept"] is None
    assert holding({**view, "kept": []}) == "free"
