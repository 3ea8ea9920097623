"""The pages for contributors name what is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_PATH = re.compile(r"`([\w.*-]*/[\w./*-]*)`")
_ROOTS = ("", "src/fencehold/", "tests/")
_MADE_BY_TESTS = (".artefacts/dashboard",)


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_every_path_leads_to_a_file(page: str) -> None:
    """Files move; a table that sends people to where nothing is sends nobody anywhere. NAME stands for any."""
    named = {path for path in _PATH.findall((ROOT / page).read_text()) if "/" in path.strip("/")}
    assert len(named) > 5
    assert [path for path in sorted(named) if not _is_there(path) and path not in _MADE_BY_TESTS] == []


def test_the_table_of_changes_has_the_likeliest() -> None:
    """Twenty at the least."""
    _, _, after = (ROOT / "ARCHITECTURE.md").read_text().partition("## To change … open …")
    table, _, _ = after.partition("\n## ")
    assert sum(line.startswith("| ") for line in table.splitlines()) > 20


def _is_there(path: str) -> bool:
    pattern = path.rstrip("/").replace("NAME", "*")
    return any(next(ROOT.glob(root + pattern), None) is not None for root in _ROOTS)
