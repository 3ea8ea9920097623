"""An acquire within a span, on an event loop: while it waits, the holders are looked up."""

import asyncio
from contextlib import suppress

from fencehold.client.aio.routes import Carrier, release_soon
from fencehold.errors import FenceholdError
from fencehold.locks.identity import Who
from fencehold.locks.terms import Terms
from fencehold.locks.traces import LINKS_MAX, LOOK_S, AcquireSpan
from fencehold.locks.trust import Grant


async def traced(carrier: Carrier, terms: Terms, who: Who, owner: bytes | None = None) -> Grant | None:
    """As `Carrier.acquire`."""
    span = AcquireSpan(terms)
    look = _Look(carrier, span)
    grant: Grant | None = None
    try:
        try:
            grant = await carrier.acquire(span.terms, who, owner)
        finally:
            look.cancel()
        span.on_answer(grant)
    except BaseException as error:
        if grant is not None:
            release_soon(carrier, grant)
        span.on_error(error)
        raise
    return grant


class _Look:
    """A delayed lookup of the holders, if it is not acquired by then."""

    def __init__(self, carrier: Carrier, span: AcquireSpan) -> None:
        self._carrier = carrier
        self._span = span
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._begin)

    def cancel(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._seen(), name="traces")

    async def _seen(self) -> None:
        # A link is optional: without it, the span still says how long it took.
        with suppress(FenceholdError):
            name = self._span.terms.names[0]
            self._span.on_seen(await self._carrier.explain(name, stale=True, limit=LINKS_MAX))
