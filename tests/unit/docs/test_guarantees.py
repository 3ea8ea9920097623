"""The page of guarantees names the tests that carry each: all of them, and none that is not there.

With ``--rewrite``, the lists are written anew from the marks and from the scripts' first lines.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/explanation/guarantees.md"
NAMES = [f"G{number}" for number in range(1, 15)]

SCRIPTS = {
    "G1": ["acquire_release", "break", "free_names", "raise_fence"],
    "G2": ["shared", "semaphore", "semaphore_drained", "reader_twice", "at_least", "at_least_endings"],
    "G4": ["fifo", "writer_not_overtaken", "herd", "ticket_order", "try"],
    "G5": ["release_reasons", "multi_partly_gone", "extend", "break"],
    "G6": ["session_expiry", "session_close", "dead_waiter", "expiry_before_grant", "ended_session"],
    "G7": ["time_is_capped", "keep_alive", "lost_connection"],
    "G8": ["multi", "multi_waits_holding_nothing", "multi_crossing"],
    "G9": ["repeated_request", "acknowledged_answers", "cancel_first", "wait_timeout", "deadlock"],
    "G11": ["free_names", "lock_delay_session"],
    "G12": ["restart"],
    "G13": ["policy", "policy_waiters", "policy_users", "policy_refusals"],
    "G14": ["cells", "cells_prefixes", "cells_join", "cells_lease"],
}


@cache
def marked_tests() -> list[tuple[str, str, str]]:
    """Guarantee, file and name of every test that is marked with one."""
    return sorted(set(_marked_tests()))


def _marked_tests() -> Iterator[tuple[str, str, str]]:
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
                for decorator in node.decorator_list:
                    yield from ((name, str(path.relative_to(ROOT)), node.name) for name in guarantees(decorator))


def guarantees(decorator: ast.expr) -> list[str]:
    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.guarantee":
        return [argument.value for argument in decorator.args if isinstance(argument, ast.Constant)]  # type: ignore[misc]
    return []


def carried(guarantee: str) -> list[str]:
    """The lines of a guarantee's list."""
    tests = [
        f"- [{name.removeprefix('test_').replace('_', ' ')}](../../{path})"
        for marked, path, name in marked_tests()
        if marked == guarantee
    ]
    scripts = [f"- script [{name}](../../tests/scripts/{name}.txt)" for name in SCRIPTS.get(guarantee, [])]
    return tests + scripts


def rewritten(page: str) -> str:
    for name in NAMES:
        listed = "\n".join(carried(name))
        page = re.sub(
            rf"(## {name} .*?Carried by:\n\n).*?(?=\n\n## |\Z)",
            lambda found, listed=listed: found.group(1) + listed,  # type: ignore[misc]
            page,
            count=1,
            flags=re.DOTALL,
        )
    return page.rstrip() + "\n"


def test_the_page_lists_the_tests_of_every_guarantee(request: pytest.FixtureRequest) -> None:
    """Each guarantee has its section, and the lists are those of the marks and scripts that exist."""
    page = PAGE.read_text()
    assert re.findall(r"^## (G\d+) ", page, re.MULTILINE) == NAMES
    now = rewritten(page)
    if request.config.getoption("--rewrite"):
        PAGE.write_text(now)
    assert now == page or request.config.getoption("--rewrite")


@pytest.mark.parametrize("guarantee", NAMES)
def test_every_guarantee_is_carried_by_something(guarantee: str) -> None:
    """No promise stands on the page without a test or a script behind it."""
    assert carried(guarantee)


def test_the_scripts_named_exist() -> None:
    """A script that was renamed is renamed on the page, too."""
    names = {name for names in SCRIPTS.values() for name in names}
    assert [name for name in sorted(names) if not (ROOT / f"tests/scripts/{name}.txt").exists()] == []
