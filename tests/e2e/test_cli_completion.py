"""Completion, asked for as the shells ask: each by its own variables, and bash by a key on a terminal."""

import contextlib
import io
import json
import os
import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from fencehold.cli.app import COMMANDS
from fencehold.cli.main import main
from tests.e2e.served import Served, ended, serving, start
from tests.e2e.terminal import Terminal

SHELLS = ("bash", "zsh", "fish")


def offered(shell: str, line: str, **variables: str) -> list[str]:
    """The words that are offered for a line that ends where the cursor is; of bash, what is missing of them."""
    if shell == "bash":
        # bash breaks words at colons and equal signs, and keeps those as words of their own.
        words = [part for word in line.split(" ") for part in re.split("([:=])", word) if part or not word]
        how = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    else:
        how = {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    out, err = _asked(_FENCEHOLD_COMPLETE=f"complete_{shell}", **how, **variables)
    assert err == ""
    if shell == "zsh":
        return [
            word.replace("\\\\:", ":") for word in re.findall(r'"((?:[^"]|"")*)"(?::|$|\))', out, re.MULTILINE)
        ]
    return [line.partition("\t")[0] for line in out.splitlines()]


def _asked(**variables: str) -> tuple[str, str]:
    """Call the command as a shell does that wants to know, in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.dict(os.environ, variables),
        patch.object(sys, "argv", ["fencehold"]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        contextlib.suppress(SystemExit),
    ):
        main()
    return out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with names held: plain ones, one that a shell would act on, one of the other tier."""
    with serving(tmp_path_factory.mktemp("completion"), "--memory") as server:
        for name in ("jobs:hourly", "jobs:nightly", "reports", "jobs:$(touch owned)", 'jobs:";id'):
            assert server.call("acquire", name, "--ttl", "1h").code == 0
        assert server.call("acquire", "cheap", "--ttl", "1h", "--tier", "efficiency").code == 0
        yield server


@pytest.mark.parametrize("shell", SHELLS)
def test_names_in_use_are_completed(busy: Served, shell: str) -> None:
    """Those that begin so, wherever a name stands; none that a shell would act on."""
    here = {"FENCEHOLD_URL": busy.url}
    names = ["jobs:hourly", "jobs:nightly"]
    parts = ["hourly", "nightly"] if shell == "bash" else names
    assert offered(shell, "fencehold info jo", **here) == names
    assert offered(shell, "fencehold info jobs:", **here) == parts
    assert offered(shell, "fencehold break --yes jobs:ni", **here) == parts[1:]
    assert offered(shell, "fencehold run jobs:hourly rep", **here) == ["reports"]


def test_the_server_and_the_tier_of_the_line_are_asked(busy: Served) -> None:
    """An option wins over the environment, as it will when the line is run."""
    elsewhere = {"FENCEHOLD_URL": "fencehold://127.0.0.1:1"}
    assert offered("bash", f"fencehold ls --url {busy.url} rep", **elsewhere) == ["reports"]
    assert offered("fish", "fencehold ls --tier efficiency ", FENCEHOLD_URL=busy.url) == ["cheap"]


def test_a_server_that_is_away_or_silent_means_no_names_and_no_words(busy: Served) -> None:
    """It gives up by itself: a terminal is no place for complaints while somebody types."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for url in (f"fencehold://127.0.0.1:{silent.getsockname()[1]}", "fencehold://127.0.0.1:1", "nonsense"):
            assert offered("bash", "fencehold info jo", FENCEHOLD_URL=url) == []


def test_the_command_that_is_run_is_not_ours_to_complete(busy: Served) -> None:
    """After `--` no names are offered, and the shell completes files."""
    assert offered("bash", "fencehold run reports -- jo", FENCEHOLD_URL=busy.url) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_and_options_are_completed(shell: str) -> None:
    """All of them; and only the command that is called is loaded for its options."""
    assert set(COMMANDS) <= set(offered(shell, "fencehold "))
    assert "--try" in offered(shell, "fencehold acquire --t")


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_script_of_its_own(shell: str) -> None:
    """It asks this program."""
    said = ended(start("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"))
    assert said.code == 0
    assert f"_FENCEHOLD_COMPLETE=complete_{shell}" in said.out


def test_a_name_is_completed_by_a_key(busy: Served, tmp_path: Path) -> None:
    """In a real bash, with its own idea of what a word is."""
    script = ended(start("--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")).out
    (tmp_path / "completion.sh").write_text(script)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with Terminal("bash", "--norc", "-i", shell=True, FENCEHOLD_URL=busy.url, PATH=path, PS1="ready> ") as screen:
        screen.press(f"source {tmp_path}/completion.sh\n")
        screen.press("fencehold info --json jobs:ni\t\n")
        screen.until('"kept": null}\n')
        found = re.search(r"\{.*\}", screen.seen)
    assert found is not None
    assert json.loads(found[0])["name"] == "jobs:nightly"
