"""A session: one kazoo client, for as long as the servers keep its session; and until when they certainly do.

1. The event loop never waits for kazoo. A request is handed over and answered on the loop, each within a timeout;
   one whose caller stopped waiting may still happen, but before any later request.
2. It is kept alive by this loop only: a heartbeat each eighth of its timeout, while kazoo's own pings are off. So
   the names of a process whose loop hangs are released. While any place in it is ours, the heartbeat is a write:
   it proves that the session is kept.
3. A server that leaves one of these unanswered for two fifths of the timeout is replaced by another.
4. When it is over it stays over. Its client makes no other session, and its later events are ignored. If it is
   over because the servers reject us, pending requests get that error.

A session is ended by the leader, `timeout` after its last touch of it. But a client talks to any member, whose
replies prove little about the leader. What is relied on (`SessionTrust`):

5. *The member a client talks to records each request, and reports it with its reply to the leader's next ping*, of
   which there are two a tick. A session lasts at least two ticks; so a quarter of its timeout after it was
   answered, a request has been reported. Until then it is a *touch* that may be lost: the member may be cut off,
   and keep answering reads for as long as it takes to notice.
6. *What a member sends to the leader arrives in order.* So a write that is answered, by the same connection,
   proves that what was reported before it was sent did arrive. Reads and `sync` prove nothing: the one is answered
   by the member alone, the other by a leader that may have been deposed. A write is answered after a quorum had
   it; so no newer leader had begun when it was sent, and one that begins later gives every session its whole
   timeout anew.
7. *Beginning a session is a write of its own*, processed by the leader itself. Resuming one after a lost
   connection reaches the leader, too, but is no write: the next write proves it. Touches by an older connection do
   not count.
8. So a session is trusted until `timeout` after the newest touch was *sent* that a later write has proved, less a
   margin for clocks that drift. The leader rounds up to its next tick, which is left out here.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from kazoo.exceptions import AuthFailedError
from kazoo.protocol.states import EventType, KazooState, KeeperState

from fencehold.drivers.connect_errors import of_attempt
from fencehold.drivers.zookeeper.address import ZookeeperAddress
from fencehold.drivers.zookeeper.buffered_handler import BufferedHandler
from fencehold.drivers.zookeeper.kazoo_client import ANSWERS, DENIALS, ZookeeperAnswer, acl_of, close, make_client
from fencehold.drivers.zookeeper.requests import (
    ELSEWHERE,
    REFUSALS,
    AnswerLost,
    Request,
    exists,
    is_write,
    meaning,
    proof,
)
from fencehold.errors import FenceholdError
from fencehold.locks.clock import Clock
from fencehold.locks.trust import NEVER, Trust, margin

_TOLD_AFTER = 1 / 4
"""Of the timeout: at most half a tick, as a session lasts at least two ticks."""
_APART = 1 / 32
"""Of the timeout: touches closer than this to the last one are not kept."""
_BEATS = 8
_SILENT = 0.4
_JEOPARDY = 0.6
"""A hold is in jeopardy when less than half of this share of the timeout is left."""


class SessionTrust:
    """The trust in one session."""

    def __init__(self) -> None:
        self.end = NEVER
        """Until when it is trusted, by the client's clock."""
        self.timeout = 0.0
        """The timeout that the servers agreed to."""
        self._touches: deque[tuple[float, float]] = deque()
        """When each is certainly reported, if a later write proves it, and when it was sent."""

    def on_begun(self, sent_at: float, timeout: float) -> None:
        """A session was requested at `sent_at`, and exists."""
        self.timeout = timeout
        self.end = self._after(sent_at)

    def on_resumed(self, sent_at: float, now: float, timeout: float) -> None:
        """The session was resumed on another connection, perhaps with another timeout."""
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
            # One that is so old extends no trust.
            while touches[0][1] < sent_at - self.timeout:
                touches.popleft()

    def _after(self, sent_at: float) -> float:
        return sent_at + self.timeout - margin(self.timeout)


Told = Callable[[bool], None]
"""Called when a watched node has changed or the connection has; says whether the node was deleted."""


class ZookeeperSession:
    """Belongs to the event loop it was made on."""

    def __init__(self, address: ZookeeperAddress, ttl: float, zxid: int, clock: Clock) -> None:
        self.address = address
        self.acl = acl_of(address)
        self.trust = Trust(0.0, 0.0)
        self.session_trust = SessionTrust()
        self.is_connected = self.is_over = False
        self.is_admitted = False
        """Whether a server has answered any request in it."""
        self.denial: FenceholdError | None = None
        """The error with which the servers rejected us, if that ended it."""
        self.trouble = ""
        """Why the last attempt to connect to a server failed."""
        self.zxid = zxid
        """The newest transaction it has seen, once it is over."""
        self.claims = 0
        """How many places in it may be ours."""
        self.on_change: Callable[[ZookeeperSession], None] = lambda _: None
        self._has_begun = False
        """Whether the servers have made it; used by kazoo's thread only."""
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._watched: dict[str, set[Told]] = {}
        self._beating: asyncio.TimerHandle | None = None
        self._client = self._made(ttl, zxid)

    def start(self) -> None:
        """Begin to connect."""
        if not self.is_over:
            self._client.start_async()

    def safe_for(self) -> float:
        """Seconds for which the servers certainly keep it."""
        return 0.0 if self.is_over else self.session_trust.end - self._clock()

    # Requests.

    def send(self, request: Request) -> "asyncio.Future[ZookeeperAnswer]":
        """Hand a request over; the future always gets a result, unless it is cancelled."""
        reply = _Reply(self, is_write(request))
        if self.is_over:
            reply.future.set_result(ZookeeperAnswer(error=self.why_over()))
        else:
            self._client._call(request, reply)
        return reply.future

    async def ask(self, *requests: Request, seconds: float) -> list[ZookeeperAnswer]:
        """Hand over requests, to be done one after the other, and wait for all the replies.

        Raises:
            AnswerLost: one of them was not answered, and will not be, or not in time.
            Unavailable, PermissionDenied, Unsupported: one of them was refused; so nothing of that one was done.
        """
        futures = [self.send(request) for request in requests]
        timer = self._loop.call_later(seconds, self._give_up, futures)
        try:
            answers = [await future for future in futures]
        finally:
            timer.cancel()
        for answer in answers:
            if isinstance(answer.error, FenceholdError):
                raise answer.error
        return answers

    async def trusted(self, seconds: float) -> None:
        """Wait until it is certain that the servers keep it.

        Raises:
            AnswerLost: it is not, or was not in time.
        """
        until = self._loop.time() + seconds
        while self.safe_for() <= 0:
            if not self.is_connected or self._loop.time() >= until:
                raise AnswerLost(f"{self.address}: the session may have ended")
            await self.ask(proof(self.address.root), seconds=seconds)
            if self.safe_for() <= 0:
                await asyncio.sleep(self.session_trust.timeout / _BEATS)

    # Watching.

    @contextlib.contextmanager
    def watching(self, paths: Iterable[str], told: Told) -> Iterator[Callable[[Any], None]]:
        """Call `told` for events of these nodes, if the request for them passes the watcher that this yields."""
        for path in paths:
            self.watch(path, told)
        try:
            yield self._on_event
        finally:
            for path in paths:
                self.unwatch(path, told)

    def watch(self, path: str, told: Told) -> Callable[[Any], None]:
        """The same, until `unwatch`."""
        self._watched.setdefault(path, set()).add(told)
        return self._on_event

    def unwatch(self, path: str, told: Told) -> None:
        """Stop watching."""
        found = self._watched.get(path, set())
        found.discard(told)
        if not found:
            self._watched.pop(path, None)

    # Ending.

    async def end(self, patience_s: float) -> None:
        """End it cleanly, if that is possible in so many seconds, and wait until nothing of it is left."""
        self._over()
        await close(self._client, patience_s)

    def cut(self) -> None:
        """End the connection; kazoo makes another."""
        self._client.handler.cut()

    def deny(self, error: Exception) -> None:
        """The servers reject us: it is over."""
        self.denial = self.denial or meaning(str(self.address), error)
        self._client.handler.hang_up()
        self._over()

    def why_over(self) -> FenceholdError:
        """The error for requests in it when it is over."""
        if self.denial is not None:
            # A new one for each: an error that several raise collects the traceback of all.
            return type(self.denial)(str(self.denial))
        return AnswerLost(f"{self.address}: the session has ended")

    # Events of kazoo.

    def _made(self, ttl: float, zxid: int) -> Any:
        handler = BufferedHandler("fencehold zookeeper", self.address.tls)
        client = make_client(self.address, handler, timeout_s=ttl, zxid=zxid, on_state=self._on_state)
        handler.on_end = self._over
        connection = client._connection
        connection._connect = partial(self._connect, client, connection._connect)
        # The loop keeps the session alive, and not a thread that continues when the loop hangs.
        connection._send_ping = lambda timeout: None
        return client

    def _connect(
        self, client: Any, connect: Callable[..., tuple[float, float]], *place: Any
    ) -> tuple[float, float]:
        """On kazoo's thread: connect, and record when that was requested and which timeout was agreed on."""
        was_there, sent_at = self._has_begun, self._clock()
        try:
            read_ms, connect_ms = connect(*place)
        except Exception as error:
            self.trouble = _trouble(place, error)
            raise
        # kazoo stores two thirds of the timeout that was agreed on.
        client.handler.posts.put(partial(self._on_connected, sent_at, read_ms * 1.5 / 1_000, was_there))
        return read_ms, connect_ms

    def _on_state(self, client: Any, state: str) -> None:
        # On kazoo's thread, and before kazoo resets the state of its session.
        if state == KazooState.CONNECTED:
            self._has_begun = True
        elif state == KazooState.LOST:
            client.handler.hang_up()
            if client.client_state == KeeperState.AUTH_FAILED:
                client.handler.posts.put(partial(self.deny, AuthFailedError()))
            client.handler.posts.put(partial(self._over, client.last_zxid))
        elif state == KazooState.SUSPENDED:
            client.handler.posts.put(self._on_disconnected)

    def _on_connected(self, sent_at: float, timeout: float, was_there: bool) -> None:
        if self.is_over:
            return
        if was_there:
            self.session_trust.on_resumed(sent_at, self._clock(), timeout)
        else:
            self.session_trust.on_begun(sent_at, timeout)
        self.trust.ttl = timeout * _JEOPARDY
        self.trust.end = self.session_trust.end
        self.is_connected = self.trust.attached = True
        self._beat()
        self._change()

    def _on_disconnected(self) -> None:
        self.is_connected = self.trust.attached = False
        self.session_trust.on_disconnected()
        self._change()

    def _over(self, zxid: int = 0) -> None:
        self.zxid = max(self.zxid, zxid)
        if self.is_over:
            return
        self.is_over, self.is_connected = True, False
        self.trust.on_over()
        if self._beating is not None:
            self._beating.cancel()
        self._change()

    def _change(self) -> None:
        self.on_change(self)
        for told in [told for several in self._watched.values() for told in several]:
            told(False)

    def _on_event(self, event: Any) -> None:
        if event.type != EventType.NONE:
            for told in tuple(self._watched.get(event.path, ())):
                told(event.type == EventType.DELETED)

    def on_answer(self, sent_at: float, *, is_write: bool) -> None:
        """A request was answered by a server."""
        if not self.is_over:
            self.is_admitted = True
            self.session_trust.on_answer(sent_at, self._clock(), is_write=is_write)
            self.trust.end = self.session_trust.end

    # Keeping alive.

    def _beat(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        timeout = self.session_trust.timeout
        self._beating = self._loop.call_later(timeout / _BEATS, self._beat)
        if self.is_connected:
            future = self.send(proof(self.address.root) if self.claims else exists("/"))
            timer = self._loop.call_later(timeout * _SILENT, self._give_up, [future])
            future.add_done_callback(lambda _: timer.cancel())

    def _give_up(self, futures: "list[asyncio.Future[ZookeeperAnswer]]") -> None:
        late = [future for future in futures if not future.done()]
        for future in late:
            future.set_result(ZookeeperAnswer(error=AnswerLost(f"{self.address}: no answer came in time")))
        if late and not self.is_over:
            self.cut()


def _trouble(place: Sequence[Any], error: Exception) -> str:
    """Why kazoo did not connect to a server: it wraps the error of the system."""
    host, *_, port = place
    cause = error.__context__ if isinstance(error.__context__, OSError) else error
    why = of_attempt(cause, "zookeeper") if isinstance(cause, OSError) else str(cause)
    return f"{host}:{port}: {why or type(cause).__name__}"


class _Reply:
    """Stands in for kazoo's own result object."""

    __slots__ = ("_is_write", "_sent_at", "_session", "future")

    def __init__(self, session: ZookeeperSession, is_write: bool) -> None:
        self.future: asyncio.Future[ZookeeperAnswer] = session._loop.create_future()
        self._session = session
        self._is_write = is_write
        self._sent_at = session._clock()

    def set(self, value: Any = None) -> None:
        """On kazoo's thread."""
        self._session._client.handler.posts.put(partial(self._settle, value, None))

    def set_exception(self, error: Exception) -> None:
        """On kazoo's thread, or on the loop when it was not handed over."""
        self._session._client.handler.posts.put(partial(self._settle, None, error))

    def _settle(self, value: Any, error: Exception | None) -> None:
        session = self._session
        is_answer = error is None or isinstance(error, ANSWERS)
        if is_answer or isinstance(error, REFUSALS):
            session.on_answer(self._sent_at, is_write=self._is_write)
        if isinstance(error, DENIALS):
            session.deny(error)
        if isinstance(error, ELSEWHERE) and session.is_connected:
            # A server may reply so and not disconnect; another connection shows what has become of the session.
            session.cut()
        if self.future.done():
            return
        if session.is_over:
            self.future.set_result(ZookeeperAnswer(error=session.why_over()))
        elif is_answer:
            self.future.set_result(ZookeeperAnswer(value, error))
        else:
            self.future.set_result(ZookeeperAnswer(error=meaning(str(session.address), error)))
