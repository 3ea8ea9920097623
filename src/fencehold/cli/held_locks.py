"""Locks that a background thread holds, for a main thread that waits for signals and for a child.

`wake` notifies the main thread that something happened; it then reads `granted`, `result` and `loss`. The SDK
decides whether a hold can be trusted; nothing here does.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import NamedTuple

from fencehold import aio
from fencehold.backends.registry import scheme_of
from fencehold.cli.wire import CannotConnect
from fencehold.errors import FenceholdError, HoldLost, Overloaded, Unavailable, Unsupported
from fencehold.locks.views import Explanation
from fencehold.types import CORRECTNESS, Tier

_CLOSE_S = 2.0
"""How long to wait for the answer to the release. Without one, the service sees the connection close."""


_QUIET_S = 0.3
"""A shorter wait is not reported."""
_LOOK_AGAIN_S = 1.0


class NotGiven(Unsupported):
    """The backend of the URL does not support the request."""

    hint = "here that is: fencehold run --tier efficiency …"


class Wanted(NamedTuple):
    """What to hold, and with which options."""

    names: list[str]
    ttl: float
    timeout: float | None
    owner: str
    """Shown with the process as the holder."""
    shared: bool = False
    limit: int = 0
    tier: Tier = CORRECTNESS
    called: str = "fencehold run"
    """The client name that others see."""


class HoldThread(threading.Thread):
    """One hold, from the acquire to the release."""

    def __init__(
        self,
        url: str,
        wanted: Wanted,
        wake: Callable[[], object],
        on_waiting: Callable[[Explanation], object] | None = None,
    ) -> None:
        """`on_waiting` is called in the thread with the holder of the name, each time the holder changes."""
        super().__init__(name="fencehold holding", daemon=True)
        self._on_waiting = on_waiting
        self._url = url
        self._wanted = wanted
        self._wake = wake
        self._hold: aio.Claim | None = None
        self._failure: BaseException | None = None
        self._made = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._enough: asyncio.Event | None = None

    @property
    def granted(self) -> bool:
        return self._hold is not None

    @property
    def fence(self) -> int:
        """Of the hold that was granted; 0 if it has none."""
        return self._hold.fence if isinstance(self._hold, aio.Hold) else 0

    def variables(self) -> dict[str, str]:
        """The environment variables of the command."""
        names = self._wanted.names
        fence = {"FENCEHOLD_FENCE": str(self.fence)} if self.fence else {}
        return {**fence, "FENCEHOLD_NAME": names[0], "FENCEHOLD_NAMES": "\n".join(names)}

    def result(self) -> None:
        """Raise the error of the acquire, if it has failed."""
        if self._failure is not None and not self.granted:
            raise self._failure

    def loss(self) -> str:
        """Why the hold cannot be trusted any more; empty while it can. Of this moment, not of the last wake."""
        hold = self._hold
        if hold is None:
            return ""
        try:
            hold.check()
        except FenceholdError as lost:
            return str(lost)
        return ""

    def end(self) -> str:
        """Release the hold, or withdraw the request. Returns how the hold was lost before, if it was."""
        lost = self.loss()
        if self._made.wait(_CLOSE_S) and self._loop is not None:
            with contextlib.suppress(RuntimeError):
                # A loop that has closed meanwhile has nothing left to end.
                self._loop.call_soon_threadsafe(self._let_go)
        # After a loss there is nothing to release, and often no server to reach.
        self.join(_CLOSE_S if not lost else _CLOSE_S / 10)
        return lost or (str(self._failure) if isinstance(self._failure, HoldLost) else "")

    def run(self) -> None:
        """The thread."""
        try:
            asyncio.run(self._live())
        except (Exception, asyncio.CancelledError) as failure:
            self._failure = failure
        finally:
            self._made.set()
            self._wake()

    async def _live(self) -> None:
        self._loop, self._enough = asyncio.get_running_loop(), asyncio.Event()
        self._task = task = asyncio.current_task()
        if task is not None:
            task.set_name(self._wanted.owner)
        self._made.set()
        ttl = self._wanted.ttl
        connecting = aio.connect(self._url, ttl=ttl, grace=min(1.0, ttl), name=self._wanted.called)
        # An unsupported request is refused before anything is contacted.
        try:
            connecting.plan.source(self._wanted.tier)
        except Unsupported as error:
            raise NotGiven(str(error)) from error
        try:
            client = await connecting
        except Overloaded:
            raise
        except Unavailable as error:
            if scheme_of(self._url):
                raise
            raise CannotConnect(str(error)) from error
        async with client:
            telling = asyncio.create_task(self._tell_whom(client, self._on_waiting)) if self._on_waiting else None
            try:
                async with self._lock(client) as hold:
                    hold.lost.add_callback(lambda _: self._wake())
                    self._hold = hold
                    self._wake()
                    await self._enough.wait()
            finally:
                if telling is not None:
                    telling.cancel()

    async def _tell_whom(self, client: aio.Client, tell: Callable[[Explanation], object]) -> None:
        """During the wait: who holds the name."""
        told: object = None
        await asyncio.sleep(_QUIET_S)
        while not self.granted:
            # The server is unreachable for a moment, or the backend does not know: there is nothing to show.
            with contextlib.suppress(FenceholdError):
                for name in self._wanted.names:
                    seen = await client.explain(name, tier=self._wanted.tier)
                    holders = [(holder.party.session, holder.fence) for holder in seen.holders]
                    if holders and not self.granted:
                        if (name, holders) != told:
                            tell(seen)
                        told = (name, holders)
                        break
            await asyncio.sleep(_LOOK_AGAIN_S)

    def _lock(self, client: aio.Client) -> aio.Lock[aio.Claim]:
        wanted = self._wanted
        names, timeout, shared, tier = wanted.names, wanted.timeout, wanted.shared, wanted.tier
        if wanted.limit:
            return client.semaphore(names[0], wanted.limit, timeout=timeout, on_lost="raise", tier=tier)
        if len(names) == 1:
            return client.lock(names[0], timeout=timeout, shared=shared, on_lost="raise", tier=tier)
        return client.multi(names, timeout=timeout, shared=shared, on_lost="raise", tier=tier)

    def _let_go(self) -> None:
        """In the loop: release what is held; stop waiting for what is not."""
        if self._hold is not None and self._enough is not None:
            self._enough.set()
        elif self._task is not None:
            self._task.cancel()
