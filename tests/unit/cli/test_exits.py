"""Exit codes: one table, whole; and what is said beside them."""

import os
import signal
from pathlib import Path

import pytest
import typer

from fencehold import errors
from fencehold.cli.exits import MEANINGS, Exit, exit_of
from fencehold.cli.failures import guarded
from fencehold.cli.serve import _failed
from fencehold.cli.server_process import Serving
from fencehold.errors import (
    AlreadyOwned,
    Damaged,
    Deadlock,
    FenceholdError,
    HoldLost,
    InvariantViolated,
    LockTimeout,
    NotAdmitted,
    OutcomeUnknown,
    PermissionDenied,
    Unavailable,
    UsageError,
)
from fencehold.server import Config


def test_every_code_has_a_meaning() -> None:
    """And no two are the same."""
    assert set(MEANINGS) == set(Exit)
    assert len({int(code) for code in Exit}) == len(Exit)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError("x"), 2),
        (LockTimeout("x"), 1),
        (Deadlock("x"), 1),
        (PermissionDenied("x"), 77),
        (Unavailable("x"), 69),
        (AlreadyOwned("x"), 69),
        (NotAdmitted("x"), 77),
        (HoldLost("x"), 75),
        (OutcomeUnknown("x"), 76),
        (Damaged("x"), 65),
        (InvariantViolated("x"), 70),
    ],
)
def test_each_error_has_its_code(error: FenceholdError, code: int) -> None:
    """The same for every command."""
    assert exit_of(error) == code


def test_no_error_ends_with_success() -> None:
    """Whatever is added to the tree."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FenceholdError)]
    assert all(exit_of(kind("x")) != Exit.OK for kind in kinds)


def test_an_error_is_one_sentence_and_a_code(capsys: pytest.CaptureFixture[str]) -> None:
    """No traceback."""

    def command() -> None:
        raise LockTimeout("a is busy")

    with pytest.raises(typer.Exit) as ended:
        guarded(command)()
    assert ended.value.exit_code == Exit.NO
    assert capsys.readouterr().err == "fencehold: a is busy\n"


@pytest.mark.parametrize("bug", [InvariantViolated("fences grow"), KeyError("missing")])
def test_a_bug_keeps_its_traceback(bug: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    """It must be reported, so it must be seen; its code is 70."""

    def command() -> None:
        raise bug

    with pytest.raises(typer.Exit) as ended:
        guarded(command)()
    assert ended.value.exit_code == Exit.INTERNAL
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "was_ready", "code"),
    [
        (OutcomeUnknown("fdatasync failed"), True, Exit.NO),
        (Unavailable("the disk is gone"), True, Exit.NO),
        (Unavailable("the disk is gone"), False, Exit.UNAVAILABLE),
        (InvariantViolated("fences grow"), True, Exit.INTERNAL),
        (OSError(13, "Permission denied"), False, Exit.UNAVAILABLE),
    ],
)
def test_a_server_that_had_to_stop_says_why(
    error: FenceholdError | OSError, was_ready: bool, code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    """A node that failed is 1; one that never served is not."""
    assert _failed(error, Config(), was_ready).exit_code == code
    assert capsys.readouterr().err.startswith("fencehold: ")


async def test_a_second_signal_ends_the_server_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever it was waiting for."""
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)

    serving = Serving(Config(), as_json=False, on_port=lambda _: None)
    serving._on_signal(signal.SIGTERM)
    assert ended == []
    serving._on_signal(signal.SIGTERM)
    assert ended == [128 + signal.SIGTERM]
