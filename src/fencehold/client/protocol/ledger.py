"""The client's ledger of one session: what is held, what waits, and which answers have arrived.

1. Request ids grow within the session; replies come in the order of the commands, so one number says up to which
   id they have arrived, and every request carries it.
   An id that may have to be sent once more, in a repetition or a withdrawal that got BUSY, is kept: nothing is
   acknowledged from it on.
2. A pushed answer is settled by its id, a few at a time.
3. A withdrawal is repeated until it is answered.
4. A grant is held under its fence, which no other grant has.
"""

from bisect import bisect_left, insort
from collections.abc import Set
from heapq import heapify, heappop, heappush
from math import inf
from typing import TYPE_CHECKING, Any

from fencehold.drivers.resp.wire import number
from fencehold.locks.loss_reasons import TTL_OVER
from fencehold.locks.trust import Grant, Trust

if TYPE_CHECKING:
    from fencehold.client.protocol.requests import Acquire

ENDS_SPARE = 64
"""Ends of holds that are kept though the holds are gone, before they are pruned."""


class Session:
    """The state of one session. A new one is begun when the server says that the old has ended."""

    __slots__ = (
        "answered",
        "answered_id",
        "arrived_id",
        "cancels",
        "ends",
        "holds",
        "id",
        "kept",
        "last_id",
        "overdue",
        "returning",
        "secret",
        "trust",
        "unsettled",
        "waiting",
    )

    def __init__(self, ttl: float, grace: float) -> None:
        self.id = 0
        """0 until it is opened."""
        self.secret = b""
        self.trust = Trust(ttl, grace)
        self.last_id = 0
        self.answered_id = 0
        self.answered = number(0)
        """`answered_id` as the argument every request ends with."""
        self.arrived_id = 0
        """The last id whose reply has come, while some id is kept."""
        self.kept: list[int] = []
        """Ids that must not be acknowledged yet, in order."""
        self.holds: dict[int, Grant] = {}
        self.returning: set[int] = set()
        """Fences whose release got BUSY."""
        self.waiting: dict[int, Acquire] = {}
        """Acquires that are queued, and whose answer will be pushed."""
        self.cancels: dict[int, Grant | None] = {}
        """Withdrawals not answered yet, oldest first, with what was granted, if that is known."""
        self.unsettled: list[int] = []
        """Requests whose pushed answer has arrived, and which the server still remembers."""
        self.ends: list[tuple[float, int]] = []
        """A heap of when holds with a ttl of their own end, with their fences; some are released before."""
        self.overdue: dict[int, Grant] = {}
        """Lost because their own ttl ran out here, a margin before the server ends them."""

    def on_opened(self, reply: dict[bytes, Any], sent_at: float) -> None:
        """The session was opened, or resumed, by a command sent at `sent_at`."""
        self.id = reply[b"session"]
        self.secret = reply.get(b"secret", self.secret)
        self.trust.ttl = reply[b"ttl_ms"] / 1000
        self.trust.grace = reply[b"grace_ms"] / 1000
        self.trust.attached = True
        self.trust.on_renewed(sent_at, reply[b"at"])

    def acknowledge(self, request_id: int, encoded: bytes) -> None:
        """The reply to this request has arrived."""
        # A repetition may be older than what has been acknowledged since.
        if request_id <= self.answered_id:
            return
        if self.kept:
            self._acknowledge_below_kept(request_id)
        else:
            self.answered_id = request_id
            self.answered = encoded

    def unacknowledge(self, request_id: int) -> None:
        """The reply to the last request has not arrived after all. The server was not told that it had."""
        self.answered_id = request_id - 1
        self.answered = number(self.answered_id)

    def keep(self, request_id: int) -> None:
        """Acknowledge nothing from this id on, until `let_go`."""
        if request_id <= self.answered_id or request_id in self.kept:
            return
        if not self.kept:
            self.arrived_id = self.answered_id
        insort(self.kept, request_id)

    def let_go(self, request_id: int) -> None:
        """This id will not be sent again."""
        at = bisect_left(self.kept, request_id)
        if at < len(self.kept) and self.kept[at] == request_id:
            del self.kept[at]
            self._acknowledge_arrived()

    def keep_only(self, ids: Set[int]) -> None:
        """Of the ids that are kept, only these may be sent again."""
        for request_id in [each for each in self.kept if each not in ids]:
            self.let_go(request_id)

    def remembers(self) -> int:
        """How many answers the server may have to remember because some id is kept."""
        return self.last_id - self.answered_id if self.kept else 0

    def _acknowledge_below_kept(self, request_id: int) -> None:
        self.arrived_id = max(self.arrived_id, request_id)
        # For one that was withdrawn, the answer to the withdrawal counts.
        if request_id not in self.cancels:
            self.let_go(request_id)
        self._acknowledge_arrived()

    def _acknowledge_arrived(self) -> None:
        arrived = min(self.arrived_id, self.kept[0] - 1) if self.kept else self.arrived_id
        if arrived > self.answered_id:
            self.answered_id = arrived
            self.answered = number(arrived)

    def on_granted(self, request: "Acquire", reply: dict[bytes, Any]) -> Grant:
        """Record what an acquire was granted."""
        fence: int = reply[b"fence"]
        grant = request.grant = self.holds[fence] = Grant(request.terms, fence, self.trust)
        if reply[b"own_ttl"]:
            self.limit(grant, reply)
        return grant

    def limit(self, grant: Grant, reply: dict[bytes, Any]) -> None:
        """Place the end of a grant on the client's clock, from the reply that granted or extended it."""
        grant.limit(self.trust.place(reply[b"at"] + reply[b"ttl_ms"]) if reply[b"own_ttl"] else inf)
        self.watch_end(grant)

    def watch_end(self, grant: Grant) -> None:
        """The end of a grant's own ttl was moved."""
        if grant.own_end == inf:
            return
        if len(self.ends) > 2 * len(self.holds) + ENDS_SPARE:
            # Most are of holds that were released long before their end.
            ends = [(held.own_end, fence) for fence, held in self.holds.items() if held.own_end < inf]
            heapify(ends)
            self.ends = ends
        heappush(self.ends, (grant.own_end, grant.fence))

    def next_end(self) -> float:
        """When the next hold, or all of them, will be lost unless the server responds."""
        if not self.holds:
            return inf
        return min(self.trust.end, self.ends[0][0] if self.ends else inf)

    def lose_due(self, now: float) -> list[Grant]:
        """Lose the holds whose own ttl has run out. The server ends them by itself, a margin later.

        Of those returned this is not certain: an extension of theirs was not answered.
        """
        uncertain: list[Grant] = []
        while self.ends and self.ends[0][0] <= now:
            _, fence = heappop(self.ends)
            grant = self.holds.get(fence)
            # An extended hold is in the heap again, with its later end.
            if grant is not None and grant.own_end <= now:
                del self.holds[fence]
                if grant.extensions:
                    uncertain.append(grant)
                # A release is a clean end, after which no delay is kept: such a hold is left to run out.
                elif not grant.terms.is_delayed:
                    self.overdue[fence] = grant
                grant.lose(TTL_OVER)
        return uncertain

    def take_overdue(self) -> list[Grant]:
        """What was lost because its own ttl ran out, and may still count at the server."""
        overdue = list(self.overdue.values())
        self.overdue.clear()
        return overdue

    def lose_all(self, reason: str) -> list[Grant]:
        """Lose all holds at once, and return them."""
        lost = list(self.holds.values())
        self.holds.clear()
        self.ends.clear()
        for grant in lost:
            grant.lose(reason)
        return lost
