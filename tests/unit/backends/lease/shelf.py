"""A store in a dict, which does what a test tells it to."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from fencehold import Guarantees
from fencehold.backends.lease.backend import LeaseBackend
from fencehold.backends.lease.store import Busy, Taken, ThreadStore
from fencehold.backends.port import Ask, Lease, Settings
from fencehold.locks.terms import Terms
from fencehold.locks.views import Explanation

TTL = 0.6


class Shelf:
    """Names and tokens. What stands in `next_…` is done once, instead of what is asked: an error is raised, a
    function is awaited."""

    guarantees = Guarantees("shelf", True, True, True, True, True, TTL, "none")

    def __init__(self) -> None:
        self.thread_store: ThreadStore | None = None
        self.on_wake: Callable[[str, str], None] = lambda name, token: None
        self.held: dict[str, str] = {}
        self.fence = 0
        self.next_takes: deque[Any] = deque()
        self.next_renewals: deque[Any] = deque()
        self.next_gifts: deque[Any] = deque()
        self.left: list[str] = []
        self.renewed: list[int] = []
        self.lasting: dict[str, float] = {}
        """For how long each token was told to last by the last renewal."""
        self.takes = 0
        self.is_open = False

    async def open(self) -> None:
        self.is_open = True

    async def close(self) -> None:
        self.is_open = False

    async def take(self, ask: Ask, ttl: float, *, waits: bool) -> Taken | Busy:
        self.takes += 1
        await _next(self.next_takes)
        if self.held.setdefault(ask.name, ask.token) != ask.token:
            return Busy(20.0)
        self.fence += 1
        return Taken(self.fence)

    async def renew(self, leases: Sequence[Lease], ttl: float) -> Sequence[bool]:
        self.renewed.append(len(leases))
        await _next(self.next_renewals)
        self.lasting.update((lease.ask.token, ttl) for lease in leases)
        return [self.held.get(lease.ask.name) == lease.ask.token for lease in leases]

    async def release(self, lease: Lease) -> bool:
        await _next(self.next_gifts)
        if self.held.get(lease.ask.name) != lease.ask.token:
            return False
        del self.held[lease.ask.name]
        return True

    async def withdraw(self, ask: Ask) -> None:
        await asyncio.sleep(0)
        self.left.append(ask.token)
        if self.held.get(ask.name) == ask.token:
            del self.held[ask.name]

    async def look(self, name: str) -> Explanation:
        return Explanation(name, (), (), 0.0)

    async def break_hold(self, name: str, fence: int) -> int:
        self.held.pop(name, None)
        return self.fence


async def _next(things: deque[Any]) -> None:
    await asyncio.sleep(0)
    if things:
        thing = things.popleft()
        if isinstance(thing, BaseException):
            raise thing
        await thing()


class Scene:
    """A backend on a shelf: ``async with Scene() as scene``."""

    def __init__(self, ttl: float = TTL, connect_timeout: float = 0.3) -> None:
        self.shelf = Shelf()
        self.backend = LeaseBackend(self.shelf, Settings(ttl, connect_timeout))
        self._tokens = iter(range(1_000))

    def ask(self, name: str = "a", **terms: Any) -> Ask:
        return Ask(Terms((name,), **terms), f"t{next(self._tokens)}", "task")

    async def __aenter__(self) -> "Scene":
        await self.backend.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.backend.close()
        assert not self.shelf.is_open
