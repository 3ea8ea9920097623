"""Standing between callers and etcd: calls pass through here, and may go wrong on the way."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from fencehold.drivers.etcd import messages
from fencehold.drivers.etcd.http2.channel import Channel
from fencehold.drivers.etcd.http2.status import CallFailed
from fencehold.drivers.http2.frames import Metadata

GoOn = Callable[..., Awaitable[Any]]
"""Makes the call; what it is given replaces what the caller gave."""


class Between:
    """Sees every call. Its `connect` is given to whoever calls."""

    def connect(self, endpoint: str, context: ssl.SSLContext | None) -> Channel:
        return _Passing(self, endpoint, context)

    async def on_call(self, path: str, request: Any, go_on: GoOn) -> Any:
        """A call of one request and one answer."""
        return await go_on()

    def on_talk(self, talk: Any) -> Any:
        """A call of many, not begun yet."""
        return talk


class _Passing(Channel):
    def __init__(self, between: Between, endpoint: str, context: ssl.SSLContext | None) -> None:
        super().__init__(endpoint, context)
        self._between = between
        self._passing: set[asyncio.Task[None]] = set()

    def unary_unary(self, path: str, *how: Any, **more: Any) -> Callable[..., Awaitable[Any]]:
        call = super().unary_unary(path, *how, **more)

        async def passing(request: Any, **words: Any) -> Any:
            return await self._between.on_call(path, request, lambda **others: call(request, **words | others))

        return passing

    def begin_unary(
        self,
        path: str,
        data: bytes,
        *,
        timeout_s: float,
        metadata: Metadata,
        told: Callable[[bytes | CallFailed], None],
    ) -> bool:
        call = self.unary_unary(path, messages.TxnRequest.SerializeToString, messages.TxnResponse.FromString)

        async def passing() -> None:
            try:
                answer = await call(messages.TxnRequest.FromString(data), timeout=timeout_s, metadata=metadata)
            except CallFailed as error:
                told(error)
            else:
                told(answer.SerializeToString())

        self._passing.add(task := asyncio.create_task(passing()))
        task.add_done_callback(self._passing.discard)
        return True

    def stream_stream(self, path: str, *how: Any, **more: Any) -> Callable[..., Any]:
        call = super().stream_stream(path, *how, **more)
        return lambda **words: self._between.on_talk(call(**words))
