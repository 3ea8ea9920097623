"""Groups of tests: what shares servers is run by one worker."""

import re
import subprocess
import sys

import pytest

from tests.groups import group_of, in_order

ENGINE = "engines/zookeeper"


@pytest.mark.parametrize(
    ("test", "group"),
    [
        ("contract/test_append.py::test_an_empty_entry_is_refused[zookeeper]", ENGINE),
        ("contract/test_append.py::test_an_append_out_of_place_writes_nothing[zookeeper-1]", ENGINE),
        ("unit/engines/zookeeper/test_sessions.py::test_it", ENGINE),
        ("e2e/test_journal_between_engines.py::test_it[etcd]", ENGINE),
        ("contract/test_append.py::test_an_empty_entry_is_refused[memory]", "tests/contract/test_append.py"),
        ("unit/engines/test_file_journal.py::test_it[postgres]", "tests/unit/engines/test_file_journal.py"),
        ("behaviour/test_kinds.py::test_it[redis-True]", "grounds/redis"),
        ("behaviour/test_kinds.py::test_it[True-redlock]", "grounds/redlock"),
        ("behaviour/test_mysql_faults.py::test_it", "tests/behaviour/test_mysql_faults.py"),
        ("unit/guards/test_mysql.py::TestAsync::test_it[weak]", "tests/unit/guards/test_mysql.py"),
        ("simulation/test_seeds.py::test_it[1]", "tests/simulation/test_seeds.py::test_it[1]"),
    ],
)
def test_a_group_is_that_of_the_servers_or_of_the_module(test: str, group: str) -> None:
    """A test that takes long and shares nothing is a group of its own."""
    assert group_of(f"tests/{test}") == group


def test_what_computes_comes_between_what_waits() -> None:
    """By kind, the largest first."""
    sizes = {
        "tests/unit/core": 50,
        "tests/simulation/test_seeds.py::test_it[1]": 1,
        "tests/e2e/test_http.py": 7,
        "tests/property/test_model.py": 3,
        "engines/etcd": 20,
        "engines/zookeeper": 30,
    }
    assert in_order(sizes) == [
        "engines/zookeeper",
        "tests/property/test_model.py",
        "engines/etcd",
        "tests/simulation/test_seeds.py::test_it[1]",
        "tests/e2e/test_http.py",
        "tests/unit/core",
    ]


@pytest.mark.slow
def test_workers_take_whole_groups() -> None:
    """Though there are two of them, every module is run by one."""
    modules = ("tests/unit/suite/test_stopwatch.py", "tests/unit/suite/test_loops.py", "tests/unit/runtime")
    command = [sys.executable, "-m", "pytest", "-v", "-n", "2", "-p", "no:cacheprovider", *modules]
    said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120).stdout
    workers: dict[str, set[str]] = {}
    for worker, module in re.findall(r"\[(gw\d)\] .* PASSED (\S+?)::", said):
        workers.setdefault(module, set()).add(worker)
    assert len(workers) >= 3, said
    assert all(len(taken) == 1 for taken in workers.values()), workers
