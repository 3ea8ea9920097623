"""docs/reference/events.md is what the code says: kinds, types, fields, and an example that is one."""

import inspect
import json
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from fencehold.core.events import Event as CoreEvent
from fencehold.core.events import Kind
from fencehold.doors.resp import replies
from fencehold.locks.views import party
from fencehold.node.ring import Ring
from fencehold.sinks.cloudevents import TYPES, record_of
from rig.event_targets import happened

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "events.md"
_GAP = "Events are missing, because the service does not have them any more"


def _meaning(kind: Kind) -> str:
    # Not beyond the line of the kind: what comes next is what it means, and nothing later.
    found = re.search(
        rf'^    {kind.name} = [^\n]*\n    """(.*?)"""', inspect.getsource(Kind), re.MULTILINE | re.DOTALL
    )
    assert found, f"{kind} has no docstring"
    return found[1].rstrip(".")


def _table() -> str:
    meanings = [_meaning(kind) for kind in Kind]
    assert len(set(meanings)) == len(meanings), "each kind has a meaning of its own"
    rows = [f"| `{kind.value}` | `{TYPES[kind.value]}` | {_meaning(kind)} |\n" for kind in Kind]
    rows.append(f"| `gap` | `{TYPES['gap']}` | {_GAP} |\n")
    head = "| kind | CloudEvents type | what happened |\n|---|---|---|\n"
    return f"<!-- kinds -->\n\n{head}{''.join(rows)}\n<!-- end -->"


def test_all_kinds_are_there(request: pytest.FixtureRequest) -> None:
    """With their types and what they mean; `--rewrite` writes the table anew."""
    text = PAGE.read_text()
    made = re.sub(r"<!-- kinds -->.*?<!-- end -->", lambda _: _table(), text, flags=re.DOTALL)
    if request.config.getoption("--rewrite"):
        PAGE.write_text(made)
    assert text == made or request.config.getoption("--rewrite")
    assert set(TYPES) == {kind.value for kind in Kind} | {"gap"}


def test_all_fields_are_there() -> None:
    """All that is on the wire has a row in the table of fields."""
    section = PAGE.read_text().partition("## Fields")[2].partition("## Kinds")[0]
    pushed = replies.push_event(CoreEvent(Kind.ACQUIRED, 1, 1)) + replies.push_gap(1, 0, 2)
    words = set(re.findall(rb"\$\d+\r\n([a-z_]+)\r\n[:$*_]", pushed)) - {b"event", b"acquired", b"gap"}
    assert {word.decode() for word in words} == set(re.findall(r"`(\w+)`[,| ]", _first_column(section)))


def _first_column(section: str) -> str:
    rows = [line.split("|")[1] + "," for line in section.splitlines() if line.startswith("| `")]
    return "".join(rows)


def test_the_example_is_what_a_sink_writes() -> None:
    """Attribute by attribute, but for the fields that say when."""
    [shown] = re.findall(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    said = party(3, "worker#1", {"client": "billing", "host": "web1", "pid": 81})
    event = happened(1841, 2, name="wallet:7")
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    event = replace(event, party=said, owner="worker#1", fence=7, principal="billing", time=noon)
    told = json.loads(record_of(event, "prod").body)
    example = json.loads(shown)
    for each in (told, example):
        each["data"].pop("unix_ms"), each["data"].pop("at_ms"), each.pop("time")
    assert example == told


def test_the_size_of_the_ring_is_as_the_page_says() -> None:
    """How much is kept of the past is documented, and so what is lost."""
    defaults = {name: each.default for name, each in inspect.signature(Ring.__init__).parameters.items()}
    text = PAGE.read_text()
    assert f"newest {defaults['things_max']:_}".replace("_", " ") in text
    assert f"up to {defaults['bytes_max'] >> 20} MiB of memory" in text
