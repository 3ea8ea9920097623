"""`acquire`, `extend`, `release`: a hold handed from process to process by a token."""

import json
import re
import signal
import time
from datetime import datetime, timedelta

from fencehold.cli.tokens import decode
from tests.e2e.served import Served, ended, until


def _token(server: Served, *words: str) -> str:
    said = server.call("acquire", *words)
    assert said.code == 0, said
    return said.out.strip()


def test_a_token_gives_back_what_another_process_took(server: Served) -> None:
    """Held until released; then the token is worth nothing."""
    process = server.start("acquire", "lease:a", "--json")
    taken = json.loads(ended(process).out)
    assert set(taken) == {"token", "name", "fence", "until", "left_s"}
    assert taken["left_s"] == 60
    assert server.call("acquire", "lease:a", "--try").code == 1
    released = server.call("release", taken["token"], "--json")
    assert json.loads(released.out) == {"name": "lease:a", "fence": taken["fence"], "released": True}
    assert server.call("release", taken["token"]).code == 75
    assert server.call("extend", taken["token"]).code == 75


def test_a_token_can_come_by_stdin(server: Served) -> None:
    """So that it need not stand on a command line that others can see."""
    token = _token(server, "lease:stdin")
    assert server.call("release", "-", stdin=token + "\n").code == 0


def test_it_runs_out_unless_extended(server: Served) -> None:
    """An extended hold outlives its first ttl; one that is left alone ends by itself."""
    token = _token(server, "lease:short", "--ttl", "700ms")
    until_at = time.monotonic() + 0.9
    while time.monotonic() < until_at:
        assert server.call("extend", token).code == 0
        time.sleep(0.05)
    assert server.call("info", "lease:short").code == 0
    until(lambda: server.call("info", "lease:short").code == 1)
    assert server.call("release", token).code == 75


def test_it_cannot_be_extended_beyond_what_it_was_acquired_with(server: Served) -> None:
    """Shorter is possible, longer is a usage error."""
    token = _token(server, "lease:longer", "--ttl", "30s")
    assert json.loads(server.call("extend", token, "--ttl", "10s", "--json").out)["left_s"] == 10
    assert json.loads(server.call("info", "lease:longer", "--json").out)["holds"][0]["left_s"] <= 10
    assert server.call("extend", token, "--ttl", "31s").code == 2
    assert server.call("release", token).code == 0


def test_it_waits_and_keeps_its_session_meanwhile(server: Served) -> None:
    """A wait longer than the ttl ends with a grant when the name is free."""
    token = _token(server, "lease:wait")
    waiting = server.start("acquire", "lease:wait", "--ttl", "1s", "--timeout", "20s")
    until(lambda: json.loads(server.call("info", "lease:wait", "--json").out)["waiters"])
    until_at = time.monotonic() + 1.5
    until(lambda: time.monotonic() > until_at)
    assert server.call("release", token).code == 0
    said = ended(waiting)
    assert said.code == 0
    assert decode(said.out).name == "lease:wait"


def test_in_vain_it_leaves_nothing_behind(server: Served) -> None:
    """A timeout ends the session that was opened for it; so do signals."""
    token = _token(server, "lease:vain")
    before = _sessions(server)
    said = server.call("acquire", "lease:vain", "--timeout", "50ms")
    assert (said.code, said.out) == (1, "")
    for number in (signal.SIGINT, signal.SIGTERM):
        interrupted = server.start("acquire", "lease:vain")
        until(lambda: json.loads(server.call("info", "lease:vain", "--json").out)["waiters"])
        interrupted.send_signal(number)
        assert ended(interrupted).code == 128 + number
        until(lambda: not json.loads(server.call("info", "lease:vain", "--json").out)["waiters"])
    assert _sessions(server) <= before
    server.call("release", token)


def _sessions(server: Served) -> set[int]:
    return {json.loads(line)["session"] for line in server.call("sessions", "--json").out.splitlines()}


def test_a_broken_hold_is_75(server: Served) -> None:
    """The script learns that it was not alone any more."""
    token = _token(server, "lease:broken")
    assert server.call("break", "lease:broken", "--yes").code == 0
    assert server.call("release", token).code == 75


def test_the_secret_is_shown_nowhere_else(server: Served) -> None:
    """Whoever looks on cannot take what others hold."""
    token = _token(server, "lease:secret")
    secret = decode(token).secret
    looks = (
        ("info", "lease:secret", "--json"),
        ("sessions", "--json"),
        ("top", "--json"),
        ("extend", token, "--json"),
    )
    for words in looks:
        assert secret not in server.call(*words).out
    server.call("release", token)


def test_what_is_no_token_is_2(server: Served) -> None:
    """It is told so in one sentence."""
    said = server.call("release", "nonsense")
    assert said.code == 2
    assert "not a token" in said.err


def test_it_says_when_it_ends_and_names_no_process_that_is_gone(server: Served) -> None:
    """The end is there for whoever looks, not only for whoever acquired it; the command that did has ended."""
    token = _token(server, "lease:end", "--ttl", "5m", "--name", "deploy 17")
    (hold,) = json.loads(server.call("info", "lease:end", "--json").out)["holds"]
    assert hold["client"]["name"] == "deploy 17"
    assert hold["client"]["pid"] is None
    assert 0 < hold["left_s"] <= 300
    since, until_ = (datetime.fromisoformat(hold[key]) for key in ("since", "until"))
    assert timedelta(seconds=299) < until_ - since < timedelta(seconds=301)
    server.call("release", token)


def test_a_busy_name_says_who_holds_it_since_when_and_how_many_wait(server: Served) -> None:
    """In words, or as facts for a program."""
    token = _token(server, "lease:busy", "--name", "deploy 18")
    waiting = server.start("acquire", "lease:busy", "--timeout", "20s")
    until(lambda: json.loads(server.call("info", "lease:busy", "--json").out)["waiters"])
    tried = server.call("acquire", "lease:busy", "--try")
    assert (tried.code, tried.out) == (1, "")
    pattern = (
        r"fencehold: lease:busy is busy: held by \w+@\S+ \(deploy 18\) since \d\d:\d\d:\d\d \([\d.]+m?s\), "
        rf"until \d\d:\d\d:\d\d, fence {decode(token).fence}; 1 waits\n"
    )
    assert re.fullmatch(pattern, tried.err), tried.err
    told = json.loads(server.call("acquire", "lease:busy", "--timeout", "10ms", "--json").err)
    assert (told["error"], told["exit"], told["name"], told["waiter_count"]) == ("no", 1, "lease:busy", 1)
    assert told["holds"][0]["fence"] == decode(token).fence
    assert re.match(r"lease:busy was not acquired within 10ms: held by \S+ \(deploy 18\) ", told["message"])
    server.call("release", token)
    server.call("release", ended(waiting).out.strip())
