"""The pipeline: what is on the wire, what waits for its turn, and what a lost connection left unanswered.

1. Replies come in the order of the commands, so the next reply belongs to the oldest command without one.
2. At most `WINDOW` commands are on the wire; requests beyond wait their turn, in order.
   So they do while the server has to remember many answers for the sake of one that is repeated (`Session.kept`).
3. What a connection left unanswered is repeated on the next, in the order of ids.
"""

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fencehold.client.expected import DONE, QUEUED, SENT, Expected, Numbered, Request
from fencehold.client.housekeeping import Ready
from fencehold.client.requests import Acquire
from fencehold.client.session import Session

if TYPE_CHECKING:
    from fencehold.client.protocol import SessionProtocol

WINDOW = 1024
"""Requests on the wire at once: a quarter of what the server remembers for a session."""

REMEMBERED_MAX = 2 * WINDOW
"""Answers that the server is made to remember though they have arrived: half of what it does for a session."""


class Pipeline:
    """Commands under way. Decides no more than their order."""

    __slots__ = ("_quiet_since", "expected", "heard_at", "interrupted", "is_lone", "outbox", "unsent")

    def __init__(self) -> None:
        self.outbox: list[bytes] = []
        """What is to be sent."""
        self.expected: deque[Expected] = deque()
        """What was sent and is not answered."""
        self.unsent: deque[Request] = deque()
        self.interrupted: list[Request] = []
        """Sent on a connection that is gone, and not answered."""
        self.is_lone = False
        """Whether the last reply came alone and left nothing to wait for: what is asked next has no company."""
        self.heard_at = 0.0
        self._quiet_since = 0.0

    def send(self, request: Request, session: Session, now: float) -> None:
        """Put a request on the wire, under a new id if it has none."""
        if request.numbered and not request.id:
            request.take_id(session, now)
        request.stage = SENT
        expected = self.expected
        if not expected:
            self._quiet_since = now
        expected.append(request)
        self.outbox.append(request.encode(session, now))

    def expect(self, entry: Expected, words: bytes, now: float) -> None:
        """Put housekeeping on the wire. It does not wait its turn: there is little of it."""
        if not self.expected:
            self._quiet_since = now
        self.expected.append(entry)
        self.outbox.append(words)

    def pump(self, session: Session, now: float) -> None:
        """Send what waited for its turn, as far as there is room."""
        unsent = self.unsent
        while unsent and len(self.expected) < WINDOW and session.remembers() < REMEMBERED_MAX:
            request = unsent.popleft()
            if request.stage == DONE:
                continue
            if type(request) is Ready:
                request.finish(None)
            else:
                self.send(request, session, now)

    def repeat(self, session: Session, now: float) -> None:
        """Ask again what was asked before and is not answered, or only by a place in the queue."""
        for request in by_id([*self.interrupted, *session.waiting.values()]):
            stage = request.stage
            if stage == DONE:
                continue
            if isinstance(request, Numbered):
                request.repeated = True
            self.send(request, session, now)
            if stage == QUEUED:
                # It is found among those that wait: an answer may be pushed before this is replied to.
                request.stage = QUEUED
        self.interrupted = []
        # Whatever else was kept is over: it was answered by a push, or given up.
        session.keep_only({entry.id for entry in self.expected} | session.cancels.keys())

    def find_acquire(self, request_id: int) -> Acquire | None:
        """The acquire of this id that was sent and has not been replied to."""
        sent = (entry for entry in self.expected if isinstance(entry, Acquire) and entry.stage == SENT)
        return next((acquire for acquire in sent if acquire.id == request_id), None)

    def interrupt(self, protocol: "SessionProtocol") -> None:
        """The connection is gone."""
        self.outbox.clear()
        expected, self.expected = self.expected, deque()
        for entry in expected:
            entry.on_interrupted(protocol)

    def silent_since(self) -> float | None:
        """Since when nothing has been heard though something should be; None if nothing should."""
        return max(self.heard_at, self._quiet_since) if self.expected else None

    def take_sent(self, session: Session) -> list[Request]:
        """All that was sent in this session and is not answered for good, in the order of ids."""
        expected = [entry for entry in self.expected if isinstance(entry, Request) and entry.stage == SENT]
        taken = by_id([*self.interrupted, *session.waiting.values(), *expected])
        self.expected.clear()
        self.interrupted = []
        session.waiting.clear()
        return [request for request in taken if request.stage != DONE]

    def take_all(self, session: Session) -> list[Request]:
        """All that is not answered, sent or not."""
        taken = self.take_sent(session) + [request for request in self.unsent if request.stage != DONE]
        self.unsent.clear()
        return taken


def by_id(requests: Iterable[Request]) -> list[Request]:
    """In the order of ids."""
    return sorted(requests, key=lambda request: request.id)
