"""A client of an ensemble: one session of kazoo's at a time, and the next one when that has ended.

The rules it obeys:

1. The event loop never waits for kazoo. A request is handed over by its `…_async` form and answered on the loop;
   each has a deadline. A request whose caller was cancelled may happen all the same.
2. What was seen is never unseen. Every connection is made with the newest transaction that any connection before
   it saw, also across sessions (see `kazoo_client`).
   What a client reports after its session has ended is ignored: it came by a connection without that.
3. A server that keeps silent is left for another. kazoo alone would wait for two thirds of the session's timeout.
4. `AnswerLost` says that there will be no answer, and nothing else. An answer that cannot be read counts as none.
5. A session carries nothing of ours but watches. When it ends, all tasks that wait for one are woken, and look
   again.
6. After `stop`, no thread of kazoo's is left.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from kazoo.exceptions import NoAuthError
from kazoo.protocol.states import KazooState

from fencehold.drivers.zookeeper import kazoo_client
from fencehold.drivers.zookeeper.address import ZookeeperAddress
from fencehold.drivers.zookeeper.handler import PollHandler
from fencehold.drivers.zookeeper.kazoo_client import ANSWERS, DENIALS, ZookeeperAnswer, close, make_client
from fencehold.errors import NotAdmitted, Unavailable

Request = Callable[[Any], Any]
"""Passes one request to a kazoo client, and returns kazoo's promise of an answer."""

_SILENCE_S = 1.0
"""A server that has not answered for so long is dropped when a deadline passes, and another one is asked."""
_GOODBYE_S = 0.3
"""How long a session's orderly end may take before its connection is cut."""
_ANEW_S = 0.1
"""A client follows one whose session ended after this pause: servers that refuse us must not be flooded."""
_DENIALS = (NoAuthError, *DENIALS)
REFUSALS = (*kazoo_client.REFUSALS, *DENIALS)


class AnswerLost(Exception):
    """The connection was lost before the answer came: it happened, or did not, or will yet."""


class ZookeeperClient:
    """Belongs to the event loop it was made on."""

    def __init__(self, address: ZookeeperAddress, session_timeout_s: float) -> None:
        self.address = address
        self._session_timeout_s = session_timeout_s
        self._loop = asyncio.get_running_loop()
        self._zxid = 0
        self._stopped = False
        self._bells: set[asyncio.Event] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._client = self._made()
        self._start(self._client)

    def deadline_at(self, seconds: float) -> float:
        return self._loop.time() + seconds

    async def ready(self, deadline_at: float) -> None:
        """Wait for a connection.

        Raises:
            TimeoutError: there was none in time.
            Unavailable: the client was stopped.
        """
        if self._client.connected and not self._stopped:
            return
        bell = asyncio.Event()
        with self.ringing(bell):
            while not self._client.connected and not self._stopped:
                bell.clear()
                async with asyncio.timeout_at(deadline_at):
                    await bell.wait()
        if self._stopped:
            raise Unavailable(f"{self.address}: it was closed")

    async def ask(self, requests: Sequence[Request], deadline_at: float) -> list[ZookeeperAnswer]:
        """Send requests, to be done one after the other, and wait for all the answers.

        Raises:
            AnswerLost: one of them was not answered, and will not be.
            TimeoutError: one of them was not answered in time, and may be done yet.
            Unavailable: one of them was refused; so nothing of that one was done.
        """
        client, asked_at = self._client, self._loop.time()
        futures = [self._hand_over(request) for request in requests]
        timer = self._loop.call_at(deadline_at, _expire, futures)
        try:
            answers = [await future for future in futures]
        finally:
            timer.cancel()
        if isinstance(answers[-1].error, TimeoutError) and self._loop.time() - asked_at >= _SILENCE_S:
            client.handler.cut()
        for answer in answers:
            if answer.error is not None and not isinstance(answer.error, ANSWERS):
                raise answer.error
        return answers

    @contextlib.contextmanager
    def ringing(self, bell: asyncio.Event) -> Iterator[None]:
        """Meanwhile the bell is rung whenever a connection comes or goes, and when the client is stopped."""
        self._bells.add(bell)
        try:
            yield
        finally:
            self._bells.discard(bell)

    async def stop(self, patience_s: float = _GOODBYE_S) -> None:
        """End the session, and wait until nothing of it is left."""
        if not self._stopped:
            self._stopped = True
            self._end(self._client, patience_s)
            self._ring()
        if self._ending:
            await asyncio.wait(self._ending)

    def _hand_over(self, request: Request) -> "asyncio.Future[ZookeeperAnswer]":
        future: asyncio.Future[ZookeeperAnswer] = self._loop.create_future()
        request(self._client).rawlink(partial(self._settle, self._client, future))
        return future

    def _settle(self, client: Any, future: "asyncio.Future[ZookeeperAnswer]", promise: Any) -> None:
        if future.done():
            return
        error = promise.exception
        if client is not self._client:
            future.set_result(ZookeeperAnswer(error=AnswerLost("the session has ended")))
        elif error is None or isinstance(error, ANSWERS):
            future.set_result(ZookeeperAnswer(promise.value, error))
        elif isinstance(error, REFUSALS):
            future.set_result(ZookeeperAnswer(error=self.refusal(error)))
        else:
            future.set_result(ZookeeperAnswer(error=AnswerLost(type(error).__name__)))

    def refusal(self, error: Exception) -> Unavailable:
        """The error for an answer that cannot be handled here. Nothing happened."""
        if isinstance(error, _DENIALS):
            kind = type(error).__name__
            return NotAdmitted(f"{self.address}: ZooKeeper refused, {kind}: use the login it was made with")
        return Unavailable(f"{self.address}: ZooKeeper refused, {type(error).__name__}: see its server")

    def _made(self) -> Any:
        handler = PollHandler("fencehold zookeeper", self.address.tls)
        client = make_client(
            self.address,
            handler,
            timeout_s=self._session_timeout_s,
            zxid=self._zxid,
            on_state=self._on_state,
        )
        handler.on_end = partial(self._on_lost, client, 0)
        return client

    def _start(self, client: Any) -> None:
        if not self._stopped:
            client.start_async()

    def _on_state(self, client: Any, state: str) -> None:
        # On kazoo's thread, and before kazoo forgets what its session has seen.
        tell = partial(self._on_lost, client, client.last_zxid) if state == KazooState.LOST else self._ring
        client.handler.callback_queue.put(tell)

    def _on_lost(self, client: Any, zxid: int) -> None:
        if client is not self._client or self._stopped:
            return
        self._zxid = max(self._zxid, zxid)
        self._client = self._made()
        self._loop.call_later(_ANEW_S, self._start, self._client)
        self._end(client, 0)
        self._ring()

    def _ring(self) -> None:
        for bell in self._bells:
            bell.set()

    def _end(self, client: Any, patience_s: float) -> None:
        task = self._loop.create_task(close(client, patience_s))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)


def _expire(futures: "Sequence[asyncio.Future[ZookeeperAnswer]]") -> None:
    for future in futures:
        if not future.done():
            future.set_result(ZookeeperAnswer(error=TimeoutError()))
