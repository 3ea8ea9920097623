"""The picture of a service with several shards: one client is one, names have a shard, and one may be away."""

from typing import Any

import pytest

from fencehold.dashboard import views
from fencehold.dashboard.clients import client_rows, joined, session_row
from fencehold.dashboard.graph import graph
from fencehold.dashboard.picture import Picture
from fencehold.dashboard.shard_facts import event_in, explanation_in, facts_in, together
from fencehold.dashboard.shard_views import nodes_of_shards
from fencehold.gateway.lists import wide
from fencehold.locks.views import Event, Explanation, Holder, Missing, Party, Waiting, party

META = '{"client":"%s","host":"h","pid":%d}'


def row(number: int, holds: int = 1) -> dict[bytes, Any]:
    told = {"session": number, "connected": 1, "holds": holds, "waits": 0}
    times = {"expires_in_ms": 9_000, "ttl_ms": 10_000, "opened_ms_ago": 5}
    return {key.encode(): value for key, value in (told | times).items()} | {b"principal": b"", b"meta": b""}


def rows(picture: Picture, *sessions: tuple[int, int, str, int]) -> dict[int, dict[str, Any]]:
    """Sessions, each by its shard, its number there, and the name and process of its client."""
    found = {}
    for shard, number, client, pid in sessions:
        known = picture.meet(wide(number, shard), META % (client, pid))
        found[wide(number, shard)] = session_row(row(number), wide(number, shard), shard, known, {}, 0)
    return found


@pytest.fixture
def picture() -> Picture:
    made = Picture(lambda: 7.0)
    made.shards = 3
    return made


def brief(name: str, fence: int, since_ms: int) -> list[Any]:
    return [name.encode(), b"X", 1, 0, fence, 1, b"t", since_ms, -1]


def seen(name: str, holder: Party, waiter: Party) -> Explanation:
    hold = Holder(holder, 1, "X", 1, 1.0, None, None)
    return Explanation(name, (hold,), (Waiting(0, waiter, "X", (name,), 1.0, None),), 0.0)


def of(number: int, client: str, pid: int) -> Party:
    return party(number, "main#1", META % (client, pid))


def test_sessions_of_one_client_in_several_shards_are_one(picture: Picture) -> None:
    """With what it has in all of them; two clients that nobody can tell apart stay as they are."""
    many = (
        (0, 1, "ann", 1),
        (1, 1, "ann", 1),
        (2, 5, "ann", 1),
        (0, 2, "bob", 2),
        (0, 3, "bob", 2),
        (1, 2, "bob", 2),
    )
    picture.take_sessions(rows(picture, *many))
    assert picture.sessions_of(wide(5, 2)) == {1, wide(1, 1), wide(5, 2)}
    shown = views.sessions(picture, "", "holds", 0, 10)
    first = shown["rows"][0]
    assert (first["client"], first["holds"], first["shards"]) == ("ann", 3, [0, 1, 2])
    assert shown["total"] == 4
    assert [each["shard"] for each in views.session(picture, 1)["sessions"]] == [0, 1, 2]
    assert joined([], {}) == {}
    assert client_rows([], {}) == []


def test_a_circle_over_two_shards_is_seen(picture: Picture) -> None:
    """Though no shard knows of it: each client is one, whichever session it waits or holds by."""
    picture.take_sessions(rows(picture, (0, 1, "ann", 1), (1, 2, "ann", 1), (0, 2, "bob", 2), (1, 1, "bob", 2)))
    picture.take_look(explanation_in(0, seen("x", of(1, "ann", 1), of(2, "bob", 2))), 0, 0)
    picture.take_look(explanation_in(1, seen("y", of(1, "bob", 2), of(2, "ann", 1))), 0, 1)
    told = graph(picture)
    assert len(told["parties"]) == 2
    assert len(told["circles"]) == 1
    assert {each["name"] for each in told["arrows"]} == {"x", "y"}


def test_names_of_all_shards_are_in_one_list_by_age(picture: Picture) -> None:
    """Fences of two shards have no order. What was known of one that was not read stays."""
    roll = picture.begin_list()
    picture.take_page(roll, [brief("old", 90, 1_000)], 0, 0)
    picture.take_page(roll, [brief("new", 3, 3_000), brief("mid", 2, 2_000)], 0, 1)
    picture.end_list(roll, 1)
    assert [each.name for each in picture.roll.oldest(9)] == ["old", "mid", "new"]
    assert picture.roll.oldest(1)[0].session == 1
    assert picture.roll.get("mid") is not None
    again = picture.begin_list()
    picture.take_page(again, [brief("mid", 2, 2_000)], 0, 1)
    picture.end_list(again, 2, {0, 2})
    assert [(each.name, each.shard) for each in picture.roll.oldest(9)] == [("old", 0), ("mid", 1)]


def test_a_shard_that_is_away_is_said_to_be_on_every_page(picture: Picture) -> None:
    """With why, and for how long, until it is heard again."""
    picture.shard_facts = {0: facts_in("node:a\r\nsessions:2\r\n"), 1: facts_in("node:b\r\nsessions:3\r\n")}
    picture.miss(1, "it was not reached")
    picture.miss(1, "again")
    assert views.status(picture)["away"] == [{"shard": 1, "why": "it was not reached", "for_s": 0.0}]
    shown = views.overview(picture, 90)
    assert [each["away"] for each in shown["shards"]] == ["", "it was not reached", ""]
    assert shown["shards"][1]["sessions"] == 3
    assert "shard 1 is away: it was not reached" in [each["text"] for each in shown["remarks"]]
    picture.miss(1, "")
    assert views.status(picture)["away"] == []


def test_facts_of_shards_are_added_up() -> None:
    """Those of a node only once, however many shards it leads."""
    told = [
        {"node": "a", "sessions": "2", "connected_clients": "5", "room": "ample", "epoch": "3"},
        {"node": "a", "sessions": "3", "connected_clients": "5", "room": "tight", "epoch": "4"},
        {"node": "b", "sessions": "4", "connected_clients": "1", "room": "ample", "epoch": "5"},
    ]
    found = together(told)
    assert (found["sessions"], found["connected_clients"], found["room"]) == ("9", "6", "tight")
    assert together(told[:1]) == told[0]
    assert together([]) == {}


def test_events_and_gaps_are_of_their_shard(picture: Picture) -> None:
    """Sessions of two shards with the same number are two."""
    event = Event("acquired", 8, 0, 1, "t", ("x",), 4, "", of(1, "ann", 1), shard=2)
    picture.hear(0, event_in(2, event), 0.0)
    picture.hear(0, Event("gap", 9, 0, 0, "", (), 0, "", shard=1, missing=Missing(4, 9)), 0.0)
    found = picture.roll.get("x")
    assert found is not None
    assert (found.session, found.shard) == (wide(1, 2), 2)
    assert picture.gap == (4, 9, 1)
    assert picture.positions == {2: 8, 1: 9}


def test_nodes_are_told_with_what_they_lead() -> None:
    """Each once, whether it leads or stands by."""
    standby = {"node": "b", "address": "h:2", "lag": 7, "heard_ms_ago": 3}
    told: list[dict[str, Any]] = [
        {"shard": 0, "away": None, "node": "a", "address": "h:1", "note": "", "standbys": [standby]},
        {"shard": 1, "away": "gone", "node": None, "address": None, "note": None, "standbys": []},
        {"shard": 2, "away": None, "node": "a", "address": "h:1", "note": "slow", "standbys": [standby]},
    ]
    found = nodes_of_shards(told)
    assert [(each["node"], each["role"], each["leads"]) for each in found] == [
        ("a", "leader", [0, 2]),
        ("b", "standby", []),
    ]
    assert (found[0]["note"], found[1]["lag"]) == ("slow", 7)
