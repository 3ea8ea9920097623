"""Reaching the service: which connection is wanted, which is being made, and when to try again."""

from enum import Enum
from math import inf

from fencehold.client.endpoints import SILENT, Rotation
from fencehold.client.orders import Connect, Drop, Order, Sweep
from fencehold.errors import Overloaded, Unavailable

NO_PROTOCOL = "it does not speak this protocol: is it a Fencehold server, and does it want TLS (fenceholds://)?"
HUNG_UP = "it closed the connection before it answered: does it want TLS (fenceholds://)?"
LOST = "the connection was lost"


class Phase(Enum):
    """Where the connection stands."""

    IDLE = "no connection is wanted"
    PAUSED = "the next try is due later"
    CONNECTING = "a connection is being made"
    GREETING = "connected; no session yet"
    ATTACHED = "the connection carries the session"
    CLOSED = "the client is closed"


class Reach:
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
        """What the node that was tried last said, if it has no time for one more session now."""
        self.busy_times = 0
        """How often one said so since a connection carried the session."""
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
        """The last try failed: pause, for so long at the least, then try the next node."""
        self.phase = Phase.PAUSED
        self._attempt_until = self._open_at = inf
        self._retry_at = now + max(self._rotation.pause(), least_s)

    def on_busy(self, busy: Overloaded) -> None:
        """The node has no time for the greeting, or for one more session."""
        self._busy = busy
        self.busy_times += 1
        self._rotation.on_trouble(str(busy))

    def open_later(self, now: float, rest_s: float) -> None:
        """Ask for the session again on the same connection: another would only be more to do for the node."""
        self._open_at = now + rest_s
        self._attempt_until = self._open_at + self._turn()

    def is_to_open(self, now: float) -> bool:
        """Whether the session is to be asked for again now."""
        if now < self._open_at:
            return False
        self._open_at = inf
        return True

    def drop(self, *, park: bool) -> None:
        """Turn away from the connection, if there is one."""
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
        """How long one node may keep silent before another is tried; all of it if there is no other.

        Short enough that every node gets its turn, and the first a second one, before a request gives up.
        """
        nodes = len(self._rotation)
        return self._timeout / (nodes + 1) if nodes > 1 else self._timeout

    def _turn(self) -> float:
        """How long a try may take."""
        return self._timeout / (len(self._rotation) + 1)

    def on_silent(self, now: float) -> None:
        """The node says nothing: it may be stopped, so it is not the one to be tried first again."""
        self._busy = None
        self._rotation.on_silent(now)
        self._rotation.on_trouble(SILENT)

    def on_trouble(self, why: str) -> None:
        """The node was not reached, or serves nobody, for this reason."""
        self._busy = None
        self._rotation.on_trouble(why)

    @property
    def patience(self) -> float:
        """How long a call waits for the service to be reached."""
        return self._timeout

    @property
    def trouble(self) -> str:
        """Why the node that was tried last is not connected to."""
        return self._rotation.trouble()

    @property
    def node(self) -> str:
        """The node that was tried last."""
        return str(self._rotation.last)

    def unreached(self) -> str:
        """That the service was not reached in time, and why."""
        return f"cannot reach {self._rotation.url} within {self._timeout:g} s: {self._rotation.troubles()}"

    def unavailable(self) -> Unavailable:
        """The error for whoever has waited for the service long enough."""
        if self._busy is None:
            return Unavailable(self.unreached())
        tried = f"{self._rotation.url} opened no session within {self._timeout:g} s"
        return Overloaded(f"{self._busy}; {tried}", retry_after_s=self._busy.retry_after_s)

    def on_leader(self, text: str) -> None:
        """A node said who leads."""
        self._rotation.on_leader(text)

    def has_hung(self, now: float) -> bool:
        """Whether the attempt under way has had its time."""
        return now >= self._attempt_until

    def is_due(self, now: float) -> bool:
        """Whether the pause is over."""
        return now >= self._retry_at

    def give_up_at(self, asked_at: float) -> float:
        """When a request that was asked then has waited for the service long enough."""
        return max(asked_at, self.down_since) + self._timeout

    def next_deadline(self) -> float:
        """When something is due here."""
        return min(self._attempt_until, self._retry_at, self._open_at)
