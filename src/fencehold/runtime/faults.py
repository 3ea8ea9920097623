"""Named points in the code where a test may make something go wrong.

The code says `faults.reach("append.stored")` where a failure would matter; nothing happens there unless a test
hands in a `Faults` of its own that raises, counts or holds up. The rules:

1. A point is named `<what>.<moment>`, and stands where the outside world could really fail.
2. A point raises what its surroundings would raise: `append.before` an `Unavailable`, since nothing happened
   yet; `append.stored` an `OutcomeUnknown`, since the entry is there and only the answer is lost.
"""


class Faults:
    """No fault ever. Tests override `reach`."""

    __slots__ = ()

    def reach(self, point: str) -> None:
        """Pass the point, or raise what would have gone wrong there."""


NO_FAULTS = Faults()
