"""Shards together: what must be true of the policy, which is the first shard's and followed by the others (G13).

Entries of all shards are told in the order in which they were durable. That nothing is granted which the policy at
the position of its shard forbids is judged by the story of each shard. Besides:

1. a shard follows what the first one has had before, whole and as it was;
2. it never goes back to an older one;
3. when all faults are over, every shard has the first one's.
"""

from collections.abc import Sequence

from fencehold.core.policy import Policy
from tests.simulation.story import Story, Violation


class Policies:
    """Follows the stories of all shards."""

    def __init__(self, stories: Sequence[Story]) -> None:
        self._stories = tuple(stories)
        self._latest = [story.machine.state.policy for story in stories]
        self._had = {self._latest[0].revision: self._latest[0]}
        """All that the first shard has had, by revision."""
        self.violations: list[Violation] = []
        self.followed = 0
        """How many times a shard took over a policy of the first."""

    def look(self, at_ns: int, shard: int) -> None:
        """An entry of a shard was durable then, and is told."""
        before, policy = self._latest[shard], self._stories[shard].machine.state.policy
        if policy is before:
            return
        self._latest[shard] = policy
        if policy.revision < before.revision:
            self._break(at_ns, f"shard {shard} went back to policy {policy.revision} after {before.revision}")
        self.followed += bool(shard)
        if not shard:
            self._had[policy.revision] = policy
        elif self._had.get(policy.revision, Policy()) != policy:
            self._break(at_ns, f"shard {shard} has a policy {policy.revision} that the first shard never had")

    def end(self, at_ns: int) -> None:
        """No entry follows."""
        revisions = [policy.revision for policy in self._latest]
        if len(set(revisions)) > 1:
            self._break(at_ns, f"the policies of the shards have the revisions {revisions}")

    def _break(self, at_ns: int, what: str) -> None:
        self.violations.append(Violation("G13", at_ns, what))
