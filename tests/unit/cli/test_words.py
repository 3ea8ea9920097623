"""How things are written: durations, ages, foreign text, log lines, the command line of `run`."""

import json
import logging

import pytest
import typer

from fencehold.cli.app import COMMANDS, build, prepared
from fencehold.cli.options import duration, lasting, wait_of
from fencehold.cli.output import ago, clean, left
from fencehold.cli.run import split
from fencehold.cli.server_process import JsonLines, Lines
from fencehold.errors import UsageError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("1.5", 1.5),
        (".5", 0.5),
        ("500ms", 0.5),
        ("30s", 30),
        ("5m", 300),
        ("2 h", 7200),
        ("1D", 86400),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    """With a unit or without; seconds by default."""
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "5x", "-1", "30s1m", "1e3", "nan", "inf"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(typer.BadParameter):
        duration(text)


def test_a_ttl_is_not_nothing() -> None:
    """Less than a millisecond is refused."""
    with pytest.raises(typer.BadParameter):
        lasting("0")
    assert lasting("1ms") == 0.001


def test_try_and_timeout_exclude_each_other() -> None:
    """A try is a wait of nothing; neither is a wait without limit."""
    assert wait_of(True, None) == 0
    assert wait_of(False, 3) == 3
    assert wait_of(False, None) is None
    with pytest.raises(typer.BadParameter):
        wait_of(True, 3)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0ms"),
        (999, "999ms"),
        (4_200, "4.2s"),
        (59_900, "59.9s"),
        (59_960, "1m00s"),
        (192_000, "3m12s"),
        (7_500_000, "2h05m"),
        (273_600_000, "3d04h"),
    ],
)
def test_ages_are_written_for_people(ms: int, text: str) -> None:
    """In at most two units."""
    assert ago(ms) == text


def test_no_limit_of_its_own_is_said_in_words() -> None:
    """-1 is not a time."""
    assert left(-1) == "with its session"
    assert left(1_000) == "1.0s"


def test_foreign_text_cannot_steer_a_terminal_or_break_a_line() -> None:
    """Control characters are shown by their numbers; all else is left alone."""
    assert clean("a\x1b[2Jb\nc\td\x9b") == "a\\x1b[2Jb\\x0ac\\x09d\\x9b"
    assert clean("Käse 🧀") == "Käse 🧀"


def test_the_command_of_run_begins_at_the_first_dashes() -> None:
    """Later ones are the command's own."""
    assert split(["a", "b", "--", "cmd", "--", "-x"]) == (["a", "b"], ["cmd", "--", "-x"])
    for words in (["a", "cmd"], ["--", "cmd"], ["a", "--"]):
        with pytest.raises(UsageError):
            split(words)


def test_only_run_keeps_its_dashes() -> None:
    """The parser swallows one `--`, so `run` is given a second."""
    assert prepared(["run", "a", "--", "b", "--", "c"]) == ["run", "a", "--", "--", "b", "--", "c"]
    assert prepared(["ls", "--", "a"]) == ["ls", "--", "a"]


def test_the_old_word_for_a_listener_still_works() -> None:
    """Scripts that say `door` start what they started."""
    assert prepared(["door", "grpc", "--port", "0"]) == ["listener", "grpc", "--port", "0"]
    assert prepared(["info", "door"]) == ["info", "door"]


def test_only_the_command_asked_for_is_loaded() -> None:
    """All of them are when there is none, or none that is known."""
    for words, count in ((["ls", "run"], 1), (["--help"], len(COMMANDS)), (["rnu"], len(COMMANDS))):
        app = build(words)
        assert len(app.registered_commands) + len(app.registered_groups) == count


def _record(**facts: object) -> logging.LogRecord:
    record = logging.LogRecord("fencehold", logging.INFO, "file", 1, "listening", (), None)
    record.created, record.msecs = 0.25, 250.0
    record.facts = facts
    return record


def test_a_line_of_the_log_is_keys_and_values() -> None:
    """Values are quoted where they must be."""
    line = Lines().format(_record(port=7420, note='a "b"=c', empty=""))
    assert line == (
        'time=1970-01-01T00:00:00.250Z level=info event=listening port=7420 note="a \\"b\\"=c" empty=""'
    )


def test_a_line_of_the_log_can_be_json() -> None:
    """With the same keys."""
    line = json.loads(JsonLines().format(_record(port=7420)))
    assert line == {"time": "1970-01-01T00:00:00.250Z", "level": "info", "event": "listening", "port": 7420}
