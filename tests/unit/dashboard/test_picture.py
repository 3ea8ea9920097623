"""The picture of a service: what lists, looks and events make of it, in whatever order they come."""

from typing import Any

import pytest

from fencehold.dashboard.graph import circles, graph
from fencehold.dashboard.picture import Picture
from fencehold.dashboard.reader import sinks_in
from fencehold.dashboard.views import overview, session
from fencehold.errors import PermissionDenied
from fencehold.locks.views import Event, Explanation, Holder, Missing, Party, Waiting, time_of


def party(number: int, owner: str = "t") -> Party:
    return Party(number, owner, f"client-{number}", f"host-{number}", number, {})


def event(kind: str, position: int, *names: str, fence: int = 0, session: int = 1, **more: Any) -> Event:
    who = party(session)
    return Event(kind, position, 0, session, "t", names, fence, "", who, time_of(1_700_000_000_000), **more)


def brief(name: str, fence: int, *, holders: int = 1, waiters: int = 0, session: int = 1) -> list[Any]:
    return [name.encode(), b"X", holders, waiters, fence, session, b"t", 1_700_000_000_000, -1]


def seen(name: str, holder: int, *waiters: int, fence: int = 1) -> Explanation:
    hold = Holder(party(holder), fence, "X", 1, 1.0, None, None)
    queue = tuple(Waiting(at, party(each), "X", (name,), 1.0, None) for at, each in enumerate(waiters))
    return Explanation(name, (hold,), queue, 0.0)


@pytest.fixture
def picture() -> Picture:
    made = Picture(lambda: 0.0)
    roll = made.begin_list()
    made.take_page(roll, [brief("a", 5), brief("b", 6)], 0)
    made.end_list(roll, 1)
    return made


def hear(picture: Picture, *events: Event) -> None:
    for each in events:
        picture.hear(each.index, each, 0.0)


def fences(picture: Picture) -> dict[str, int]:
    return {row.name: row.fence for row in picture.roll.oldest(100)}


def test_events_keep_it_up_to_date(picture: Picture) -> None:
    """Grants and ends of exclusive holds need no question."""
    hear(picture, event("released", 7, "a", fence=5), event("acquired", 8, "c", fence=9, mode="S"))
    assert fences(picture) == {"b": 6, "c": 9}
    assert not picture.dirty
    assert picture.position == 8


def test_late_events_do_no_harm(picture: Picture) -> None:
    """What a list has told already may be told again by events."""
    hear(picture, event("acquired", 3, "a", fence=4), event("released", 4, "a", fence=4))
    hear(picture, event("acquired", 5, "a", fence=5))
    assert fences(picture) == {"a": 5, "b": 6}


def test_what_events_do_not_tell_is_looked_up(picture: Picture) -> None:
    """Queues, second holders, and waits that ended without a name."""
    hear(picture, event("queued", 8, "a", session=2))
    assert list(picture.dirty) == ["a"]
    picture.take_look(seen("a", 1, 2, fence=5), 0)
    assert not picture.dirty
    assert picture.roll.awaited == 1
    hear(picture, event("cancelled", 9, session=2))
    assert list(picture.dirty) == ["a"]
    hear(picture, event("acquired", 10, "b", fence=11, session=3))
    assert "b" in picture.dirty


def test_a_page_that_crossed_with_an_event_is_not_believed(picture: Picture) -> None:
    """Nobody knows which of them is newer: the name is looked up."""
    roll = picture.begin_list()
    picture.begin_page()
    hear(picture, event("released", 8, "a", fence=5))
    picture.take_page(roll, [brief("a", 5), brief("b", 6)], 0)
    picture.end_list(roll, 2)
    assert fences(picture) == {"b": 6}
    assert "a" in picture.dirty


def test_a_page_may_be_older_than_what_was_told_just_before_it_was_asked_for() -> None:
    """As of a leader that does not know yet that another leads, which has told more. Later ones are believed."""
    now_s = [10.0]
    picture = Picture(lambda: now_s[0])
    roll = picture.begin_list()
    picture.begin_page()
    hear(picture, event("released", 8, "a", fence=5), event("released", 9, "b", fence=6))
    now_s[0] += 0.05
    picture.begin_page()
    picture.take_page(roll, [brief("a", 5)], 0)
    assert list(picture.dirty) == ["a"]
    for _ in range(2):
        now_s[0] += 0.25
        picture.begin_page()
    picture.take_page(roll, [brief("b", 7)], 0)
    picture.end_list(roll, 2)
    assert fences(picture) == {"b": 7}


def test_while_a_list_is_read_again_the_old_one_is_shown_and_both_are_fed(picture: Picture) -> None:
    """Events of that time are in the new one, too."""
    roll = picture.begin_list()
    hear(picture, event("acquired", 8, "c", fence=9))
    assert fences(picture) == {"a": 5, "b": 6, "c": 9}
    picture.begin_page()
    picture.take_page(roll, [brief("b", 6)], 0)
    picture.end_list(roll, 2)
    assert fences(picture) == {"b": 6, "c": 9}


def test_a_gap_is_remembered(picture: Picture) -> None:
    """With its positions."""
    hear(picture, event("gap", 20, missing=Missing(9, 20)))
    assert picture.gap == (9, 20, 0)
    assert [each.kind for _, each in picture.events_of("a", 10)] == ["gap"]


def test_who_is_refused_keeps_nothing(picture: Picture) -> None:
    """What a login was told is gone with it."""
    hear(picture, event("acquired", 8, "c", fence=9))
    picture.refuse(PermissionDenied("gone"))
    assert (len(picture.roll), len(picture.events), picture.sessions) == (0, 0, {})


def test_a_view_is_made_once_for_all_who_look(picture: Picture) -> None:
    """Until something changes."""
    made: list[int] = []
    for _ in range(3):
        picture.view("x", lambda: made.append(1))
    picture.change()
    picture.view("x", lambda: made.append(1))
    assert len(made) == 2


def test_the_graph_has_chains_and_circles(picture: Picture) -> None:
    """One waits for another, who waits for a third; and processes that wait for each other are pointed out."""
    for name, holder, waiter in (("a", 1, 2), ("b", 2, 3), ("c", 3, 4)):
        picture.take_look(seen(name, holder, waiter), 0)
    told = graph(picture)
    assert [len(chain["parties"]) for chain in told["chains"]] == [4]
    assert told["chains"][0]["names"] == ["c", "b", "a"]
    assert {each["session"]: each["depth"] for each in told["parties"]} == {1: 0, 2: 1, 3: 2, 4: 3}
    assert told["circles"] == []
    picture.take_look(seen("d", 4, 1), 0)
    assert sorted(len(circle) for circle in graph(picture)["circles"]) == [4]


def test_circles_are_found() -> None:
    """Two of them, and a node that leads to one is in none."""
    found = circles({1: [2], 2: [3], 3: [1], 4: [1], 5: [6], 6: [5, 1]})
    assert sorted(sorted(circle) for circle in found) == [[1, 2, 3], [5, 6]]


def test_sinks_that_are_behind_are_remarked(picture: Picture) -> None:
    """By what they say of themselves."""
    figures = {
        "fencehold_sink_up": [[["audit"], 1], [["kafka"], 0]],
        "fencehold_sink_lag_seconds": [[["audit"], 99.0]],
    }
    picture.sinks = sinks_in(figures)
    assert [each["text"] for each in overview(picture, 300)["remarks"]] == [
        "sink audit is 99 s behind",
        "sink kafka delivers nothing: see `fencehold sink status` on this machine",
    ]


def test_the_overview_says_what_needs_a_look(picture: Picture) -> None:
    """Waits by age, and sessions that hold something and are gone."""
    picture.take_look(seen("a", 1, 2, fence=5), 0)
    row = {"session": 1, "connected": False, "holds": 1, "waits": 0, "ttl_ms": 9, "expires_ms": 0, "principal": ""}
    picture.sessions[1] = row
    told = overview(picture, 300)
    assert [each["name"] for each in told["longest_waits"]] == ["a"]
    assert [each["session"] for each in told["jeopardy"]] == [1]
    assert [each["name"] for each in session(picture, 2)["waits"]] == ["a"]
    assert [each["name"] for each in session(picture, 1)["holds"]] == ["a", "b"]
