"""`acquire` and `run` at a server that has too much to do."""

import logging
import threading
from functools import partial

import pytest
from typer.testing import CliRunner, Result

from fencehold import aio
from fencehold.cli import run as running
from fencehold.cli.app import build
from fencehold.cli.exits import Exit
from fencehold.cli.held_locks import HoldThread, Wanted
from fencehold.errors import Overloaded
from fencehold.locks.log import OVERLOADS, overloaded
from tests.unit.client.service import service_on_a_thread
from tests.unit.client.swamp import ANYTHING, NEW_WORK, Swamp


def call(url: str, command: str, *words: str) -> Result:
    return CliRunner().invoke(build([command]), [command, *words, "--url", url])


def test_acquire_waits_and_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Within its timeout, and for its session, too."""
    swamp = Swamp(monkeypatch, ANYTHING)
    with service_on_a_thread() as url:
        swamp.refuse(4)
        had = call(url, "acquire", "a", "--timeout", "60s")
        assert (had.exit_code, swamp.told) == (Exit.OK, 4)
        swamp.refuse(2)
        assert call(url, "release", had.stdout.strip()).exit_code == Exit.OK


@pytest.mark.parametrize("patience", [["--try"], ["--timeout", "100ms"]])
def test_acquire_says_that_the_service_is_busy_and_not_the_lock(
    patience: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another exit code, too: a script that takes 1 for "another has it" would be wrong."""
    Swamp(monkeypatch, NEW_WORK)
    with service_on_a_thread() as url:
        said = call(url, "acquire", "a", *patience)
    assert said.exit_code == Exit.UNAVAILABLE
    assert said.stderr == "fencehold: the service is busy: too much to do\n"


@pytest.mark.parametrize("kinds", [NEW_WORK, ANYTHING])
def test_run_says_that_the_service_is_busy(kinds: tuple[type, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it had a session or not, it was reached: nobody is told to start a server."""
    Swamp(monkeypatch, kinds)
    monkeypatch.setattr(aio, "connect", partial(aio.connect, connect_timeout=0.1))
    over = threading.Event()
    with service_on_a_thread() as url:
        holding = HoldThread(url, Wanted(["a"], 30.0, 0.1, "test"), over.set)
        holding.start()
        assert over.wait(30)
        with pytest.raises(Overloaded, match="the service is busy: too much to do") as raised:
            holding.result()
        assert not hasattr(raised.value, "hint")


def test_whoever_sits_before_run_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """With for how long it is tried; the log has a bound of its own."""
    OVERLOADS.reset()
    handler = running._Busy()
    running.OVERLOAD_LOG.addHandler(handler)
    try:
        for _ in range(3):
            overloaded(Overloaded("the service is busy: no room"), 3.0)
    finally:
        running.OVERLOAD_LOG.removeHandler(handler)
    assert capsys.readouterr().err == "fencehold: the service is busy: no room; trying again for 3 s\n"
    assert handler not in logging.getLogger("fencehold.overload").handlers
