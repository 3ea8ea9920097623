"""docs/reference/cli.md says all that the command can do, and nothing that it cannot."""

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from fencehold.cli.app import COMMANDS, GROUPS, build
from fencehold.cli.exits import MEANINGS, Exit

_PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"


def _commands() -> dict[str, Any]:
    """Every command by its name; of a group those in it, by both names."""
    root: Any = typer.main.get_command(build(["--help"]))
    found = {name: command for name, command in root.commands.items() if name not in GROUPS}
    for group in GROUPS:
        found |= {f"{group} {name}": command for name, command in root.commands[group].commands.items()}
    return found


ALL = _commands()


def _section(name: str) -> str:
    found = re.search(rf"^####? `{name}`\n(.*?)(?=^##|\Z)", _PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"no section on {name}"
    return found[1]


@pytest.mark.parametrize("name", ALL)
def test_every_option_is_in_its_commands_section(name: str) -> None:
    """With its variable, if it has one; options that all share are in the introduction, or in the group's."""
    text = _section(name)
    words = text + (_section(name.partition(" ")[0]) if " " in name else "")
    shared = {"--url", "--json", "--help"}
    for parameter in ALL[name].params:
        for option in parameter.opts:
            if option.startswith("--") and option not in shared:
                assert f"`{option}" in text, f"{name} {option}"
        if parameter.envvar and "--url" not in parameter.opts:
            assert f"`{parameter.envvar}`" in words, f"{name} {parameter.envvar}"


@pytest.mark.parametrize("name", ALL)
def test_every_option_in_a_section_exists(name: str) -> None:
    """What the page names can be said."""
    known = {option for parameter in ALL[name].params for option in parameter.opts}
    rows = re.findall(r"^\| `(--[a-z-]+)", _section(name), re.MULTILINE)
    assert set(rows) <= known


def test_every_exit_code_is_in_the_table() -> None:
    """Each on its row, with its meaning."""
    rows = re.findall(r"^\| `(\d+)`(?: \+ n)? \| (.*) \|$", _PAGE.read_text(), re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == MEANINGS


def test_every_section_is_a_command() -> None:
    """None is left from a command that is gone."""
    assert set(re.findall(r"^### `([a-z]+)`$", _PAGE.read_text(), re.MULTILINE)) == set(COMMANDS)
    inner = {name for name in ALL if " " in name}
    assert set(re.findall(r"^#### `([a-z ]+)`$", _PAGE.read_text(), re.MULTILINE)) == inner


def test_every_error_has_its_word_in_the_table() -> None:
    """As `--json` writes it, beside its exit code; what only a command that is run can end with has none."""
    rows = re.findall(r"^\| `([a-z]+)` \| (\d+) \|$", _PAGE.read_text(), re.MULTILINE)
    told = {code.name.lower(): code.value for code in Exit if 0 < code < Exit.CANNOT_EXECUTE}
    assert {word: int(code) for word, code in rows} == told
