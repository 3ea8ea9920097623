"""`acquire`, `extend`, `release`: a hold handed from process to process by a token."""

import json
import signal
import time

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
    assert set(taken) == {"token", "name", "fence", "ttl_ms"}
    assert taken["ttl_ms"] == 60_000
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
    assert json.loads(server.call("extend", token, "--ttl", "10s", "--json").out)["ttl_ms"] == 10_000
    assert json.loads(server.call("info", "lease:longer", "--json").out)["holds"][0]["left_ms"] <= 10_000
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
    assert "no token" in said.err
