"""LockService: each RPC is one verb of the client that is served."""

from fencehold.doors.grpc import translation
from fencehold.doors.grpc.calls import Call, undo_if_unheard
from fencehold.errors import FenceholdError, OutcomeUnknown, UsageError
from fencehold.gateway.holds import Held
from fencehold.gateway.lists import Lists
from fencehold.gateway.questions import Questions
from fencehold.gateway.served_client import Ask, ServedClient, check_sessionless
from fencehold.gateway.sessions import Session, Sessions
from fencehold.gateway.upstream import SHARED_TTL_S, Upstream
from fencehold.wire import messages as m

_EXPLAIN_MAX, _PAGE_MAX, _PAGE = 1_000, 1_000, 100
_A_FEW = 3


class LockServicer:
    """Called by gRPC; see `proto/fencehold/v1/fencehold.proto` for what each promises."""

    def __init__(self, upstream: Upstream, sessions: Sessions, questions: Questions) -> None:
        self._upstream = upstream
        self._sessions = sessions
        self._questions = questions

    async def lock(self, request: m.LockRequest, call: Call) -> m.LockResponse:
        held, at_most_s, client = await self._acquired(request, call)
        if held is not None:
            return m.LockResponse(hold=translation.hold(held, at_most_s))
        return m.LockResponse(not_acquired=await _not_acquired(client, request, request.name))

    async def multi_lock(self, request: m.MultiLockRequest, call: Call) -> m.MultiLockResponse:
        if not request.names:
            raise UsageError("names must not be empty")
        held, at_most_s, client = await self._acquired(request, call)
        if held is not None:
            return m.MultiLockResponse(hold=translation.hold(held, at_most_s))
        return m.MultiLockResponse(not_acquired=await _not_acquired(client, request, min(request.names)))

    async def unlock(self, request: m.UnlockRequest, call: Call) -> m.UnlockResponse:
        client, _ = await self._served(request.session, call)
        is_repeated = translation.attempts_before(call) > 0
        await client.release(request.hold_id, request.name, request.fence, is_repeated=is_repeated)
        return m.UnlockResponse()

    async def extend(self, request: m.ExtendRequest, call: Call) -> m.ExtendResponse:
        client, session = await self._served(request.session, call)
        if session is None and not request.ttl_ms:
            raise UsageError("without a session, ttl_ms is needed: how long the hold may last")
        held = await client.extend(request.hold_id, request.name, request.fence, request.ttl_ms)
        return m.ExtendResponse(hold=translation.hold(held, _at_most_s(session)))

    async def withdraw(self, request: m.WithdrawRequest, call: Call) -> m.WithdrawResponse:
        client, _ = await self._served(request.session, call)
        return m.WithdrawResponse(was_held=await client.withdraw(request.request_id))

    async def explain(self, request: m.ExplainRequest, call: Call) -> m.ExplainResponse:
        shared = await self._upstream.shared(call.credentials())
        limit = min(request.limit, _EXPLAIN_MAX) or 100
        seen = await shared.client.explain(request.name, limit=limit, tier=translation.tier_of(request.tier))
        return m.ExplainResponse(explanation=translation.explanation(seen))

    async def list(self, request: m.ListRequest, call: Call) -> m.ListResponse:
        count = min(request.page_size, _PAGE_MAX) or _PAGE
        lists = Lists(self._questions, call.credentials(), translation.tier_of(request.tier))
        page = await lists.names(request.page_token, count, request.prefix)
        locks = [translation.summary(row) for row in page.items]
        return m.ListResponse(locks=locks, next_page_token=page.cursor, stale_shards=page.stale_shards)

    async def break_(self, request: m.BreakRequest, call: Call) -> m.BreakResponse:
        shared = await self._upstream.shared(call.credentials())
        tier = translation.tier_of(request.tier)
        return m.BreakResponse(fence=await shared.client.break_hold(request.name, fence=request.fence, tier=tier))

    async def _served(self, session_id: str, call: Call) -> tuple[ServedClient, Session | None]:
        """The client that a call is for; without a session, the one of its login."""
        credentials = call.credentials()
        if not session_id:
            return await self._upstream.shared(credentials), None
        session = self._sessions.find(session_id, credentials)
        return session.served, session

    async def _acquired(
        self, request: m.LockRequest | m.MultiLockRequest, call: Call
    ) -> tuple[Held | None, float, ServedClient]:
        ask = translation.ask_of(request, call)
        if not request.session:
            check_sessionless(ask)
        _check_retry(ask, call)
        client, session = await self._served(request.session, call)
        held = await client.acquire(ask)
        if held is not None:
            if session is not None:
                session.tell_grant(held)
            undo_if_unheard(call, client, held)
        return held, _at_most_s(session), client


def _at_most_s(session: Session | None) -> float:
    return SHARED_TTL_S if session is None else session.ttl_s


def _check_retry(ask: Ask, call: Call) -> None:
    """A retry that cannot be distinguished from a new request might wait for what the first attempt was
    granted."""
    if not ask.request_id and translation.attempts_before(call):
        raise OutcomeUnknown(
            "the first attempt may have been granted, and has no request_id: inspect the lock before retrying"
        )


async def _not_acquired(
    client: ServedClient, request: m.LockRequest | m.MultiLockRequest, name: str
) -> m.NotAcquired:
    if not request.explain:
        return m.NotAcquired()
    try:
        seen = await client.client.explain(name, limit=_A_FEW, tier=translation.tier_of(request.tier))
    except FenceholdError:
        # Naming the holder is a courtesy: the answer is that it was not acquired.
        return m.NotAcquired()
    return m.NotAcquired(explanation=translation.explanation(seen))
