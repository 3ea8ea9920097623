"""Shards together: what must be true of names whose slots move, entry by entry, whichever shard stored it.

Entries of all shards are told in the order in which they were durable. The right to grant a name is in one place:

1. a fence of a name is above all that any shard gave away of it before (G1);
2. when a name is granted, no other shard has it held, delayed or kept (G2);
3. when a name is granted, nobody waits for it in another shard, but where its slot is still to arrive (G4);
4. when all faults are over, every slot is where the newest map says, and open there.
"""

from bisect import bisect_left
from collections.abc import Sequence

from fencehold.core.state import State
from fencehold.placement.slots import slot_of
from tests.simulation.history import History
from tests.simulation.story import Grant, Story, Violation


class Moves:
    """Follows the stories of all shards."""

    def __init__(self, history: History, stories: Sequence[Story]) -> None:
        self._stories = tuple(stories)
        self._faults = [fault.at_ns for fault in history.faults]
        self._newest: dict[str, int] = {}
        """The greatest fence of each name so far, in any shard."""
        self._began_ns = 0
        self._known = 1
        self.violations: list[Violation] = []
        self.count = 0
        """Maps that were taken."""
        self.struck = 0
        """Those in the middle of which something failed."""

    def look(self, at_ns: int, shard: int) -> None:
        """An entry of a shard was durable then, and is told."""
        story = self._stories[shard]
        if len(self._stories) > 1:
            # By their fences: an entry's grants are not noted in their order, which the shard's own story judges.
            for grant in sorted(story.latest, key=lambda grant: grant.granted.fence):
                self._judge(at_ns, shard, grant)
            self._count(at_ns)

    def _judge(self, at_ns: int, shard: int, grant: Grant) -> None:
        fence = grant.granted.fence
        for name in grant.granted.names:
            if fence <= self._newest.get(name, 0):
                self._break("G1", at_ns, f"shard {shard} gave {name} away with {fence} after {self._newest[name]}")
            self._newest[name] = max(fence, self._newest.get(name, 0))
            for other, story in enumerate(self._stories):
                if other != shard:
                    self._judge_other(
                        at_ns, f"shard {shard} gave {name} away with {fence} while", name, other, story
                    )

    def _judge_other(self, at_ns: int, what: str, name: str, other: int, story: Story) -> None:
        state = story.machine.state
        if state.holders(name) or name in state.delays or name in state.kept:
            self._break("G2", at_ns, f"{what} shard {other} had it")
        if name in state.queues and slot_of(name) not in state.arriving:
            self._break("G4", at_ns, f"{what} {list(state.queues[name])} waited in shard {other}")

    def _break(self, guarantee: str, at_ns: int, what: str) -> None:
        self.violations.append(Violation(guarantee, at_ns, what))

    def _count(self, at_ns: int) -> None:
        newest = _version(self._stories[0].machine.state)
        if newest > self._known:
            self.count += newest - self._known
            self._known, self._began_ns = newest, at_ns
        if self._began_ns and self.is_settled():
            struck = bisect_left(self._faults, at_ns) - bisect_left(self._faults, self._began_ns)
            self.struck += struck > 0
            self._began_ns = 0

    def is_settled(self) -> bool:
        """Whether every shard has the newest map, and has done what it says."""
        states = [story.machine.state for story in self._stories]
        return len({_version(state) for state in states}) == 1 and not any(
            state.draining or state.arriving for state in states
        )

    def end(self, at_ns: int) -> None:
        """No entry follows."""
        if len(self._stories) > 1 and not self.is_settled():
            states = [story.machine.state for story in self._stories]
            told = [(_version(state), len(state.draining), len(state.arriving)) for state in states]
            what = f"slots are still on their way: version, leaving and arriving by shard are {told}"
            self._break("moves", at_ns, what)


def _version(state: State) -> int:
    return 1 if state.placed is None else state.placed.version
