"""The page of the configuration names every option, field and default, as the code has it."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import msgspec
import pytest
import typer.main

import fencehold
from fencehold.build import PURE
from fencehold.cli.app import build
from fencehold.cli.configuration import configured
from fencehold.cli.credentials import VARIABLE
from fencehold.cli.options import duration
from fencehold.cli.settings import SETTINGS, read
from fencehold.client.config import Config as ClientConfig
from fencehold.client.config import read as read_by_clients
from fencehold.client.options import ConnectOptions
from fencehold.core.limits import Limits
from fencehold.doors.resp.bounds import Bounds as ListenerBounds
from fencehold.drivers.tls import VARIABLES
from fencehold.node.leader import Bounds as LeaderBounds
from fencehold.node.suspicion import Patience
from fencehold.observe.feed import ObserveBounds
from fencehold.observe.history.store import Bounds as HistoryBounds
from fencehold.security.audit import Bounds as AuditBounds
from fencehold.server import Config
from tests.docs.pages import ROOT, anchors, blocks

PAGE = ROOT / "docs/reference/configuration.md"
TABLES: dict[str, tuple[type, str]] = {
    "Limits": (Limits, "`Limits`, in `fencehold.core.limits`"),
    "leader.Bounds": (LeaderBounds, "`Bounds`, in `fencehold.node.leader`"),
    "listener.Bounds": (ListenerBounds, "`Bounds`, in `fencehold.doors.resp.bounds`"),
    "audit.Bounds": (AuditBounds, "`Bounds`, in `fencehold.security.audit`"),
    "history.Bounds": (HistoryBounds, "`Bounds`, in `fencehold.observe.history.store`"),
    "ObserveBounds": (ObserveBounds, "`ObserveBounds`, in `fencehold.observe.feed`"),
    "Patience": (Patience, "`Patience`, in `fencehold.node.suspicion`"),
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
    known = {"Limits()": Limits(), "Bounds()": Ellipsis, "Patience()": Patience()}
    return known.get(text) or ast.literal_eval(text)


def defaults(kind: type) -> dict[str, object]:
    return {name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()}


@pytest.mark.parametrize("name", TABLES)
def test_every_field_is_there_with_its_default(name: str) -> None:
    """No field of a configuration is left out, and no default is another."""
    kind, words = TABLES[name]
    shown = {field: value(cells[0]) for field, cells in table(words).items()}
    wanted = defaults(kind)
    if kind is Config:
        wanted |= {"leader": ..., "listener": ..., "audit": ...}
    assert shown == wanted


def test_every_option_of_serve_is_there() -> None:
    """Each with its variable and its default."""
    shown = {option: (cells[0], cells[1]) for option, cells in table("## The server").items()}
    assert shown == dict(_options())


def _options() -> Iterator[tuple[str, tuple[str, str]]]:
    """Each option that has a variable, with that and what the command's help says of its default."""
    command: Any = typer.main.get_command(build(["--help"]))
    for option in command.commands["serve"].params:
        if option.envvar:
            yield option.opts[0], (f"`{option.envvar}`", _default(option))


def _default(option: Any) -> str:
    if option.is_flag:
        return "off"
    shown = option.show_default
    if not isinstance(shown, str):
        return "none"
    return shown if " " in shown else f"`{shown}`"


def test_what_help_says_of_a_default_is_so() -> None:
    """Where there is one to compare with."""
    shown = {option: cells[1] for option, cells in table("## The server").items()}
    for name, setting in SETTINGS.items():
        if setting.default in (None, "", False):
            continue
        said = shown[f"--{name.replace('_', '-')}"].strip("`")
        assert (duration(said) if isinstance(setting.default, float) else said) in (
            setting.default,
            str(setting.default),
            getattr(setting.default, "value", None),
        )


def test_every_option_of_serve_can_be_said_in_a_file() -> None:
    """By the same name, except where the file is."""
    options = {option.removeprefix("--").replace("-", "_"): words[0].strip("`") for option, words in _options()}
    assert options.pop("config")
    assert options == {name: setting.variable for name, setting in SETTINGS.items()}


def test_the_file_on_the_page_is_taken(tmp_path: Path) -> None:
    """As it is, but for where the password is."""
    block = next(block for block in blocks(PAGE) if "engine" in block.text and block.language == "toml")
    password = tmp_path / "password"
    password.write_text("s3cret")
    file = tmp_path / "fencehold.toml"
    file.write_text(block.text.replace("/run/secrets/etcd", str(password)))
    known = configured({}, read(file))
    assert known.server.engine == "etcd://fencehold:s3cret@10.0.0.1,10.0.0.2,10.0.0.3/locks"
    assert known.server.leader.tick_s == 0.25


def test_the_file_for_clients_on_the_page_is_taken(tmp_path: Path) -> None:
    """As it is; and it names everything that such a file can say."""
    block = next(block for block in blocks(PAGE) if "[client]" in block.text and block.language == "toml")
    file = tmp_path / "fencehold.toml"
    file.write_text(block.text)
    said = read_by_clients(file)
    assert [name for name in get_type_hints(ConnectOptions) if name not in (*said, "tls", "config")] == []
    assert "url" not in said
    assert read(file).settings == {}


def test_what_a_client_does_without_a_word_is_said() -> None:
    """Where a parameter is not given, the page says what holds instead."""
    shown = {name: re.findall(r"otherwise `([^`]+)`", cells[1]) for name, cells in table("## The client").items()}
    known = msgspec.structs.asdict(ClientConfig())
    wanted = {name: known[name] for name in get_type_hints(ConnectOptions) if known.get(name) and name != "rules"}
    assert {name: shown[name] for name in wanted} == {
        name: [f'"{value}"' if isinstance(value, str) else f"{value:g}"] for name, value in wanted.items()
    }


def test_every_parameter_of_connect_is_there() -> None:
    """Both clients take the same, and the page says what."""
    shown = {name: value(cells[0]) for name, cells in table("## The client").items()}
    assert shown == defaults(fencehold.connect)  # type: ignore[arg-type]
    assert shown == defaults(fencehold.aio.connect)  # type: ignore[arg-type]


def test_no_variable_is_named_that_nobody_reads() -> None:
    """A variable on the page is one of the command's."""
    named = set(re.findall(r"`(FENCEHOLD_\w+)`", PAGE.read_text()))
    login = {"FENCEHOLD_USER", *(f"FENCEHOLD_{each}" for each in ("SECRET", "SECRET_FILE", "TOKEN", "TOKEN_FILE"))}
    of_clients = {"FENCEHOLD_URL", *VARIABLES.values(), *login}
    assert named == {words[0].strip("`") for _, words in _options()} | {VARIABLE, PURE} | of_clients


def test_the_sections_that_other_pages_link_to_are_there() -> None:
    """Renaming one is a decision."""
    wanted = {"the-server", "the-file", "passwords", "the-client", "urls", "limits", "bounds-of-a-node"}
    assert wanted <= anchors(PAGE)
