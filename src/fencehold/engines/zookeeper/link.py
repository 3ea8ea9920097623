"""The link: one handle's way to the ensemble, by a kazoo client, and by the next one when its session has ended.

The rules it obeys:

1. The event loop never waits for kazoo. A request is handed over by its `…_async` form and answered on the loop;
   each has a deadline. What its caller gave up waiting for may happen all the same.
2. What was seen is never unseen. Every connection is made with the newest transaction that any connection before
   it saw, also across sessions (kazoo forgets it when a session ends), and a server that is behind refuses it.
   What a client says after its session has ended is not heard: it came by a connection without that.
3. A server that keeps silent is left for another. kazoo alone would wait for two thirds of the session's timeout.
4. `Lost` says that there will be no answer, and nothing else. An answer that nobody can read is as good as none.
5. A session carries nothing of ours but watches. When it ends, whoever waits for one is rung, and looks again.
6. After `stop`, no thread of kazoo's is left.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    InvalidACLError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    QuotaExceededError,
)
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import make_digest_acl

from fencehold.drivers.zookeeper.address import ZookeeperAddress
from fencehold.drivers.zookeeper.denials import DENIALS
from fencehold.engines.zookeeper.handler import PollHandler
from fencehold.errors import NotAdmitted, Unavailable

Request = Callable[[Any], Any]
"""Hands one request to a kazoo client, and returns kazoo's promise of an answer."""

_SILENCE_S = 1.0
"""A server that has not answered for so long is given up when a deadline passes, and another one is asked."""
_GOODBYE_S = 0.3
"""How long a session's orderly end may take before its connection is cut."""
_ANEW_S = 0.1
"""A client follows one whose session ended after this pause: servers that refuse us are not to be stormed."""
_RETRY = {"max_tries": -1, "delay": 0.05, "backoff": 1.5, "max_delay": 0.5}
_ANSWERS = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError)
_DENIALS = (NoAuthError, *DENIALS)
REFUSALS = (*_DENIALS, InvalidACLError, QuotaExceededError)

_log = logging.getLogger("fencehold.engines.zookeeper.kazoo")
_log.addHandler(logging.NullHandler())
# To kazoo every lost connection is a handful of warnings; here it is an error with a name, or nothing at all.
_log.setLevel(logging.CRITICAL)
# Below this level kazoo writes out what it sends, and that includes passwords.
_log.addFilter(lambda record: record.levelno >= logging.INFO)


class Lost(Exception):
    """The connection went before the answer came: it happened, or did not, or will yet."""


class Answer(NamedTuple):
    """What came of one request. Some errors are answers: that a node is missing, or there already."""

    value: Any = None
    error: Exception | None = None

    @property
    def is_missing(self) -> bool:
        return isinstance(self.error, NoNodeError)

    def unwrap(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


class Link:
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
            Unavailable: the link was stopped.
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
            raise Unavailable(f"{self.address}: this journal was closed")

    async def ask(self, requests: Sequence[Request], deadline_at: float) -> list[Answer]:
        """Hand over requests, to be done one after the other, and wait for all the answers.

        Raises:
            Lost: one of them was not answered, and will not be.
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
            if answer.error is not None and not isinstance(answer.error, _ANSWERS):
                raise answer.error
        return answers

    @contextlib.contextmanager
    def ringing(self, bell: asyncio.Event) -> Iterator[None]:
        """Meanwhile the bell is rung whenever a connection comes or goes, and when the link is stopped."""
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

    def _hand_over(self, request: Request) -> "asyncio.Future[Answer]":
        future: asyncio.Future[Answer] = self._loop.create_future()
        request(self._client).rawlink(partial(self._settle, self._client, future))
        return future

    def _settle(self, client: Any, future: "asyncio.Future[Answer]", promise: Any) -> None:
        if future.done():
            return
        error = promise.exception
        if client is not self._client:
            future.set_result(Answer(error=Lost("the session has ended")))
        elif error is None or isinstance(error, _ANSWERS):
            future.set_result(Answer(promise.value, error))
        elif isinstance(error, REFUSALS):
            future.set_result(Answer(error=self.refusal(error)))
        else:
            future.set_result(Answer(error=Lost(type(error).__name__)))

    def refusal(self, error: Exception) -> Unavailable:
        """What an answer means that nobody here can do anything about. Nothing happened."""
        if isinstance(error, _DENIALS):
            kind = type(error).__name__
            return NotAdmitted(f"{self.address}: ZooKeeper refused, {kind}: use the login it was made with")
        return Unavailable(f"{self.address}: ZooKeeper refused, {type(error).__name__}: see its server")

    def _made(self) -> Any:
        address = self.address
        handler = PollHandler("fencehold zookeeper", address.tls)
        login = f"{address.user}:{address.password}"
        client = KazooClient(
            hosts=",".join(address.hosts),
            timeout=self._session_timeout_s,
            handler=handler,
            auth_data=[("digest", login)] if address.user else None,
            default_acl=[make_digest_acl(address.user, address.password, all=True)] if address.user else None,
            connection_retry=KazooRetry(**_RETRY),
            logger=_log,
        )
        client.last_zxid = self._zxid
        client.add_listener(partial(self._on_state, client))
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
        task = self._loop.create_task(self._ended(client, patience_s))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _ended(self, client: Any, patience_s: float) -> None:
        cut = self._loop.call_later(patience_s, client.handler.hang_up)
        await asyncio.to_thread(_close, client)
        cut.cancel()


def _expire(futures: "Sequence[asyncio.Future[Answer]]") -> None:
    for future in futures:
        if not future.done():
            future.set_result(Answer(error=TimeoutError()))


def _close(client: Any) -> None:
    # What cannot be ended in order is a thread that waits for a name server; it ends when that answers.
    with contextlib.suppress(KazooException, OSError):
        client.stop()
        client.close()
