"""A grant of several parts, each made by a shard of its own: the grant of names of several shards.

1. It is trusted for as long as each of its parts is.
2. To lose one part is to lose all: work must not continue with some of the names. The other parts are released.
3. Each name has the fence of its part. There is none for all of them, and asking for one raises `UsageError`.
"""

from collections.abc import Callable, Sequence

from fencehold.errors import HoldLost, NotOwner, UsageError
from fencehold.locks.loss_reasons import UNANSWERED, LossReason, loss_kind
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant, State

_WORST = (State.LOST, State.RELEASED, State.JEOPARDY, State.HELD)


class JointGrant(Grant):
    """What was granted in several shards."""

    __slots__ = ("_release", "parts")

    def __init__(self, terms: Terms, parts: Sequence[Grant], release: Callable[[Grant], object]) -> None:
        """`release`: has a part released that is no longer wanted."""
        super().__init__(terms, 0, parts[0].trust)
        self.parts = tuple(parts)
        self._release = release
        for part in self.parts:
            part.on_lost = self._on_part_lost
        for part in self.parts:
            if part.ending:
                self._on_part_lost(part)

    def fences(self) -> dict[str, int]:
        return {name: part.fence for part in self.parts for name in part.terms.names}

    def only_fence(self) -> int:
        raise UsageError(
            f"{self.terms.label} are of several shards, and each has a fence of its own: pass hold.fences[name] "
            "to what that name protects"
        )

    def safe_for(self, now: float) -> float:
        return 0.0 if self.ending else min(part.safe_for(now) for part in self.parts)

    def state(self, now: float) -> State:
        if self.ending:
            return super().state(now)
        return min((part.state(now) for part in self.parts), key=_WORST.index)

    def why(self) -> HoldLost | NotOwner:
        if self.ending == "released":
            return NotOwner(f"{self.terms.label} were released before")
        reason = self.ending or UNANSWERED
        return HoldLost(f"{self.terms.label} are lost: {reason}", names=self.terms.names, fence=0, reason=reason)

    def on_releasing(self) -> None:
        """From now on it is not trusted, whatever becomes of its parts."""
        self.ending = "released"
        self.on_lost = None
        for part in self.parts:
            part.on_lost = None

    def _on_part_lost(self, lost: Grant) -> None:
        if self.ending:
            return
        for part in self.parts:
            part.on_lost = None
            if not part.ending:
                self._release(part)
        self.lose(LossReason(f"{lost.terms.label} is lost: {lost.ending}", loss_kind(lost.ending)))
