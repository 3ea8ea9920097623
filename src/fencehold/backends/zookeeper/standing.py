"""Standing: until when an ensemble certainly keeps a session, as far as its client can know.

A session is ended by the leader, `timeout` after it last heard of it. But a client talks to any member, and what
it is answered there proves little about the leader. What is relied on:

1. *The member a client talks to notes each request, and tells the leader with its answer to the leader's next
   ping*, of which there are two a tick. A session lasts two ticks at least; so a quarter of its timeout after it
   was answered, a request has been told of. Until then it is a *touch* that may be lost: the member may be cut
   off, and go on answering reads for as long as it takes to notice.
2. *What a member says to the leader arrives in order.* So a write that is answered, by the same connection, proves
   that what was told before it was sent did arrive. Reads and `sync` prove nothing: the one is answered by the
   member alone, the other by a leader that may have been deposed. A write is answered after a quorum had it; so no
   newer leader had begun when it was sent, and one that begins later gives every session its whole timeout anew.
3. *Beginning a session is a write of its own*, heard by the leader itself. Resuming one after a lost connection is
   heard by the leader, too, but is no write: the next write proves it. Touches by an older connection count for
   nothing.
4. So a session is trusted until `timeout` after the newest touch was *sent* that a later write has proved, less a
   margin for clocks that drift. The leader rounds up to its next tick, which is left out here.
"""

from collections import deque

from fencehold.locks.trust import NEVER, margin

_TOLD_AFTER = 1 / 4
"""Of the timeout: half a tick at the most, as a session lasts two ticks at the least."""
_APART = 1 / 32
"""Of the timeout: touches closer than this to the last one are not kept."""


class Standing:
    """Of one session."""

    def __init__(self) -> None:
        self.end = NEVER
        """Until when it is trusted, by the client's clock."""
        self.timeout = 0.0
        """What the servers agreed to."""
        self._touches: deque[tuple[float, float]] = deque()
        """When each is surely told, if a later write proves it, and when it was sent."""

    def on_begun(self, sent_at: float, timeout: float) -> None:
        """A session was asked for at `sent_at`, and is there."""
        self.timeout = timeout
        self.end = self._after(sent_at)

    def on_resumed(self, sent_at: float, now: float, timeout: float) -> None:
        """Another member took the session over; it may have agreed to another timeout."""
        self.timeout = timeout
        self.end = min(self.end, self._after(sent_at))
        self._touches.append((now, sent_at))

    def on_disconnected(self) -> None:
        """What was not proved by now never will be."""
        self._touches.clear()

    def on_answer(self, sent_at: float, now: float, *, is_write: bool) -> None:
        """A request that was handed over at `sent_at` was answered now."""
        touches = self._touches
        if is_write and touches and touches[0][0] <= sent_at:
            proved_at = touches[0][1]
            while touches and touches[0][0] <= sent_at:
                proved_at = max(proved_at, touches.popleft()[1])
            self.end = max(self.end, self._after(proved_at))
        if not touches or sent_at - touches[-1][1] >= _APART * self.timeout:
            touches.append((now + _TOLD_AFTER * self.timeout, sent_at))
            # One that is so old proves nothing for any time to come.
            while touches[0][1] < sent_at - self.timeout:
                touches.popleft()

    def _after(self, sent_at: float) -> float:
        return sent_at + self.timeout - margin(self.timeout)
