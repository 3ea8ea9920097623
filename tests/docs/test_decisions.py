"""The list of decision records names each of them by its title."""

from pathlib import Path

DECISIONS = Path(__file__).parents[2] / "docs/decisions"


def test_the_list_names_every_record() -> None:
    """In the order of their numbers, with the words that each begins with."""
    listed = [line for line in (DECISIONS / "README.md").read_text().splitlines() if line.startswith("- ")]
    assert listed == [entry(page) for page in sorted(DECISIONS.glob("[0-9]*.md"))]


def entry(page: Path) -> str:
    """The line of a record."""
    number, _, title = page.read_text().splitlines()[0].removeprefix("# ").partition(". ")
    assert int(page.name[:4]) == int(number), "a record is filed under its number"
    return f"- [{number}]({page.name}). {title}"
