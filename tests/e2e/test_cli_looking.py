"""`ls`, `info`, `sessions`, `status`, `ping`, `watch`, `top`, `break`: seeing what goes on, and stepping in."""

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import fencehold
from fencehold.cli.tokens import decode
from tests.e2e.served import Served, ended, serving, until


@pytest.fixture
def held(server: Served) -> Iterator[str]:
    """A name that is held, and one who waits for it."""
    name = "seen:it"
    token = server.call("acquire", name).out.strip()
    waiting = server.start("acquire", name, "--timeout", "20s")
    until(lambda: json.loads(server.call("info", name, "--json").out)["waiters"])
    yield token
    server.call("release", token)
    server.call("release", ended(waiting).out.strip())


def test_names_are_listed_by_prefix(server: Served, held: str) -> None:
    """One line each, tab-separated, with who holds it and for how long; or an object each."""
    fence = decode(held).fence
    (line,) = server.call("ls", "seen:").out.splitlines()
    name, mode, by, held_for, *rest = line.split("\t")
    assert (name, mode, rest) == ("seen:it", "exclusive", ["1", str(fence)])
    assert by.endswith(f"@{socket.gethostname()} (fencehold acquire)")
    assert held_for.endswith("s")
    assert server.call("ls", "unseen").out == ""
    found = json.loads(server.call("ls", "seen:", "--json").out)
    oldest = found.pop("hold")
    assert found.pop("kept") is None
    assert found == {"name": "seen:it", "mode": "exclusive", "fence": fence, "hold_count": 1, "waiter_count": 1}
    assert oldest["client"]["name"] == "fencehold acquire"


def test_a_list_is_told_page_by_page(server: Served) -> None:
    """However many names there are, each is there once, in order, with its holder."""
    names = [f"page:{number:03d}" for number in range(600)]
    with fencehold.connect(server.url, name="pager") as client, contextlib.ExitStack() as stack:
        for some in (names[at : at + 60] for at in range(0, 600, 60)):
            stack.enter_context(client.multi(some))
        found = [json.loads(line) for line in server.call("ls", "page:", "--json").out.splitlines()]
    assert [name["name"] for name in found] == names
    assert {name["hold"]["client"]["name"] for name in found} == {"pager"}


def test_a_name_says_who_holds_it_and_who_waits(server: Served, held: str) -> None:
    """Who, on which host, which process, since when, with which fence; and the queue in its order."""
    view = json.loads(server.call("info", "seen:it", "--json").out)
    (hold,) = view["holds"]
    (waiter,) = view["waiters"]
    assert hold["fence"] == decode(held).fence
    assert hold["for_s"] >= 0
    assert hold["client"]["host"] == socket.gethostname()
    assert waiter["place"] == 1
    assert waiter["names"] == ["seen:it"]
    lines = server.call("info", "seen:it").out.splitlines()
    assert [line.split("\t")[:2] for line in lines] == [["hold", str(hold["fence"])], ["waiter", "1"]]


def test_a_crowd_is_shown_in_part_and_counted(server: Served) -> None:
    """So many holders and waiters as asked for, and how many more there are on stderr; or all of them."""
    with fencehold.connect(server.url, name="crowd") as client:
        holds = [client.rwlock("crowd:read").read().acquire() for _ in range(130)]
        said = server.call("info", "crowd:read")
        assert len(said.out.splitlines()) == 100
        assert said.err == "… and 30 more hold it: --all shows them\n"
        assert len(server.call("info", "crowd:read", "--rows", "7").out.splitlines()) == 7
        everybody = server.call("info", "crowd:read", "--all")
        assert (len(everybody.out.splitlines()), everybody.err) == (130, "")
        view = json.loads(server.call("info", "crowd:read", "--rows", "3", "--json").out)
        assert (len(view["holds"]), view["hold_count"], view["waiter_count"]) == (3, 130, 0)
        (listed,) = (json.loads(line) for line in server.call("ls", "crowd:", "--json").out.splitlines())
        assert listed["hold_count"] == 130
        broken = json.loads(server.call("break", "crowd:read", "--yes", "--json").out)
        assert len(broken["holds"]) == len(broken["ended"]) == len(holds)


def test_a_name_nobody_holds_is_1(server: Served) -> None:
    """It is said on stderr; with JSON the view is written all the same."""
    said = server.call("info", "nobody", "--json")
    assert said.code == 1
    assert json.loads(said.out)["holds"] == []
    assert json.loads(said.err)["message"] == "nobody is not held"
    assert server.call("info", "nobody").err == "fencehold: nobody is not held\n"


def test_sessions_are_listed(server: Served, held: str) -> None:
    """With what each holds and waits for."""
    found = [json.loads(line) for line in server.call("sessions", "--json").out.splitlines()]
    mine = next(one for one in found if one["session"] == decode(held).session)
    assert mine["hold_count"] == 1
    assert mine["connected"] is False
    assert mine["client"]["name"] == "fencehold acquire"
    assert len(server.call("sessions").out.splitlines()) == len(found)


def test_the_server_says_how_it_is(server: Served) -> None:
    """As lines for a pipe, as JSON for a program."""
    status = json.loads(server.call("status", "--json").out)
    assert status["role"] == "leader"
    assert isinstance(status["position"], int)
    assert "role\tleader\n" in server.call("status").out
    ping = json.loads(server.call("ping", "--json").out)
    assert ping["role"] == "leader"
    assert ping["round_trip_s"] > 0


def test_events_are_seen_as_they_happen(server: Served) -> None:
    """A watcher sees its prefix only, from where it began."""
    position = json.loads(server.call("status", "--json").out)["position"]
    token = server.call("acquire", "watched:a").out.strip()
    server.call("acquire", "unwatched", "--ttl", "50ms")
    server.call("release", token)
    words = ("watch", "watched:", "--from", str(position), "--count", "2")
    events = [json.loads(line) for line in ended(server.start(*words, "--json")).out.splitlines()]
    assert [(event["kind"], event["names"]) for event in events] == [
        ("acquired", ["watched:a"]),
        ("released", ["watched:a"]),
    ]
    assert {event["client"]["name"] for event in events} == {"fencehold acquire"}
    first = ended(server.start(*words)).out.splitlines()[0].split("\t")
    assert first[1:3] == [events[0]["time"], "acquired"]
    session = decode(token).session
    assert first[3].endswith(f"@{socket.gethostname()} (fencehold acquire), session {session}")
    assert first[4:] == ["watched:a", f"fence {decode(token).fence}"]


def test_a_watcher_hears_of_the_servers_end_with_69(tmp_path: Path) -> None:
    """It says that the connection is gone, rather than wait for ever."""
    with serving(tmp_path, "--memory") as server:
        watching = server.start("watch", "--json")
        until(lambda: json.loads(server.call("status", "--json").out)["connection_count"] == 2)
        server.process.terminate()
        said = ended(watching)
    assert said.code == 69
    assert "Traceback" not in said.err


def test_top_shows_what_is_waited_for(server: Served, held: str) -> None:
    """Into a pipe it looks once."""
    (line,) = [line for line in server.call("top", "seen:").out.splitlines() if line.startswith("seen:it")]
    assert line.split("\t")[1::3] == ["exclusive", "1"]
    found = json.loads(server.call("top", "seen:", "--json").out)
    assert [name["name"] for name in found["awaited"]] == ["seen:it"]
    assert found["oldest"][0]["hold"]["fence"] == decode(held).fence


def test_break_needs_a_yes_when_nobody_can_be_asked(server: Served, held: str) -> None:
    """Without a terminal and without --yes nothing is broken."""
    said = server.call("break", "seen:it")
    assert said.code == 2
    assert "--yes" in said.err
    assert json.loads(server.call("info", "seen:it", "--json").out)["holds"][0]["fence"] == decode(held).fence


def test_break_moves_the_fence_past_the_old_holder(server: Served, held: str) -> None:
    """The next in the queue is granted with a fence above the one that is printed, which is above the old one."""
    broken = json.loads(server.call("break", "seen:it", "--yes", "--json").out)
    assert broken["ended"] == [decode(held).fence]
    until(lambda: json.loads(server.call("info", "seen:it", "--json").out)["holds"])
    successor = json.loads(server.call("info", "seen:it", "--json").out)["holds"][0]["fence"]
    assert decode(held).fence < broken["fence"] < successor


def test_break_of_a_free_name_is_1(server: Served) -> None:
    """There is nothing to break."""
    assert server.call("break", "nobody", "--yes").code == 1


def test_a_name_that_is_kept_for_a_least_time_is_not_called_free(server: Served) -> None:
    """Nobody holds it, and nobody can have it: the list and the name itself say for whom, and until when."""
    with fencehold.connect(server.url, name="once a day") as client:
        client.once("kept:it", at_most=90, at_least=60)(lambda: None)()
    name, mode, by, *_ = server.call("ls", "kept:").out.split("\t")
    assert (name, mode) == ("kept:it", "kept")
    assert by.startswith("once a day on ")
    listed = json.loads(server.call("ls", "kept:", "--json").out)
    assert (listed["mode"], listed["hold"], listed["kept"]["client"]["name"]) == (None, None, "once a day")
    tried = server.call("acquire", "kept:it", "--try")
    assert tried.code == 1
    assert "kept for once a day on " in tried.err
