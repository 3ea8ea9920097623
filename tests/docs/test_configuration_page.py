"""The page of the configuration names every option, field and default, as the code has it."""

import ast
import inspect
import re
import typing
from typing import Any

import pytest

import fencehold
from fencehold.cli.serve import serve
from fencehold.core.limits import Limits
from fencehold.doors.resp.door import Bounds as DoorBounds
from fencehold.node.leader import Bounds as LeaderBounds
from fencehold.server import Config
from tests.docs.pages import ROOT, anchors

PAGE = ROOT / "docs/reference/configuration.md"
TABLES: dict[str, tuple[type, str]] = {
    "Limits": (Limits, "`Limits`, in `fencehold.core.limits`"),
    "leader.Bounds": (LeaderBounds, "`Bounds`, in `fencehold.node.leader`"),
    "door.Bounds": (DoorBounds, "`Bounds`, in `fencehold.doors.resp.door`"),
    "Config": (Config, "## An embedded server"),
}


def table(after: str) -> dict[str, list[str]]:
    """The rows of the first table after some words, by what stands in backticks in their first cell."""
    _, found, rest = PAGE.read_text().partition(after)
    assert found, after
    rows: dict[str, list[str]] = {}
    for line in rest.splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            rows[cells[0].strip("`")] = cells[1:]
        elif rows:
            break
    return {name: cells for name, cells in rows.items() if name not in ("field", "parameter", "option", "---")}


def value(cell: str) -> object:
    """A default as the page writes it."""
    text = cell.strip("`")
    return {"Limits()": Limits(), "Bounds()": Ellipsis}.get(text) or ast.literal_eval(text)


def defaults(kind: type) -> dict[str, object]:
    return {name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()}


@pytest.mark.parametrize("name", TABLES)
def test_every_field_is_there_with_its_default(name: str) -> None:
    """No field of a configuration is left out, and no default is another."""
    kind, words = TABLES[name]
    shown = {field: value(cells[0]) for field, cells in table(words).items()}
    wanted = defaults(kind)
    if kind is Config:
        wanted |= {"leader": ..., "door": ...}
    assert shown == wanted


def test_every_option_of_serve_is_there() -> None:
    """Each with its variable and its default."""
    shown = {option: (cells[0], cells[1]) for option, cells in table("## The server").items()}
    assert shown == dict(_options())


def _options() -> typing.Iterator[tuple[str, tuple[str, str]]]:
    hints = typing.get_type_hints(serve, include_extras=True)
    for name, parameter in inspect.signature(serve).parameters.items():
        (option,) = [each for each in typing.get_args(hints[name]) if hasattr(each, "envvar")]
        # `--json` declared by itself arrives as the default of the option, not among its other names.
        declared = [word for word in (option.default, *(option.param_decls or ())) if str(word).startswith("--")]
        word = declared[0] if declared else f"--{name.replace('_', '-')}"
        yield word, (f"`{option.envvar}`", _default(parameter.default))


def _default(given: Any) -> str:
    if given is None or given is False:
        return "none" if given is None else "off"
    return f"`{given}`"


def test_every_parameter_of_connect_is_there() -> None:
    """Both clients take the same, and the page says what."""
    shown = {name: value(cells[0]) for name, cells in table("## The client").items()}
    assert shown == defaults(fencehold.connect)  # type: ignore[arg-type]
    assert shown == defaults(fencehold.aio.connect)  # type: ignore[arg-type]


def test_no_variable_is_named_that_nobody_reads() -> None:
    """A variable on the page is one of the command's."""
    named = set(re.findall(r"`(FENCEHOLD_\w+)`", PAGE.read_text()))
    assert named == {words[0].strip("`") for _, words in _options()} | {"FENCEHOLD_URL"}


def test_the_sections_that_other_pages_link_to_are_there() -> None:
    """Renaming one is a decision."""
    assert {"the-server", "the-client", "urls", "limits", "bounds-of-a-node"} <= anchors(PAGE)
