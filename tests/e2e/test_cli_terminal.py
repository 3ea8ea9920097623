"""What a person at a terminal sees: banners, tables, questions, and the keyboard in the right hands."""

import json
import shlex
import subprocess
from pathlib import Path

from tests.e2e.served import COMMAND, Served, ended, until
from tests.e2e.terminal import Terminal


def test_serve_greets_and_stops_at_ctrl_c(tmp_path: Path) -> None:
    """Where it listens, where the data is, what was recovered, and how to try it: as pasted into any shell."""
    with Terminal("serve", "--port", "0", "--data", str(tmp_path / "data")) as screen:
        seen = screen.until("ctrl-c stops it")
        pasted = seen.partition("try it")[2].partition("ctrl-c stops it")[0].strip()
        told = subprocess.run(["sh", "-c", pasted], cwd="/", env={}, capture_output=True, text=True, check=False)
        screen.press("\x03")
        assert screen.code() == 0
    assert "listens on  fencehold://127.0.0.1:" in seen
    assert f"data in     {tmp_path / 'data'}" in seen
    assert "recovered   position 0" in seen
    assert told.stdout == "my fence is 1\n", (pasted, told.stderr)
    assert "\x1b[" in screen.raw


def test_tables_have_headers_for_people_and_no_colour_on_request(server: Served) -> None:
    """NO_COLOR takes the colour away, and leaves the table."""
    server.call("acquire", "person", "--ttl", "10s")
    with Terminal("ls", "person", FENCEHOLD_URL=server.url) as screen:
        assert screen.code() == 0
    lines = screen.seen.splitlines()
    assert lines[0].split() == ["NAME", "MODE", "HELD", "BY", "FOR", "WAITING", "FENCE"]
    assert lines[1].split()[:2] == ["person", "exclusive"]
    with Terminal("info", "person", FENCEHOLD_URL=server.url, NO_COLOR="1") as screen:
        assert screen.code() == 0
    assert "person  held" in screen.seen
    assert "\x1b[3" not in screen.raw


def test_a_name_cannot_steer_the_terminal(server: Served) -> None:
    """Control characters in a name are shown, not obeyed."""
    server.call("acquire", "evil\x1b]0;owned\x07\n", "--ttl", "10s")
    with Terminal("ls", "evil", FENCEHOLD_URL=server.url) as screen:
        assert screen.code() == 0
    assert "evil\\x1b]0;owned\\x07\\x0a" in screen.seen
    assert "\x07" not in screen.raw


def test_break_shows_the_holder_and_asks(server: Served) -> None:
    """No leaves it as it was; yes breaks it and prints the new fence."""
    taken = json.loads(server.call("acquire", "asked", "--json").out)
    with Terminal("break", "asked", FENCEHOLD_URL=server.url) as screen:
        assert "fencehold acquire" in screen.until("Break asked? [y/N]: ")
        screen.press("n\n")
        assert screen.code() == 1
    with Terminal("break", "asked", FENCEHOLD_URL=server.url) as screen:
        screen.until("Break asked? [y/N]: ")
        screen.press("y\n")
        assert screen.code() == 0
    assert f"minimum fence {taken['fence'] + 1}" in screen.seen
    assert server.call("info", "asked").code == 1


def test_break_cannot_hit_the_next_holder(server: Served) -> None:
    """A name that changed hands while the question stood is left to its new holder."""
    seen = server.call("acquire", "passed-on").out.strip()
    with Terminal("break", "passed-on", FENCEHOLD_URL=server.url) as screen:
        screen.until("Break passed-on? [y/N]: ")
        assert server.call("release", seen).code == 0
        assert server.call("acquire", "passed-on", "--ttl", "30s").code == 0
        screen.press("y\n")
        assert screen.code() == 1
    assert "has another holder by now" in screen.seen
    assert server.call("info", "passed-on").code == 0


def test_the_command_has_the_keyboard(server: Served) -> None:
    """It reads what is typed, and ctrl-c interrupts it, once."""
    script = "trap 'echo interrupted; exit 4' INT; read line; echo I heard $line; while :; do sleep 0.02; done"
    with Terminal("run", "keyboard", "--", "sh", "-c", script, FENCEHOLD_URL=server.url) as screen:
        screen.press("hello\n")
        screen.until("I heard hello")
        screen.press("\x03")
        assert screen.code() == 4
    assert screen.seen.count("interrupted") == 1


def test_a_stopped_command_goes_on_only_if_it_still_holds(server: Served) -> None:
    """After a short ctrl-z it goes on; after one longer than the lease it is ended when it is continued."""
    words = f"{shlex.join(COMMAND)} run stopped --ttl 3s -- cat"
    with Terminal("bash", "--norc", "-i", shell=True, FENCEHOLD_URL=server.url, PS1="ready> ") as screen:
        screen.press(words + "\n")
        until(lambda: server.call("info", "stopped").code == 0)
        screen.press("one\n")
        screen.until("one\none\n")
        screen.press("\x1a")
        screen.until("Stopped")
        screen.press("fg\n")
        # bash has written what it continues: from then on the keys are the command's.
        screen.until("fg\n\r" + words)
        screen.press("two\n")
        screen.until("two\ntwo\n")
        screen.press("\x1a")
        screen.until("Stopped", 2)
        until(lambda: server.call("info", "stopped").code == 1)
        screen.press("fg\n")
        screen.until("is lost")
        screen.press("echo its code is $?\n")
        screen.until("its code is 75")


def test_run_says_whom_it_waits_for_each_time_that_is_another(server: Served) -> None:
    """On a terminal, and nowhere else; what it was named is what others see."""
    first = server.call("acquire", "whom", "--name", "the first").out.strip()
    next_ = server.start("acquire", "whom", "--name", "the second")
    until(lambda: json.loads(server.call("info", "whom", "--json").out)["waiters"])
    words = ("run", "whom", "--name", "the third", "--", "sh", "-c", "echo ran; read line")
    with Terminal(*words, FENCEHOLD_URL=server.url) as screen:
        screen.until("(the first) for ")
        waiters = json.loads(server.call("info", "whom", "--json").out)["waiters"]
        assert [waiter["client"]["name"] for waiter in waiters] == ["the second", "the third"]
        quiet = server.start("run", "whom", "--timeout", "500ms", "--", "true")
        assert ended(quiet).err.count("fencehold:") == 1
        server.call("release", first)
        screen.until("(the second) for ")
        server.call("release", ended(next_).out.strip())
        screen.until("ran\n")
        (hold,) = json.loads(server.call("info", "whom", "--json").out)["holds"]
        assert hold["client"]["name"] == "the third"
        screen.press("\n")
        assert screen.code() == 0
    assert screen.seen.count("waiting: ") == 2


def test_top_lives_until_q(server: Served) -> None:
    """It shows the server's figures and ends at the key."""
    server.call("acquire", "hot", "--ttl", "10s")
    with Terminal("top", "--interval", "50ms", FENCEHOLD_URL=server.url) as screen:
        screen.until("grants/s")
        screen.until("hot")
        screen.press("q")
        assert screen.code() == 0


def test_help_is_grouped(server: Served) -> None:
    """Commands stand under headings, and a mistyped one is corrected."""
    with Terminal("--help") as screen:
        assert screen.code() == 0
    assert "Locks for scripts" in screen.seen
    with Terminal("rnu") as screen:
        assert screen.code() == 2
    assert "Did you mean 'run'?" in screen.seen
