"""The pytest plugin: there when it is asked for, and unnoticed when it is not."""

import subprocess
import sys

import pytest

pytest_plugins = "pytester"

USES = """
import fencehold

def test_client(fencehold_client):
    with fencehold_client.lock("orders") as hold:
        assert hold.fence == 1

def test_url(fencehold_url, fencehold_service):
    with fencehold.connect(fencehold_url, name="app") as client, client.lock("orders") as hold:
        fencehold_service.advance(60)
        assert hold.fence == 1
        assert fencehold_service.holders("orders")[0].party.client == "app"
"""


def test_the_fixtures_are_there_by_themselves(pytester: pytest.Pytester) -> None:
    """A project that has Fencehold installed needs no conftest; each test has a service of its own."""
    pytester.makepyfile(USES)
    pytester.runpytest_inprocess("-W", "error").assert_outcomes(passed=2)


def test_the_fixtures_are_listed_with_what_they_are(pytester: pytest.Pytester) -> None:
    """`pytest --fixtures` explains them."""
    pytester.runpytest_inprocess("--fixtures").stdout.fnmatch_lines(
        ["fencehold_service*", "*lock service of this test's own*", "fencehold_url*", "fencehold_client*"]
    )


def test_the_plugin_imports_next_to_nothing() -> None:
    """Whoever has Fencehold installed and tests something else does not wait for it."""
    code = "import sys, pytest; before = set(sys.modules); import fencehold.testing.plugin; "
    code += "print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = {"fencehold", "fencehold.version", "fencehold.testing", "fencehold.testing.plugin"}
    assert set(done.stdout.split()) == ours


def test_the_public_names_are_found() -> None:
    """What is listed is there, and what is not is said to be missing."""
    from fencehold import testing  # noqa: PLC0415

    assert [name for name in testing.__all__ if not hasattr(testing, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'Servce'"):
        getattr(testing, "Servce")  # noqa: B009
