"""The blocking client where gevent or eventlet has made greenlets of threads, each in a process of its own."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.client.service import service_on_a_thread

SCRIPT = Path(__file__).with_name("greenlets.py")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with service_on_a_thread() as url:
        yield url


@pytest.mark.slow
@pytest.mark.parametrize("library", ["gevent", "eventlet"])
def test_greenlets_are_threads(url: str, library: str) -> None:
    """Every verb works, a greenlet that waits lets others run, and a real thread keeps the session alive."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.unit.client.greenlets", library, url],
        cwd=SCRIPT.parents[3],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines() == [*_checks(), "closed"]


def _checks() -> list[str]:
    """The names of all checks, read without importing them: that would patch this process."""
    functions = [node for node in ast.parse(SCRIPT.read_text()).body if isinstance(node, ast.FunctionDef)]
    return [each.name for each in functions if [arg.arg for arg in each.args.args] == ["client"]]
