"""Sessions of a gateway's clients: each is a session of the service, alive as long as its client is.

1. A session lives `ttl` after its client's last sign of life: a keep-alive on its stream, or any call that names
   it.
2. When its stream breaks it has `grace` to be resumed, and never longer than rule 1 gives it.
3. When its time is over it is closed in the service, which releases what it holds at once. Its stream is notified.
4. A stream that is not read is closed: what is pending for it has a bound.
5. A session belongs to its opener: named by a secret, and used with the same login only.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

from fencehold import State
from fencehold.errors import FenceholdError, LimitExceeded, SessionExpired, UsageError
from fencehold.gateway.credentials import Credentials
from fencehold.gateway.holds import Held
from fencehold.gateway.served_client import ServedClient
from fencehold.gateway.upstream import Upstream, described

TTL_S, GRACE_S = 30.0, 1.0
TTL_S_MIN = 0.1
LOOK_S = 0.25
"""How often a session that holds something is checked for jeopardy."""


class Granted(NamedTuple):
    held: Held


class Lost(NamedTuple):
    held: Held


class Jeopardy(NamedTuple):
    safe_for_ms: int


class Recovered(NamedTuple):
    safe_for_ms: int


class Ended(NamedTuple):
    reason: str


News = Granted | Lost | Jeopardy | Recovered | Ended
"""What is pushed on a stream."""


_OVER = object()
"""Follows the last message."""


class Stream:
    """One stream that is attached to a session, with the messages pending for it."""

    def __init__(self, untold_max: int, *, tells_grants: bool = True) -> None:
        self._untold: asyncio.Queue[Any] = asyncio.Queue(untold_max)
        self.tells_grants = tells_grants
        self.is_broken = False
        self.on_broken: Callable[[], None] = lambda: None

    def tell(self, news: Any) -> None:
        """Send something; the stream of a client that does not read is closed."""
        try:
            self._untold.put_nowait(news)
        except asyncio.QueueFull:
            self.break_off()

    def break_off(self) -> None:
        """Send no more."""
        if not self.is_broken:
            self.is_broken = True
            self.on_broken()

    def end(self) -> None:
        """Send what is pending, and no more: its client has ended its side."""
        self.tell(_OVER)

    async def news(self) -> AsyncIterator[Any]:
        """The messages to send, until the session or the stream has ended."""
        while True:
            news = await self._untold.get()
            if news is _OVER or self.is_broken:
                return
            yield news
            if isinstance(news, Ended):
                return


class Session:
    """The session of one client."""

    def __init__(self, opener: tuple[Credentials, str], ttl_s: float, grace_s: float) -> None:
        self.id = secrets.token_urlsafe(24)
        self.credentials, self.peer = opener
        self.ttl_s = ttl_s
        self.grace_s = grace_s
        self.served: ServedClient
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._broken_at: float | None = None
        self.stream: Stream | None = None
        self._in_jeopardy = False

    def heard(self) -> None:
        """Its client has given a sign of life."""
        self._heard_at = self._loop.time()

    def attach(self, stream: Stream) -> None:
        """Attach a stream; a previous one is closed, as its client has left it."""
        before, self.stream = self.stream, stream
        self.resume()
        if before is not None:
            before.break_off()

    def detach(self, stream: Stream) -> None:
        """A stream broke: from now on, the grace runs. One that was replaced changes nothing."""
        if stream is self.stream:
            self.stream = None
            self._broken_at = self._loop.time()

    def resume(self) -> None:
        """Its client is back."""
        self.heard()
        self._broken_at = None

    def ends_at(self) -> float:
        """When its time is over, without a further sign of life."""
        by_ttl = self._heard_at + self.ttl_s
        return by_ttl if self._broken_at is None else min(by_ttl, self._broken_at + self.grace_s)

    def left_s(self) -> float:
        """How long it lives without a further sign of life."""
        return max(0.0, self.ends_at() - self._loop.time())

    def tell(self, news: News) -> None:
        if self.stream is not None:
            self.stream.tell(news)

    def tell_grant(self, held: Held) -> None:
        """Send a grant, if its client wants grants on its stream, too."""
        if self.stream is not None and self.stream.tells_grants:
            self.stream.tell(Granted(held))

    def safe_for_ms(self) -> int:
        """For how long what lives with the session can be trusted; without any such hold, its ttl."""
        lasting = [held for held in self.served.holds.live() if not held.ttl_ms]
        return min((held.safe_for_ms(self.ttl_s) for held in lasting), default=int(1000 * self.ttl_s))

    def look(self) -> None:
        """Notify the client when the service is not reachable, and when it is again."""
        # One of them stands for all: they depend on one connection to the service.
        first = self.served.holds.first()
        is_now = first is not None and first.hold.state is State.JEOPARDY
        if is_now != self._in_jeopardy:
            self._in_jeopardy = is_now
            live = self.served.holds.live()
            safe_for_ms = min((held.safe_for_ms(self.ttl_s) for held in live), default=0)
            self.tell(Jeopardy(safe_for_ms) if is_now else Recovered(safe_for_ms))


class Sessions:
    """All sessions of a gateway."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._bounds = upstream.bounds
        self._sessions: dict[str, Session] = {}
        self._opening = 0
        self._ending: set[asyncio.Task[None]] = set()
        self._keeper: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._sessions)

    async def open(
        self,
        opener: tuple[Credentials, str],
        *,
        client: str,
        meta: Mapping[str, str],
        ttl_s: float,
        grace_s: float | None,
    ) -> Session:
        """Open a session for a client, known by its login and its address.

        Raises:
            UsageError, LimitExceeded, Unavailable, Unauthenticated: none was opened.
        """
        asked_s, (ttl_s, grace_s) = ttl_s, self._times(ttl_s, grace_s)
        self._check_room(opener[1])
        said = described(client, meta, opener[1])
        # Counted while in flight: a burst must not pass the bound.
        self._opening += 1
        try:
            name = client or f"{self._upstream.via} client"
            if asked_s:
                connected = await self._upstream.connect(opener[0], name=name, meta=said, ttl_s=ttl_s)
            else:
                connected, ttl_s = await self._upstream.connect_for(opener[0], name=name, meta=said, ttl_s=ttl_s)
                grace_s = min(grace_s, ttl_s)
        finally:
            self._opening -= 1
        session = Session(opener, ttl_s, grace_s)
        session.served = ServedClient(connected, self._bounds, lambda held: session.tell(Lost(held)))
        self._sessions[session.id] = session
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep())
        return session

    def find(self, session_id: str, credentials: Credentials) -> Session:
        """A session that is open; to name it keeps it alive.

        Raises:
            SessionExpired: there is none of that id for this login.
        """
        session = self._sessions.get(session_id)
        if session is None or session.credentials != credentials:
            raise SessionExpired(
                "there is no such session at this listener: it has ended, or was opened elsewhere"
            )
        session.heard()
        return session

    def has(self, session: Session) -> bool:
        """Whether a session is open."""
        return session.id in self._sessions

    async def end(self, session: Session, reason: str) -> None:
        """Close a session in the service, and notify its stream."""
        if self._sessions.pop(session.id, None) is None:
            return
        try:
            await session.served.close()
        except FenceholdError:
            # The service is unreachable: what is held there expires with its ttl.
            pass
        finally:
            session.tell(Ended(reason))

    async def close(self) -> None:
        """End all sessions."""
        if self._keeper is not None:
            self._keeper.cancel()
        await asyncio.gather(*(self.end(session, "closed") for session in tuple(self._sessions.values())))
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _times(self, ttl_s: float, grace_s: float | None) -> tuple[float, float]:
        ttl_s = ttl_s or TTL_S
        if not TTL_S_MIN <= ttl_s <= self._bounds.session_ttl_s_max:
            raise UsageError(f"the ttl of a session is {TTL_S_MIN:g} s to {self._bounds.session_ttl_s_max:g} s")
        grace_s = min(GRACE_S, ttl_s) if grace_s is None else grace_s
        if grace_s > ttl_s:
            raise UsageError("the grace of a session is at most its ttl")
        return ttl_s, grace_s

    def _check_room(self, peer: str) -> None:
        if len(self._sessions) + self._opening >= self._bounds.sessions_max:
            raise LimitExceeded(f"this listener has at most {self._bounds.sessions_max} sessions: use another one")
        of_peer = sum(session.peer == peer for session in self._sessions.values())
        if of_peer >= self._bounds.sessions_per_peer_max:
            raise LimitExceeded(f"a connection opens at most {self._bounds.sessions_per_peer_max} sessions")

    async def _keep(self) -> None:
        """End those whose time is over, and check the others."""
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            soonest = now + LOOK_S
            for session in tuple(self._sessions.values()):
                ends_at = session.ends_at()
                if ends_at <= now:
                    self.end_soon(session, "expired")
                else:
                    soonest = min(soonest, ends_at)
                    if session.stream is not None:
                        session.look()
            await asyncio.sleep(max(0.01, soonest - now))

    def end_soon(self, session: Session, reason: str) -> None:
        """The same, without waiting for it."""
        task = asyncio.create_task(self.end(session, reason))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
