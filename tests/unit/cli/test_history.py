"""`fencehold history`: what it says of a past that is not here."""

from typing import Any

import pytest

from fencehold.cli.history import _elsewhere
from fencehold.drivers.resp.wire import error


class _Cell:
    """A server that answers with this error."""

    def __init__(self, code: str, detail: str) -> None:
        self._error = error(code, detail)

    def call(self, *_: Any) -> None:
        raise self._error


@pytest.mark.parametrize(("code", "is_said"), [("ELSEWHERE", True), ("DENIED", False), ("UNAVAILABLE", False)])
def test_a_name_of_another_cell_is_not_said_to_have_no_past(code: str, is_said: bool) -> None:
    """What its home granted is known there: it says where that is. Who may not see it is told no more."""
    cell: Any = _Cell(code, "us us.example:7420")
    said = _elsewhere(cell, "us.x")
    assert ("at home in cell us: connect to us.example:7420" in said) is is_said
