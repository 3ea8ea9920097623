"""Watching, for threads: events of names with a prefix, as an iterator."""

from types import TracebackType
from typing import Self, cast

from fencehold.client.aio.carriers import channel_of
from fencehold.client.aio.channel import Channel
from fencehold.client.aio.watch import Watch as AsyncWatch
from fencehold.client.blocking.portal import one_by_one
from fencehold.client.blocking.routes import Route
from fencehold.errors import Unsupported
from fencehold.locks.views import Event


class Watch:
    """Events of names with a prefix. Iterate over it; leave it with `with`, or by `close`."""

    __slots__ = ("_portal", "_watch")

    def __init__(self, route: Route, prefix: str, after: str | tuple[int, int] | int | None = None) -> None:
        if not route.guarantees.watches:
            raise Unsupported(f"{route.guarantees.backend}:// has no events; the Fencehold service does")
        self._portal = route.portal()
        channel = cast("Channel", channel_of(self._portal.channel))
        self._watch = AsyncWatch(channel, prefix, after)

    @property
    def places(self) -> str:
        """Up to where it has delivered the events of each shard: `watch(after=…)` resumes from there.

        Raises:
            UsageError: it has not begun, or watches several cells: those have no common order of shards.
        """
        return self._watch.places

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        event: Event = next(one_by_one(self._portal, self._watch))
        return event

    def close(self) -> None:
        """Stop watching. It does not wait, and may be called after the client was closed."""
        # This may be the portal's own thread, garbage-collecting an iterator that was not closed.
        self._portal.run_soon(self._watch.close())

    def __enter__(self) -> Self:
        """Once entered, no event is missed."""
        self._portal.run(self._watch.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
