"""Watching: what is shown of each event; over a change of leaders nothing twice, and no gap without a word."""

import asyncio
import contextlib
import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from fencehold import aio
from fencehold.cli import output, watch
from fencehold.cli.tables import cells_of
from fencehold.cli.watch import Events
from fencehold.cli.wire import CannotConnect
from fencehold.errors import UsageError
from fencehold.locks.places import read_places
from fencehold.locks.views import WHOLE
from fencehold.server import Config, Server
from tests.unit.cli.test_wire import _HELLO, Scripted

BEGUN = b"%2\r\n$8\r\nposition\r\n:5\r\n$5\r\nindex\r\n:9\r\n"


def push(position: int, kind: str = "acquired", index: int = 1) -> bytes:
    head = b"%%3\r\n$4\r\nkind\r\n$%d\r\n%b\r\n" % (len(kind), kind.encode())
    place = b"$8\r\nposition\r\n:%d\r\n$5\r\nindex\r\n:%d\r\n" % (position, index)
    return b">2\r\n$5\r\nevent\r\n" + head + place


def came(position: int, index: int) -> bytes:
    """How it is asked to begin after a place."""
    words = (b"FROM", b"%d" % position, b"INDEX", b"%d" % index)
    return b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def seen(server: Scripted, since: int | None = None) -> list[tuple[int, str]]:
    """All that is shown until no node answers any more."""
    found = []
    with contextlib.suppress(CannotConnect):
        after = None if since is None else (since, WHOLE)
        for event in Events(f"fencehold://{server.endpoint}", "", after).follow():
            found.append((event["position"], event["kind"]))
    return found


def test_an_entry_that_was_told_in_part_is_told_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    """It is asked to go on after the last event, and what was shown before is passed over."""
    first = BEGUN + push(6) + push(7) + push(7, "queued", 2)
    then = BEGUN + push(7, "queued", 2) + push(7, "released", 4) + push(8)
    server = Scripted(_HELLO, first, then=(_HELLO, then))
    wanted = [(6, "acquired"), (7, "acquired"), (7, "queued"), (7, "released"), (8, "acquired")]
    assert seen(server) == wanted
    assert server.heard[1].endswith(b"LOCK.WATCH\r\n$0\r\n\r\n")
    assert server.heard[3].endswith(came(7, 2))
    assert "looking for the node that leads" in capsys.readouterr().err


def test_without_an_event_it_goes_on_where_it_began() -> None:
    """Not at whatever the next leader has come to meanwhile."""
    server = Scripted(_HELLO, BEGUN, then=(_HELLO, BEGUN + push(6)))
    assert seen(server) == [(6, "acquired")]
    assert server.heard[3].endswith(came(5, 9))


def test_what_the_next_leader_does_not_know_is_a_gap() -> None:
    """It is shown, and counts as told."""
    server = Scripted(_HELLO, BEGUN + push(6), then=(_HELLO, BEGUN + push(9, "gap") + push(10)))
    assert seen(server, since=3) == [(6, "acquired"), (9, "gap"), (10, "acquired")]
    assert server.heard[1].endswith(came(3, WHOLE))


BROKEN: dict[str, Any] = {
    "kind": "broken",
    "position": 1841,
    "index": 2,
    "principal": "nightly-jobs",
    "at": 4,
    "session": 3,
    "owner": "report#1",
    "names": ["jobs:nightly"],
    "fence": 7,
    "detail": "",
    "unix_ms": 1_767_268_800_000,
    "session_meta": json.dumps({"client": "nightly", "host": "web1", "pid": 81}),
    "by": json.dumps({"client": "fencehold break", "user": "alice", "host": "ops1"}),
}


def test_an_event_names_who_and_when_and_by_whom(capsys: pytest.CaptureFixture[str]) -> None:
    """The client before its session's number; in a pipe the time is for programs, and one not known is said so."""
    watch._show(BROKEN)
    watch._show(BROKEN | {"unix_ms": None, "session_meta": "", "by": "", "owner": ""})
    watch._show({"kind": "gap", "position": 1850, "from": 1842, "to": 1850})
    watch._show(BROKEN, "2/")
    watch._show({"kind": "gap", "position": 1850, "from": 1842, "to": 1850}, "2/")
    first, second, third, fourth, fifth = (line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert first == [
        "1841.2",
        "2026-01-01T12:00:00.000Z",
        "broken",
        "nightly on web1 (pid 81), session 3/report#1",
        "jobs:nightly",
        "fence 7",
        "by alice@ops1 (fencehold break)",
    ]
    assert second == ["1841.2", "unknown", "broken", "session 3", "jobs:nightly", "fence 7"]
    assert third[:2] == ["1850", "gap"]
    assert "positions 1842 to 1850" in third[2]
    assert (fourth[0], fifth[0]) == ("2/1841.2", "2/1850")


@pytest.mark.parametrize("width", [80, 120, 200])
def test_on_a_terminal_a_line_fits(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The local time, and who shortened in the middle where there is no room: never the name or the fence."""
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(output, "to_person", lambda: True)
    monkeypatch.setattr(watch, "to_person", lambda: True)
    output.console.cache_clear()
    watch._show(BROKEN | {"by": "", "session_meta": json.dumps({"client": 60 * "x", "host": "web1"})})
    output.console.cache_clear()
    line = capsys.readouterr().out.rstrip()
    assert cells_of(line) <= width
    assert line.endswith("jobs:nightly  fence 7")
    assert f"{datetime(2026, 1, 1, 12, tzinfo=UTC).astimezone():%Y-%m-%d %H:%M:%S}" in line


@pytest.mark.parametrize(
    ("width", "told"),
    [
        (80, "nightly  jobs:nightly  fence 7  by alice@ops1"),
        (120, "nightly on web1 (pid 81)  jobs:nightly  fence 7  by alice@ops1 (fencehold break)"),
        (
            140,
            "nightly on web1 (pid 81), session 3/report#1  jobs:nightly  fence 7  by alice@ops1 (fencehold break)",
        ),
    ],
)
def test_where_there_is_little_room_names_are_left(
    width: int, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The number of a session goes first, then hosts and processes."""
    monkeypatch.setenv("COLUMNS", str(width + 14))  # the date of an event that is not of today
    monkeypatch.setattr(output, "to_person", lambda: True)
    monkeypatch.setattr(watch, "to_person", lambda: True)
    output.console.cache_clear()
    watch._show(BROKEN)
    output.console.cache_clear()
    assert capsys.readouterr().out.rstrip().endswith(f"  broken          {told}")


@pytest.mark.parametrize(
    ("said", "shards", "found"),
    [
        (None, 3, {}),
        ("17", 1, {0: (17, WHOLE)}),
        ("17.2", 1, {0: (17, 2)}),
        ("17-2", 1, {0: (17, 2)}),
        ("17-2,,9", 3, {0: (17, 2), 2: (9, WHOLE)}),
        ("17.2,,9", 3, {0: (17, 2), 2: (9, WHOLE)}),
    ],
)
def test_where_to_begin_is_said_for_each_shard(said: str | None, shards: int, found: dict[int, Any]) -> None:
    """As the first column has it, or as the places of HTTP and the SDK are written."""
    assert watch.places_of(said, shards) == found


@pytest.mark.parametrize(("said", "why"), [("17.2", "one for each"), ("17", "one for each"), ("1,2", "2 shards")])
def test_the_place_of_one_shard_is_none_of_several(said: str, why: str) -> None:
    """It would be a place in the first, and nothing of the others."""
    with pytest.raises(UsageError, match=why):
        watch.places_of(said, 3)


async def test_a_watch_of_several_shards_says_where_to_go_on() -> None:
    """After the last event that was shown of each; and there it goes on, with none twice and none left out."""

    def lines(url: str, *options: str) -> tuple[list[tuple[int, int, int]], str]:
        told = subprocess.run(
            [sys.executable, "-m", "fencehold.cli", "watch", "n", "--json", "--url", url, *options],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        events = [json.loads(line) for line in told.stdout.splitlines()]
        after = told.stderr.rsplit("--after ", 1)[1].strip()
        return [(each["shard"], each["position"], each["index"]) for each in events], after

    names = [f"n{number}" for number in range(6)]
    async with Server(Config(port=0, shards=3)) as server:
        url = f"fencehold://127.0.0.1:{server.port}"
        async with aio.connect(url) as client, client.watch("n") as beside:
            begun = beside.places
            for name in names:
                async with client.lock(name):
                    pass
            wanted = [await anext(beside) for _ in range(2 * len(names))]
        first, places = await asyncio.to_thread(lines, url, "--after", begun, "--count", "5")
        rest, places = await asyncio.to_thread(lines, url, "--after", places, "--count", str(2 * len(names) - 5))
    assert sorted(first + rest) == sorted((each.shard, each.position, each.index) for each in wanted)
    assert read_places(places, 3) == read_places(beside.places, 3)
