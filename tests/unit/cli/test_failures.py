"""Failures: one sentence for people, one line of JSON for programs, and an exit code for both."""

import json

import pytest
from typer.testing import CliRunner

from fencehold.cli.app import build, prepared
from fencehold.cli.exits import Exit
from fencehold.cli.failures import fail

_NOWHERE = "fencehold://127.0.0.1:1"


def _failed(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(build(list(words)), prepared(list(words)))
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("words", "code", "word"),
    [
        (["ls", "--url", _NOWHERE], Exit.UNAVAILABLE, "unavailable"),
        (["ls", "--url", "nonsense://x"], Exit.USAGE, "usage"),
        (["release", "nonsense"], Exit.USAGE, "usage"),
        (["ls", "--tier", "fast"], Exit.USAGE, "usage"),
        (["ls", "--no-such-option"], Exit.USAGE, "usage"),
        (["info"], Exit.USAGE, "usage"),
        (["no-such-command"], Exit.USAGE, "usage"),
        (["journal", "info", "/no/such/file"], Exit.USAGE, "usage"),
        (["serve", "--memory", "--data", "x"], Exit.USAGE, "usage"),
    ],
)
def test_an_error_is_json_where_json_was_asked_for(words: list[str], code: int, word: str) -> None:
    """On stderr, one line, with the exit code and the same words in every command; stdout stays empty."""
    found, out, err = _failed(*words, "--json")
    assert (found, out) == (code, "")
    told = json.loads(err)
    assert (told["error"], told["exit"]) == (word, code)
    assert told["message"]
    assert "hint" in told


def test_without_json_it_is_a_sentence() -> None:
    """And what to do, on a line of its own."""
    code, out, err = _failed("ls", "--url", _NOWHERE)
    assert (code, out) == (Exit.UNAVAILABLE, "")
    first, second = err.splitlines()
    assert first.startswith("fencehold: cannot reach a server at 127.0.0.1:1")
    assert second.startswith("  start one with: fencehold serve")


def test_the_json_of_a_command_that_is_run_is_its_own() -> None:
    """`--json` after `--` is not for us."""
    code, _, err = _failed("run", "name", "--limit", "x", "--", "cmd", "--json")
    assert code == Exit.USAGE
    assert not err.startswith("{")


def test_what_one_command_was_asked_for_is_not_what_the_next_is(capsys: pytest.CaptureFixture[str]) -> None:
    """In one process, as tests and programs call them."""
    _failed("ls", "--url", _NOWHERE, "--json")
    fail(Exit.NO, "outside of any command")
    assert capsys.readouterr().err == "fencehold: outside of any command\n"
