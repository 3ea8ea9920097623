"""The page on testing is run: its blocks go into the files their first lines name, and pytest does the rest."""

import re
from pathlib import Path

import pytest

pytest_plugins = "pytester"

PAGE = Path(__file__).parents[3] / "docs/how-to/pytest.md"
BLOCK = re.compile(r"^```python\n# (\w+)\.py\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def files() -> dict[str, str]:
    """What the page shows, by module."""
    found: dict[str, str] = {}
    for module, code in BLOCK.findall(PAGE.read_text()):
        found[module] = found.get(module, "") + code + "\n\n"
    return found


def test_every_example_on_the_page_is_run(pytester: pytest.Pytester) -> None:
    """What a reader copies works, without a warning."""
    pytester.makepyfile(**files())
    tests = files()["test_billing"].count("def test_")
    pytester.runpytest_inprocess("-W", "error").assert_outcomes(passed=tests)


def test_every_block_says_where_it_belongs() -> None:
    """No block of Python on the page is left out."""
    text = PAGE.read_text()
    assert len(BLOCK.findall(text)) == text.count("```python")


def test_every_verb_is_on_the_page() -> None:
    """What the service can do can be looked up."""
    from fencehold.testing import Service  # noqa: PLC0415

    verbs = [name for name in vars(Service) if not name.startswith("_")]
    verbs = [name for name in verbs if name not in ("open", "close", "connect", "aio_connect")]
    assert [name for name in verbs if not re.search(rf"`[^`]*\b{name}\b[^`]*`", PAGE.read_text())] == []
