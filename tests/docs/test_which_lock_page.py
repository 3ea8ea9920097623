"""The page that compares locks says of each what it declares."""

import re

import pytest

from tests.behaviour.grounds import ground_of
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/explanation/which-lock.md"
GROUNDS = {
    "`memory://`": ("memory",),
    "`sqlite:///`": ("sqlite",),
    "`postgresql+advisory://`": ("advisory",),
    "`postgresql://`, `mysql://`": ("postgres", "mysql"),
    "`redis://`": ("redis",),
    "`redlock://`": ("redlock",),
    "`zookeeper://`": ("zookeeper",),
    "`etcd://`": ("etcd",),
    "`fencehold://` on a cluster": ("fencehold",),
}


def _rows() -> dict[str, list[str]]:
    table = PAGE.read_text().partition("| | linearizable | fenced |")[2].partition("\n\n")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {row[0]: row[1:] for row in cells}


@pytest.mark.parametrize("level", GROUNDS)
def test_the_table_says_what_is_declared(level: str) -> None:
    """Linearizable, fenced, fair, survives failover: yes where it begins with yes."""
    said = [bool(re.match("yes", cell)) for cell in _rows()[level][:4]]
    for name in GROUNDS[level]:
        given = ground_of(name).expected
        assert said == [given.linearizable, given.fenced, given.fair, given.survives_failover]
