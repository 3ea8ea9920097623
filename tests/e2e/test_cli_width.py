"""On a terminal of 80 columns: nothing is wider, no word is broken, whatever names and fences there are."""

import json
import re
import sys
from collections.abc import Iterator

import pytest

from fencehold.cli.app import COMMANDS
from fencehold.cli.journal import JOURNAL
from fencehold.cli.tables import cells_of
from tests.e2e.served import Served, ended, serving, start, until
from tests.e2e.terminal import Terminal

_LONG = "deploy:production:eu-central:the-service-of-a-team-that-likes-to-be-clear:database-migration"
_CALLED = "the nightly migration of the order database, started by the scheduler"
_FENCE = 4_000_000_000_000_000
"""After a restore fences have sixteen digits."""
_PROGRAM = """
import json, sys
from fencehold.cli.app import build, prepared
for words in json.loads(sys.argv[1]):
    sys.stdout.write("\\x02" + json.dumps(words) + "\\x03\\n")
    sys.stdout.flush()
    try:
        build(words)(args=prepared(words), prog_name="fencehold")
    except SystemExit:
        pass
"""

HELPS = [[*name.split(), "--help"] for name in (*COMMANDS, *(f"journal {inner}" for inner in JOURNAL))]
ASKED = [
    ["--help"],
    ["serve", "--help"],
    ["run", "--help"],
    ["journal", "import", "--help"],
    ["ls"],
    ["info", _LONG],
    ["info", "nobody"],
    ["sessions"],
    ["status"],
    ["top", "--once"],
    ["cluster"],
    ["ping"],
    ["doctor"],
    ["watch", "--from", "0", "--count", "4"],
    ["acquire", _LONG, "--try"],
    ["extend", "nonsense"],
    ["journal", "info", "backup"],
    ["journal", "export", "other", "--engine", "data"],
    ["serve", "--check"],
    ["serve", "--host", "0.0.0.0"],
    ["ls", "--url", "fencehold://127.0.0.1:1"],
    ["cluster", "--url", "fencehold://127.0.0.1:1"],
    ["run", "one", "two"],
    ["bench", "--seconds", "50ms", "--clients", "1"],
]


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server as it is after years: long names, long descriptions, large fences, and somebody who waits."""
    place = tmp_path_factory.mktemp("width")
    with serving(place, "--memory") as first:
        first.call("acquire", "old")
        first.call("backup", str(place / "backup"))
    engine = ("--engine", str(place / "data"), "--fence-above", str(_FENCE))
    assert ended(start("journal", "import", str(place / "backup"), *engine)).code == 0
    with serving(place, "--data", str(place / "data")) as server:
        assert server.call("acquire", _LONG, "--name", _CALLED, "--ttl", "1h").code == 0
        assert server.call("acquire", "short", "--ttl", "1h", "--shared").code == 0
        waiting = server.start("run", _LONG, "--name", _CALLED, "--", "true")
        until(lambda: json.loads(server.call("info", _LONG, "--json").out)["waiters"])
        yield server
        waiting.kill()
        ended(waiting)


def _written(server: Served, columns: int, asked: list[list[str]]) -> dict[str, list[str]]:
    """The lines that each command writes on a terminal so wide."""
    with Terminal(
        sys.executable,
        "-c",
        _PROGRAM,
        json.dumps(asked),
        shell=True,
        place=server.place,
        FENCEHOLD_URL=server.url,
        COLUMNS=str(columns),
    ) as screen:
        screen.code()
    parts = screen.seen.split("\x02")[1:]
    # A line that is written again and again is many.
    lines = {words: re.split(r"[\r\n]+", text) for words, _, text in (part.partition("\x03") for part in parts)}
    return {words: [line for line in some if line.strip()] for words, some in lines.items()}


@pytest.fixture(scope="module")
def narrow(busy: Served) -> dict[str, list[str]]:
    return _written(busy, 80, [*ASKED, *(words for words in HELPS if words not in ASKED)])


@pytest.fixture(scope="module")
def wide(busy: Served) -> dict[str, list[str]]:
    return _written(busy, 400, ASKED)


def test_no_line_is_wider_than_the_terminal(narrow: dict[str, list[str]]) -> None:
    """Neither of a table nor of a sentence, nor of what help says."""
    assert len(narrow) > len(HELPS)
    too_wide = [(words, line) for words, lines in narrow.items() for line in lines if cells_of(line) > 80]
    # A name that is longer than that, in a sentence, is a line of its own: it may be needed whole.
    assert [(words, line) for words, line in too_wide if line.strip() != _LONG] == []


def test_no_word_is_broken(narrow: dict[str, list[str]], wide: dict[str, list[str]]) -> None:
    """Each word of a narrow terminal is one of a wide one, or shows that it was shortened."""
    broken = {words: _words(narrow[words]) - _words(lines) for words, lines in wide.items()}
    assert len(broken) == len(ASKED)
    assert {words: some for words, some in broken.items() if some} == {}


def _words(lines: list[str]) -> set[str]:
    """The words in some lines; without numbers, which are others each time."""
    text = " ".join(lines).translate(dict.fromkeys(map(ord, "│╭╮╰╯─"), " "))
    return {word for word in text.split() if "…" not in word and not any(char.isdigit() for char in word)}


def test_a_name_is_one_line_of_a_list(narrow: dict[str, list[str]]) -> None:
    """With both its ends, and its fence whole."""
    header, *rows = narrow[json.dumps(["ls"])]
    assert header.split() == ["NAME", "MODE", "HELD", "BY", "FOR", "WAITING", "FENCE"]
    assert len(rows) == 3
    long = next(row for row in rows if row.startswith("deploy"))
    assert long.split()[0].endswith("tion")
    assert long.split()[-1].startswith("4000000000000")
