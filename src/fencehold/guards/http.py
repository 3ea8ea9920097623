"""A guard in front of a web application: pure ASGI middleware, for Starlette, FastAPI, Django and others.

1. *A stale request is refused by the middleware*, with 412, before the application sees it. Its fence is in the
   headers of `http_headers`, and is compared with a mark that every request with a fence raises.
2. *The middleware does not guard the write.* The application writes later, and a request that passed may be
   overtaken meanwhile: by the holder of a greater fence, that passes, reads and writes while this one is still on
   its way to the data. What is written must be guarded where it is written, with the same offer, which is in
   `scope["fencehold.offer"]`. The middleware saves the work; the guard at the data saves the data.
3. *A `StaleFence` that the application raises is a 412, too*, unless the response has begun.
4. *Nothing passes silently*: without a fence 428 (unless not `required`), with one that cannot be read, or of
   another name than `expects` says, 400; if the marks cannot be read, 503. See `http_problems`.
5. A request that only reads raises the mark as well, if it carries a fence: this is how a client *enters*.

A client that may send a fence may send a very large one, and shut all others out: admit only clients that are
allowed to write.
"""

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

from fencehold.errors import LimitExceeded, OutcomeUnknown, StaleFence, Unavailable, UsageError
from fencehold.guards import http_headers, http_problems
from fencehold.guards.http_problems import Problem
from fencehold.guards.marks import GuardMarks, MarkStore, MemoryMarks
from fencehold.guards.offer import Offer
from fencehold.locks.traces import noted

__all__ = ["OFFER", "SAFE_METHODS", "FenceMiddleware", "GuardMarks", "MarkStore", "MemoryMarks", "Problem"]

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

OFFER = "fencehold.offer"
"""The key of the scope under which the application finds the offer."""
SAFE_METHODS = frozenset(("GET", "HEAD", "OPTIONS"))
_POLICY_VIOLATION = 1008
"""The code with which a WebSocket is closed if the server cannot answer its handshake."""

_log = logging.getLogger(__name__)


class _Turned(Exception):
    """The request goes no further."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem


class FenceMiddleware:
    """Refuses stale requests: `app.add_middleware(FenceMiddleware, marks=…)`, or `FenceMiddleware(app, …)`."""

    def __init__(
        self,
        app: App,
        marks: MarkStore,
        *,
        required: bool = True,
        safe_methods_pass: bool = False,
        expects: Callable[[Scope], str | None] | None = None,
    ) -> None:
        """`app` comes first, as every framework gives it.

        Args:
            marks: where the greatest fence of each name is kept.
            required: whether a request without a fence is refused. If not, it passes, and there is no offer.
            safe_methods_pass: whether GET, HEAD and OPTIONS pass without a fence although it is required.
            expects: the name that a request must be made under, from its scope; None: any. Without it, a fence of
                any name opens every path, which is right only if all that is served has one lock.
        """
        self._app = app
        self._marks = marks
        self._required = required
        self._pass = SAFE_METHODS if safe_methods_pass else frozenset()
        self._expects = expects

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        answer = _Answer(scope, receive, send)
        try:
            offer = await self._offer(scope)
            inside = scope if offer is None else {**scope, OFFER: offer}
            await self._app(inside, receive, answer.send)
        except _Turned as turned:
            await answer.problem(turned.problem)
        except StaleFence as error:
            if answer.has_begun:
                raise
            await answer.problem(http_problems.stale(error))

    async def _offer(self, scope: Scope) -> Offer | None:
        try:
            offer = http_headers.read(scope["headers"])
        except UsageError as error:
            raise _Turned(http_problems.malformed(str(error))) from None
        if offer is None:
            self._without(scope)
            return None
        expected = self._expects(scope) if self._expects is not None else None
        if expected not in (None, offer.name):
            detail = f"this is done under {expected!r}, and the fence is that of {offer.name!r}"
            raise _Turned(http_problems.malformed(detail))
        await self._raise_to(offer)
        return offer

    def _without(self, scope: Scope) -> None:
        # A WebSocket has no method, and writes as it likes once it is open.
        if self._required and scope.get("method") not in self._pass:
            raise _Turned(http_problems.missing((http_headers.NAME_HEADER, http_headers.FENCE_HEADER)))

    async def _raise_to(self, offer: Offer) -> None:
        try:
            mark = await self._marks.raise_to(*offer)
        except UsageError as error:
            raise _Turned(http_problems.unknown_name(str(error))) from None
        except (Unavailable, OutcomeUnknown, LimitExceeded) as error:
            # An unknown mark is not a fresh fence: nothing passes. Raising a mark is idempotent, so it may be
            # retried.
            _log.warning("%s: refused, as its mark could not be raised: %s", offer.name, error)
            raise _Turned(http_problems.unavailable()) from None
        if mark > offer.fence:
            raise noted(StaleFence(name=offer.name, fence=offer.fence, mark=mark))


class _Answer:
    """The response to one request: of the application, or sent here."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._is_socket = scope["type"] == "websocket"
        self._can_answer = "websocket.http.response" in (scope.get("extensions") or {})
        self._receive = receive
        self._send = send
        self.has_begun = False

    async def send(self, message: Message) -> None:
        self.has_begun = True
        await self._send(message)

    async def problem(self, problem: Problem) -> None:
        if self._is_socket and not self._can_answer:
            await self._send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": problem.title})
            return
        kind = "websocket.http.response" if self._is_socket else "http.response"
        await self._send({"type": f"{kind}.start", "status": problem.status, "headers": problem.headers})
        await self._send({"type": f"{kind}.body", "body": problem.body})
