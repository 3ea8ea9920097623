"""WatchService: events of the service, as it tells them."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from fencehold.doors.grpc import translation
from fencehold.doors.grpc.statuses import streamed
from fencehold.gateway.questions import Questions
from fencehold.wire import messages as m


class WatchServicer:
    """Called by gRPC; see `proto/fencehold/v1/fencehold.proto` for what it promises."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    @streamed
    async def watch(self, request: m.WatchRequest, context: Any) -> AsyncIterator[m.WatchResponse]:
        index = request.from_index if request.HasField("from_index") else None
        credentials, tier = translation.credentials_of(context), translation.tier_of(request.tier)
        events = self._questions.events(credentials, tier, request.prefix, request.from_position, index)
        async with aclosing(events) as told:
            async for place, seen in told:
                if seen is None:
                    yield m.WatchResponse(watching=m.Watching(position=place))
                else:
                    yield translation.event(seen, place)
