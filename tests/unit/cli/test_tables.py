"""Tables fit the terminal: what may be shortened is, in the middle; what must be whole is."""

import io

import pytest
from rich.console import Console

from fencehold.cli.tables import cells_of, fitted, shortened, table

_HEADERS = ("NAME…", "MODE", "HELD BY…", "FENCE:")
_LONG = "deploy:production:eu-central-1:a-very-long-name-of-a-service:database-migration"
_FENCE = "1794782916286286"


@pytest.mark.parametrize(
    ("text", "width", "short"),
    [
        ("short", 5, "short"),
        ("abcdefghij", 10, "abcdefghij"),
        ("abcdefghij", 9, "abcd…ghij"),
        ("abcdefghij", 4, "ab…j"),
        ("Käse und Brot", 9, "Käse…Brot"),
        ("日本語日本語", 7, "日…本語"),
    ],
)
def test_a_text_is_shortened_in_the_middle(text: str, width: int, short: str) -> None:
    """By what it takes on a terminal, where a character may be two columns wide."""
    assert shortened(text, width) == short
    assert cells_of(shortened(text, width)) <= width


def test_the_widest_gives_first() -> None:
    """A short cell beside a long one stays whole; fences are never shortened."""
    rows = [(_LONG, "exclusive", "report on web1 pid 81", _FENCE)]
    assert fitted(_HEADERS, rows, 80) == [28, 9, 21, 16]
    assert fitted(_HEADERS, rows, 200) == [len(_LONG), 9, 21, 16]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Each row is one line, and both ends of a name are seen."""
    rows = [(_LONG, "exclusive", "fencehold run on a-host-with-a-long-name pid 1234567", _FENCE)] * 2
    lines = _printed(table(_HEADERS, rows, width=width), width)
    assert len(lines) == 3
    assert all(cells_of(line) <= width for line in lines)
    assert lines[1].startswith("deploy")
    assert lines[1].rstrip().endswith(_FENCE)


def test_prose_wraps_between_words() -> None:
    """Within its column, and no word is broken."""
    words = ["cannot", "reach", "the", "engine", "at", "the", "moment", "and", "goes", "on", "trying"]
    lines = _printed(table(("NODE", "NOTE "), [("a", " ".join(words))], width=30), 30)
    assert len(lines) > 2
    assert " ".join(" ".join(lines).split()[3:]) == " ".join(words)
    assert all(set(line.split()) <= {*words, "a", "NODE", "NOTE"} for line in lines)


def _printed(made: object, width: int) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(made)
    return out.getvalue().splitlines()
