"""`--json`: the same words for the same things in every command, as docs/reference/cli.md says."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.served import Served, ended, until

_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "cli.md"
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_INSTANTS = ("since", "until", "time", "made_at")


@pytest.fixture(scope="module")
def told(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Any]]]:
    """What every command writes that can write JSON, with a name that is held and waited for."""
    place = tmp_path_factory.mktemp("json")
    acquired = server.call("acquire", "json:it", "--name", "holder", "--json")
    waiting = server.start("run", "json:it", "--", "true")
    until(lambda: json.loads(server.call("info", "json:it", "--json").out)["waiters"])
    asked = {
        "ls": ["ls"],
        "info": ["info", "json:it"],
        "sessions": ["sessions"],
        "status": ["status"],
        "ping": ["ping"],
        "top": ["top"],
        "watch": ["watch", "--from", "0", "--count", "3"],
        "cluster": ["cluster"],
        "doctor": ["doctor"],
        "bench": ["bench", "--seconds", "50ms", "--clients", "1"],
        "backup": ["backup", str(place / "backup")],
        "journal info": ["journal", "info", str(place / "backup")],
        "journal import": ["journal", "import", str(place / "backup"), "--engine", str(place / "data")],
        "extend": ["extend", json.loads(acquired.out)["token"]],
        "break": ["break", "json:it", "--yes"],
        "release": ["release", json.loads(acquired.out)["token"]],
        "acquire": ["acquire", "json:it", "--shared"],
        "error": ["info", "nobody"],
    }
    said = {name: server.call(*words, "--json") for name, words in asked.items()}
    yield {name: [json.loads(line) for line in (one.out + one.err).splitlines()] for name, one in said.items()}
    ended(waiting)


def _objects(value: Any, key: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object in what was written, with the key it stands under."""
    for inner in value if isinstance(value, list) else ():
        yield from _objects(inner, key)
    if isinstance(value, dict):
        yield key, value
        for name, inner in value.items():
            # What others have said of themselves is theirs.
            if name != "meta":
                yield from _objects(inner, name)


def test_every_command_writes_json(told: dict[str, list[Any]]) -> None:
    """One object each line, whether it went well or not."""
    for name, lines in told.items():
        assert lines, name
        assert all(isinstance(line, dict) for line in lines), name


def test_times_are_instants_and_seconds(told: dict[str, list[Any]]) -> None:
    """And nothing is in another unit; what there is none of is null."""
    for name, lines in told.items():
        for _, found in _objects(lines):
            for key, value in found.items():
                assert not key.endswith(("_ms", "_us", "_ago")), (name, key)
                assert value != "", (name, key)
                if key in _INSTANTS and value is not None:
                    assert _INSTANT.fullmatch(value), (name, key, value)
                if key.endswith("_s") and not key.endswith("per_s") and value is not None:
                    assert isinstance(value, int | float), (name, key)
                if key.endswith("_count"):
                    assert isinstance(value, int), (name, key)
            assert ("until" in found) == ("left_s" in found), (name, found)
            assert ("since" in found) <= ("for_s" in found), (name, found)


def test_one_thing_has_one_shape_as_it_is_documented(told: dict[str, list[Any]]) -> None:
    """Clients, holds, waiters and sessions have the keys that the table names, wherever they appear."""
    table = {shape: _documented(shape) for shape in ("client", "hold", "waiter", "session")}
    found = [(key.removesuffix("s"), value) for lines in told.values() for key, value in _objects(lines)]
    found += [("session", value) for value in told["sessions"]]
    assert table.keys() <= {key for key, _ in found}
    assert [(key, value) for key, value in found if key in table and set(value) != table[key]] == []


def _documented(shape: str) -> set[str]:
    (row,) = re.findall(rf"^\| \*\*{shape}\*\*.*? \| (.*) \|$", _PAGE.read_text(), re.MULTILINE)
    keys = set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", row)))
    keys |= {"since", "for_s"} if "*since*" in row else set()
    return keys | ({"until", "left_s"} if "*until*" in row else set())
