"""Fault points do nothing unless a test says so."""

import pytest

from fencehold.errors import Unavailable
from fencehold.runtime.faults import NO_FAULTS, Faults


def test_a_point_is_passed_by_default() -> None:
    """In production every point is a call that returns."""
    NO_FAULTS.reach("append.before")


def test_a_test_may_raise_at_a_point_by_its_name() -> None:
    """A subclass decides what goes wrong where."""

    class Broken(Faults):
        def reach(self, point: str) -> None:
            if point == "append.before":
                raise Unavailable(point)

    Broken().reach("append.stored")
    with pytest.raises(Unavailable):
        Broken().reach("append.before")
