"""SessionService: opening, keeping alive over a stream, resuming, closing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from fencehold.doors.grpc import translation
from fencehold.doors.grpc.calls import Call
from fencehold.errors import UsageError
from fencehold.gateway.holds import Held
from fencehold.gateway.sessions import Ended, Granted, Jeopardy, Lost, Recovered, Session, Sessions, Stream
from fencehold.locks.loss_reasons import LossKind, loss_kind
from fencehold.wire import messages as m

_REASONS = {
    LossKind.BROKEN: m.END_REASON_BROKEN,
    LossKind.UNANSWERED: m.END_REASON_UNREACHABLE,
    LossKind.CLOSED: m.END_REASON_CLOSED,
    LossKind.EXPIRED: m.END_REASON_EXPIRED,
    LossKind.SESSION: m.END_REASON_EXPIRED,
}
"""By the SDK's kinds of loss."""
_ENDS = {"closed": m.END_REASON_CLOSED, "expired": m.END_REASON_EXPIRED}
"""By the gateway's reasons for the end of a session."""


class SessionServicer:
    """Called by gRPC; see `proto/fencehold/v1/fencehold.proto` for what each promises."""

    def __init__(self, sessions: Sessions, untold_max: int) -> None:
        self._sessions = sessions
        self._untold_max = untold_max

    async def open(self, request: m.OpenRequest, call: Call) -> m.OpenResponse:
        session = await self._sessions.open(
            (call.credentials(), call.peer),
            client=request.client,
            meta=dict(request.meta),
            ttl_s=request.ttl_ms / 1000,
            grace_s=request.grace_ms / 1000 if request.HasField("grace_ms") else None,
        )
        # No client knows of the session then.
        call.on_undelivered(lambda: self._sessions.end_soon(session, "closed"))
        return m.OpenResponse(session=session.id, ttl_ms=_ms(session.ttl_s), grace_ms=_ms(session.grace_s))

    async def resume(self, request: m.ResumeRequest, call: Call) -> m.ResumeResponse:
        session = self._sessions.find(request.session, call.credentials())
        session.resume()
        return m.ResumeResponse(ttl_ms=_ms(session.ttl_s), grace_ms=_ms(session.grace_s), holds=_holds(session))

    async def close(self, request: m.CloseRequest, call: Call) -> m.CloseResponse:
        session = self._sessions.find(request.session, call.credentials())
        await self._sessions.end(session, "closed")
        return m.CloseResponse()

    async def session(
        self, requests: AsyncIterator[m.SessionRequest], call: Call
    ) -> AsyncIterator[m.SessionResponse]:
        first = await anext(aiter(requests), m.SessionRequest())
        if not first.session:
            raise UsageError("the first message of the stream names the session")
        session = self._sessions.find(first.session, call.credentials())
        stream = Stream(self._untold_max, tells_grants=not first.without_grants)
        session.attach(stream)
        reading = asyncio.create_task(_read(requests, session, stream))
        stream.on_broken = lambda: _stop(reading)
        reading.add_done_callback(lambda _: stream.end())
        try:
            yield _attached(session, first.sequence)
            async for news in stream.news():
                yield _message(news, session)
            if reading.done() and not reading.cancelled():
                # Raises what was wrong with what the client sent.
                reading.result()
        finally:
            session.detach(stream)
            reading.cancel()
            with suppress(asyncio.CancelledError, UsageError):
                await reading


async def _read(requests: AsyncIterator[m.SessionRequest], session: Session, stream: Stream) -> None:
    """Read keep-alives, until the client ends its side or is gone."""
    async for request in requests:
        if request.session not in ("", session.id):
            raise UsageError("a stream serves one session: open another stream for another session")
        session.heard()
        stream.tell(m.KeptAlive(sequence=request.sequence, safe_for_ms=session.safe_for_ms()))


def _stop(reading: "asyncio.Task[None]") -> None:
    reading.cancel()


def _message(news: Any, session: Session) -> m.SessionResponse:
    match news:
        case m.KeptAlive():
            return m.SessionResponse(kept_alive=news)
        case Granted(held):
            return m.SessionResponse(granted=m.Granted(hold=translation.hold(held, session.ttl_s)))
        case Lost(held):
            return m.SessionResponse(lost=_lost(held, session))
        case Jeopardy(safe_for_ms):
            return m.SessionResponse(jeopardy=m.Jeopardy(safe_for_ms=safe_for_ms))
        case Recovered(safe_for_ms):
            return m.SessionResponse(recovered=m.Recovered(safe_for_ms=safe_for_ms))
        case Ended(reason):
            return m.SessionResponse(ended=m.Ended(reason=_ENDS[reason], detail=reason))
        case _:
            raise AssertionError(news)


def _lost(held: Held, session: Session) -> m.Lost:
    reason = _REASONS.get(loss_kind(held.ending), m.END_REASON_UNSPECIFIED)
    return m.Lost(hold=translation.hold(held, session.ttl_s), reason=reason, detail=held.ending)


def _attached(session: Session, sequence: int) -> m.SessionResponse:
    attached = m.Attached(sequence=sequence, ttl_ms=_ms(session.ttl_s), holds=_holds(session))
    return m.SessionResponse(attached=attached)


def _holds(session: Session) -> list[m.Hold]:
    return [translation.hold(held, session.ttl_s) for held in session.served.holds.live()]


def _ms(seconds: float) -> int:
    return round(1000 * seconds)
