"""WatchService: events, the history of a name, and the shard map."""

from collections.abc import AsyncIterator
from contextlib import aclosing

from fencehold.doors.grpc import translation
from fencehold.doors.grpc.calls import Call
from fencehold.errors import UsageError
from fencehold.gateway.questions import Questions
from fencehold.locks import history
from fencehold.types import CORRECTNESS
from fencehold.wire import messages as m

_TIMES = (("AT", "at_unix_ms"), ("SINCE", "since_unix_ms"), ("UNTIL", "until_unix_ms"))


class WatchServicer:
    """Called by gRPC; see `proto/fencehold/v1/fencehold.proto` for what it promises."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    async def watch(self, request: m.WatchRequest, call: Call) -> AsyncIterator[m.WatchResponse]:
        credentials, tier = call.credentials(), translation.tier_of(request.tier)
        shards = await self._questions.shards(credentials)
        events = self._questions.events(credentials, tier, request.prefix, translation.places(request, shards))
        async with aclosing(events) as told:
            async for seen in told:
                yield translation.told(seen)

    async def history(self, request: m.HistoryRequest, call: Call) -> m.HistoryResponse:
        if not request.name:
            raise UsageError("name must not be empty")
        words: list[str | int] = ["LOCK.HISTORY", request.name]
        for option, field in _TIMES:
            words += [option, getattr(request, field)] if request.HasField(field) else []
        words += ["COUNT", min(request.limit, history.LIMIT_MAX) or history.LIMIT]
        found = await self._questions.ask(call.credentials(), CORRECTNESS, *words)
        return translation.history(history.history_of(found))

    async def shard_map(self, _: m.ShardMapRequest, call: Call) -> m.ShardMapResponse:
        placed, leaders = await self._questions.shard_map(call.credentials())
        ranges = [m.SlotRange(first=each.first, last=each.last, shard=each.shard) for each in placed.ranges]
        return m.ShardMapResponse(version=placed.version, shards=placed.shards, ranges=ranges, leaders=leaders)
