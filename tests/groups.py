"""Which tests a worker takes together, and in which order, where several share the work (`pytest -n`).

Tests that share servers stay in one worker, so that those are started once: the tests of an engine, wherever they
stand; those of a ground of `tests/behaviour`; and those of a module, which may have a server of its own. What
takes longest begins first, so that no worker is left alone with it at the end; what only computes comes in
between, while others wait for their servers. (`--dist loadgroup` is for this too, but pytest-xdist 3.8 loses the
groups with pytest 9.2, and says nothing.)
"""

import re
from itertools import chain, zip_longest

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.behaviour.grounds import NAMES as GROUNDS

ENGINES = ("etcd", "zookeeper", "postgres")
"""Those with servers, which the first who asks starts."""
MANY = "tests/e2e/test_journal_between_engines.py"
"""It asks for the servers of all engines."""
ALONE = (
    "tests/robustness/test_failover.py",
    "tests/robustness/test_members.py",
    "tests/docs/test_examples.py",
    "tests/property/test_mutations.py",
    "tests/simulation/test_bugs.py",
    "tests/simulation/test_seeds.py",
)
"""Modules whose tests share nothing and take seconds each."""
FIRST = (
    "engines/",
    "grounds/",
    "tests/robustness/",
    "tests/e2e/",
    "tests/docs/",
    "tests/unit/guards/",
    "tests/unit/security/",
    "tests/unit/sinks/",
)
"""How the groups begin that take longest, by kind."""
COMPUTING = ("tests/simulation/", "tests/property/")
"""Those that wait for nothing but a processor."""


def group_of(nodeid: str) -> str:
    """The group of a test; without any other it is in that of its module."""
    module, _, test = nodeid.partition("::")
    if module == MANY:
        return "engines/zookeeper"
    if found := re.match(r"tests/unit/engines/(\w+)/", module):
        return f"engines/{found[1]}"
    parameters = re.split(r"[-\[\]]", test.partition("[")[2])
    if module.startswith("tests/contract/"):
        return next((f"engines/{name}" for name in ENGINES if name in parameters), module)
    if module.startswith("tests/behaviour/"):
        return next((f"grounds/{name}" for name in GROUNDS if name in parameters), module)
    return nodeid if module in ALONE else module


def longest_first(items: list[pytest.Item]) -> None:
    """Put the groups in order. Every worker does the same: they must agree on the order of all tests."""
    sizes: dict[str, int] = {}
    for item in items:
        group = group_of(item.nodeid)
        sizes[group] = sizes.get(group, 0) + 1
    places = {group: place for place, group in enumerate(in_order(sizes))}
    items.sort(key=lambda item: places[group_of(item.nodeid)])


def in_order(sizes: dict[str, int]) -> list[str]:
    """The groups, by the numbers of their tests: by kind, the largest first; those that compute come between."""

    def rank(group: str) -> tuple[int, int]:
        kind = next((at for at, start in enumerate(FIRST) if group.startswith(start)), len(FIRST))
        return kind, -sizes[group]

    ranked = sorted(sizes, key=rank)
    computing = [group for group in ranked if group.startswith(COMPUTING)]
    waiting = [group for group in ranked if not group.startswith(COMPUTING)]
    return [group for group in chain.from_iterable(zip_longest(waiting, computing)) if group is not None]


class Groups(LoadScopeScheduling):  # type: ignore[misc]  # of a package without types
    """Gives whole groups to the workers, in the order in which they were collected."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        config.option.loadscopereorder = False
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)
