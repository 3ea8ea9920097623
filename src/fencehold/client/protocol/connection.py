"""The connection as the session protocol decides about it: which node, when to try again, and what is on the wire.

1. A connection that may carry the session is parked, not closed, until another does.
2. Replies come in the order of the commands, so the next reply belongs to the oldest command without one.
3. At most `WINDOW` commands are in flight; requests beyond wait their turn, in order.
   They also wait while the server has to remember many answers because of one that is repeated (`Session.kept`).
4. What a connection left unanswered is repeated on the next, in the order of ids.
5. A request that got BUSY rests for the time given in the reply, and is sent again; at each further BUSY it rests
   twice as long (exponential back-off), never less than `REST_S_MIN` nor more than `REST_S_MAX`. Up to half of
   that is added at random (jitter): clients that got the same reply do not come back in one wave.
6. Nothing rests beyond the time that its caller waits: it is handled then.
"""

from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from fencehold.client.endpoints import SILENT, Rotation
from fencehold.client.protocol.ledger import Session
from fencehold.client.protocol.requests import (
    DONE,
    QUEUED,
    SENT,
    UNSENT,
    Acquire,
    Expected,
    Numbered,
    Ready,
    Request,
)
from fencehold.drivers.address import Endpoint
from fencehold.drivers.resp.wire import command
from fencehold.errors import Overloaded, Unavailable

if TYPE_CHECKING:
    from fencehold.client.protocol.session import SessionProtocol

NO_PROTOCOL = "it does not speak this protocol: is it a Fencehold server, and does it want TLS (fenceholds://)?"
HUNG_UP = "it closed the connection before it answered: does it want TLS (fenceholds://)?"
LOST = "the connection was lost"
UNCERTAIN = "a call was interrupted while it was sent or answered"
WINDOW = 1024
"""Requests in flight at once: a quarter of what the server remembers for a session."""

REMEMBERED_MAX = 2 * WINDOW
"""Answers that the server has to remember though they have arrived: half of what it does for a session."""
REST_S_MIN = 0.02
REST_S_MAX = 5.0
_JITTER = 0.5
"""Jitter: how much longer a rest may be, as a part of it."""
_DOUBLINGS_MAX = 16
"""The exponent has a bound, too: a service may be busy for weeks."""


class Settings(NamedTuple):
    """What holds for the whole life of a client. Durations are seconds."""

    ttl: float = 30.0
    """A session ends that long after its last keep-alive."""
    grace: float = 1.0
    """…and that long after its connection was closed, unless it is resumed."""
    connect_timeout: float = 5.0
    """How long a call waits for the service to be reached."""
    long_wait: float = inf
    """How long an acquire waits before the log warns."""
    name: str = ""
    meta: str = ""
    user: str = ""
    secret: str = ""
    tier: str = ""
    """Which of the service's machines to use; empty: its default."""
    shard: int | None = None
    """Which of its shards; None: its default."""

    def __repr__(self) -> str:
        return f"Settings(name={self.name!r}, user={self.user!r}, ttl={self.ttl})"

    def hello(self) -> bytes:
        """The greeting."""
        words: list[str | int] = ["HELLO", 3]
        if self.user or self.secret:
            words += ["AUTH", self.user or "default", self.secret]
        if self.name:
            words += ["SETNAME", self.name]
        if self.tier:
            words += ["TIER", self.tier]
        if self.shard is not None:
            words += ["SHARD", self.shard]
        return command(*words)

    def opening(self) -> bytes:
        """The command that opens a session."""
        words: list[str | int] = ["SESSION.OPEN", "TTL", round(self.ttl * 1000), "GRACE", round(self.grace * 1000)]
        if self.meta:
            words += ["META", self.meta]
        return command(*words)


class Connect(NamedTuple):
    """Connect to this node. Then call `on_connected`, or `on_disconnected` if it cannot be done."""

    endpoint: Endpoint


class Drop(NamedTuple):
    """Drop the connection, or the attempt to make it: what it still receives is ignored."""

    park: bool
    """Leave it open until the next `Sweep`: closing it might cost the session its time."""


class Sweep(NamedTuple):
    """Close what was parked."""


Order: TypeAlias = Connect | Drop | Sweep


class Phase(Enum):
    """The state of the connection."""

    IDLE = "no connection is wanted"
    PAUSED = "the next try is due later"
    CONNECTING = "a connection is being made"
    GREETING = "connected; no session yet"
    ATTACHED = "the connection carries the session"
    CLOSED = "the client is closed"


class NodeConnection:
    """The connection as far as the protocol decides about it: by orders to the shell."""

    __slots__ = (
        "_attempt_until",
        "_busy",
        "_open_at",
        "_retry_at",
        "_rotation",
        "_timeout",
        "busy_times",
        "down_since",
        "orders",
        "phase",
    )

    def __init__(self, rotation: Rotation, timeout: float) -> None:
        self._rotation = rotation
        self._timeout = timeout
        self._attempt_until = self._retry_at = self._open_at = inf
        self._busy: Overloaded | None = None
        """What the node that was tried last replied, if it is too busy for one more session now."""
        self.busy_times = 0
        """How often a node was too busy since a connection carried the session."""
        self.orders: list[Order] = []
        self.phase = Phase.IDLE
        self.down_since = 0.0
        """When a connection last carried the session."""

    def connect(self, now: float) -> None:
        """Try the next node."""
        self.phase = Phase.CONNECTING
        self._retry_at = self._open_at = inf
        self._attempt_until = now + self._turn()
        self.orders.append(Connect(self._rotation.take(now)))

    def retry(self, now: float, least_s: float = 0.0) -> None:
        """The last try failed: pause, for at least so long, then try the next node."""
        self.phase = Phase.PAUSED
        self._attempt_until = self._open_at = inf
        self._retry_at = now + max(self._rotation.pause(), least_s)

    def on_busy(self, busy: Overloaded) -> None:
        """The node is too busy for the greeting, or for one more session."""
        self._busy = busy
        self.busy_times += 1
        self._rotation.on_trouble(str(busy))

    def open_later(self, now: float, rest_s: float) -> None:
        """Open the session again on the same connection: another would only be more work for the node."""
        self._open_at = now + rest_s
        self._attempt_until = self._open_at + self._turn()

    def is_to_open(self, now: float) -> bool:
        """Whether the session is to be opened again now."""
        if now < self._open_at:
            return False
        self._open_at = inf
        return True

    def drop(self, *, park: bool) -> None:
        """Drop the connection, if there is one."""
        self.orders.append(Drop(park))

    def rest(self, phase: Phase) -> None:
        """Try nothing more by itself."""
        self.phase = phase
        self._attempt_until = self._retry_at = self._open_at = inf

    def on_connected(self) -> None:
        """The connection ordered last is made."""
        self.phase = Phase.GREETING

    def on_attached(self) -> None:
        """The connection carries the session: nothing that is parked can any more."""
        self._rotation.on_success()
        self._busy, self.busy_times = None, 0
        self.rest(Phase.ATTACHED)
        self.orders.append(Sweep())

    def turn(self) -> float:
        """How long one node may be silent before another is tried; the whole timeout if there is no other.

        Short enough that every node is tried, and the first a second time, before a request gives up.
        """
        nodes = len(self._rotation)
        return self._timeout / (nodes + 1) if nodes > 1 else self._timeout

    def _turn(self) -> float:
        """How long a try may take."""
        return self._timeout / (len(self._rotation) + 1)

    def on_silent(self, now: float) -> None:
        """The node does not respond: it may be stopped, so it is not the first to be tried again."""
        self._busy = None
        self._rotation.on_silent(now)
        self._rotation.on_trouble(SILENT)

    def on_trouble(self, why: str) -> None:
        """The node was not reached, or does not serve, for this reason."""
        self._busy = None
        self._rotation.on_trouble(why)

    @property
    def patience(self) -> float:
        """How long a call waits for the service to be reached."""
        return self._timeout

    @property
    def trouble(self) -> str:
        """Why there is no connection to the node that was tried last."""
        return self._rotation.trouble()

    @property
    def node(self) -> str:
        """The node that was tried last."""
        return str(self._rotation.last)

    def unreached(self) -> str:
        """That the service was not reached in time, and why."""
        return f"cannot reach {self._rotation.url} within {self._timeout:g} s: {self._rotation.troubles()}"

    def unavailable(self) -> Unavailable:
        """The error for a caller that has waited for the service long enough."""
        if self._busy is None:
            return Unavailable(self.unreached())
        tried = f"{self._rotation.url} opened no session within {self._timeout:g} s"
        return Overloaded(f"{self._busy}; {tried}", retry_after_s=self._busy.retry_after_s)

    def on_leader(self, text: str) -> None:
        """A node said who leads."""
        self._rotation.on_leader(text)

    def has_hung(self, now: float) -> bool:
        """Whether the current attempt has timed out."""
        return now >= self._attempt_until

    def is_due(self, now: float) -> bool:
        """Whether the pause is over."""
        return now >= self._retry_at

    def give_up_at(self, asked_at: float) -> float:
        """When a request that was made then has waited for the service long enough."""
        return max(asked_at, self.down_since) + self._timeout

    def next_deadline(self) -> float:
        """When something is due here."""
        return min(self._attempt_until, self._retry_at, self._open_at)


class Pipeline:
    """Commands in flight. Decides only their order."""

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
        """Whether the last reply came alone and left nothing pending: the next request is alone."""
        self.heard_at = 0.0
        self._quiet_since = 0.0

    def send(self, request: Request, session: Session, now: float) -> None:
        """Send a request, under a new id if it has none."""
        if request.numbered and not request.id:
            request.take_id(session, now)
        request.stage = SENT
        expected = self.expected
        if not expected:
            self._quiet_since = now
        expected.append(request)
        self.outbox.append(request.encode(session, now))

    def expect(self, entry: Expected, words: bytes, now: float) -> None:
        """Send a request of the session itself. It does not wait its turn: there are few of them."""
        if not self.expected:
            self._quiet_since = now
        self.expected.append(entry)
        self.outbox.append(words)

    def adopt(self, request: Request, now: float) -> None:
        """Wait for the reply to a request that its caller has sent."""
        if not self.expected:
            self._quiet_since = now
        self.expected.append(request)

    def pump(self, session: Session, now: float) -> None:
        """Send requests that waited for their turn, as far as there is room."""
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
        """Repeat requests that are not answered, or only by a place in the queue."""
        for request in by_id([*self.interrupted, *session.waiting.values()]):
            stage = request.stage
            if stage == DONE:
                continue
            if isinstance(request, Numbered):
                request.repeated = True
            self.send(request, session, now)
            if stage == QUEUED:
                # It is found among the waiting ones: an answer may be pushed before this is replied to.
                request.stage = QUEUED
        self.interrupted = []
        # Whatever else was kept is over: it was answered by a push, or withdrawn.
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
        """Since when nothing was received though a reply is pending; None if none is."""
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


class Backoff:
    """Requests that rest after BUSY, by the time at which they are handled again."""

    __slots__ = ("_draw", "_order", "_resting")

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        """A random number between 0 and 1."""
        self._resting: list[tuple[float, int, Expected]] = []
        """A heap."""
        # Requests due at the same time are sent again in the order of their replies.
        self._order = count()

    def __len__(self) -> int:
        return len(self._resting)

    def rest_of(self, busy: Overloaded, times: int) -> float:
        """How many seconds to rest after the `times`-th BUSY, the first being 1."""
        least = max(busy.retry_after_s, REST_S_MIN) * 2.0 ** min(times - 1, _DOUBLINGS_MAX)
        return min(least, REST_S_MAX) * (1 + _JITTER * self._draw())

    def rest(self, entry: Expected, until: float) -> None:
        """Let something rest until then."""
        heappush(self._resting, (until, next(self._order), entry))

    def next_at(self) -> float:
        """When something has rested enough."""
        return self._resting[0][0] if self._resting else inf

    def wake(self, protocol: "SessionProtocol") -> None:
        """Send again what has rested enough; what no caller waits for any more is dropped."""
        now = protocol._now
        due: list[Expected] = []
        # First taken, then sent: what gets BUSY again during this loop waits for the next time.
        while self._resting and self._resting[0][0] <= now:
            due.append(heappop(self._resting)[2])
        for entry in due:
            entry.on_rested(protocol)

    def requests(self) -> list[Request]:
        """Requests that rest, and that are not over."""
        found = [entry for _, _, entry in self._resting if isinstance(entry, Request)]
        return [request for request in found if request.stage != DONE]

    def find_acquire(self, request_id: int) -> Acquire | None:
        """The acquire that rests under this id, which the server may know."""
        known = (request for request in self.requests() if isinstance(request, Acquire))
        return next((acquire for acquire in known if acquire.id == request_id and acquire.stage == SENT), None)

    def interrupt(self) -> list[Request]:
        """The connection is gone: return what was sent before and may have been done. It is repeated on the next.

        So are requests of the session itself, and queued ones. What was never processed keeps resting.
        """
        doubted = [request for request in self.requests() if request.stage == SENT]
        self._keep(lambda entry: isinstance(entry, Request) and entry.stage == UNSENT)
        return doubted

    def take_bound(self) -> list[Request]:
        """Take all that is bound to this session. What is left can be sent in another."""
        bound = [each for each in self.requests() if each.stage == SENT or _is_about_a_grant(each)]
        taken = set(map(id, bound))
        self._keep(lambda entry: isinstance(entry, Request) and entry.stage == UNSENT and id(entry) not in taken)
        return bound

    def take_all(self) -> list[Request]:
        """Take everything; return the requests, except for those that are queued."""
        taken = [request for request in self.requests() if request.stage != QUEUED]
        self._resting.clear()
        return taken

    def _keep(self, wanted: Callable[[Expected], bool]) -> None:
        self._resting = [each for each in self._resting if wanted(each[2])]
        heapify(self._resting)


def _is_about_a_grant(request: Request) -> bool:
    return isinstance(request, Numbered) and not isinstance(request, Acquire)
