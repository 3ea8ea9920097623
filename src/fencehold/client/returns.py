"""Returns: what tasks and threads have released in one shard, and which that shard may not know yet.

On one connection a release arrives before later requests. Over the connections to two shards it may not:
for a moment the service would see a task that holds something in one shard and waits in another, though it is
about to hold nothing. That could look like a deadlock, and is none. So a task that acquires while its release to
another shard is not answered does so as a new owner: what it holds elsewhere is not attributed to it while it
waits. A release that may have failed counts as in flight for as long as the hold could last.
"""

import asyncio
from functools import partial

from fencehold.errors import OutcomeUnknown, Unavailable
from fencehold.locks.clock import Clock
from fencehold.locks.trust import Grant, Trust

_OWNERS_MAX = 4_096
"""Owners that are remembered before those without a pending release are pruned."""


class Returns:
    """The releases of one client that were not answered, by owner."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._open: dict[bytes, list[tuple[Trust, float | None]]] = {}
        """By owner: in which session; and until when it counts, None: until it is answered."""

    def begin(self, grant: Grant, released: "asyncio.Future[None]") -> None:
        """A grant is being released."""
        if grant.owner:
            self._open.setdefault(grant.owner, []).append((grant.trust, None))
            released.add_done_callback(partial(self._on_done, grant))

    def has_elsewhere(self, owner: bytes, here: Trust) -> bool:
        """Whether a release of this owner may not have arrived, other than in the session of its new request."""
        if owner not in self._open:
            return False
        self._prune(owner)
        return any(trust is not here for trust, _ in self._open.get(owner, ()))

    def _on_done(self, grant: Grant, released: "asyncio.Future[None]") -> None:
        known = self._open[grant.owner]
        known.remove((grant.trust, None))
        if released.cancelled() or isinstance(released.exception(), Unavailable | OutcomeUnknown):
            known.append((grant.trust, self._clock() + grant.trust.ttl))
        for owner in list(self._open) if len(self._open) > _OWNERS_MAX else (grant.owner,):
            self._prune(owner)

    def _prune(self, owner: bytes) -> None:
        now = self._clock()
        left = [each for each in self._open[owner] if each[1] is None or each[1] > now]
        if left:
            self._open[owner] = left
        else:
            del self._open[owner]
