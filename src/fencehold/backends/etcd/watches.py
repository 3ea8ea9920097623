"""Watches: being told by etcd when a key changes, all on one stream.

1. *A watch only says that it is worth looking.* One that broke, was compacted or hangs says so as well; what is
   true is read.
2. A stream is asked now and then whether it is still there. One that did not answer since is given up, and so is
   that of a member that is not asked any more.
"""

import asyncio
from contextlib import suppress
from typing import Any

from fencehold.backends.etcd.queues import Await
from fencehold.drivers.etcd import messages
from fencehold.drivers.etcd.cluster import Cluster
from fencehold.drivers.etcd.http2.status import CallFailed
from fencehold.drivers.etcd.transactions import Message


class Watch:
    """Something that is watched for. It belongs to whoever opened it, who closes it."""

    __slots__ = ("_woken", "events", "is_broken", "wanted")

    def __init__(self, wanted: Await) -> None:
        self.wanted = wanted
        self.events: list[Message] = []
        self.is_broken = False
        self._woken = asyncio.Event()

    async def wait(self) -> None:
        """Until there is something worth looking at."""
        await self._woken.wait()

    def wake(self) -> None:
        self._woken.set()

    def on_events(self, events: list[Message]) -> None:
        among = self.wanted.among
        told = [event for event in events if not among or event.kv.key in among]
        if told:
            self.events += told
            self._woken.set()

    def on_broken(self) -> None:
        self.is_broken = True
        self._woken.set()


class Watches:
    """All of one client."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._line: _Line | None = None
        self._lines: set[asyncio.Task[None]] = set()

    def open(self, wanted: Await, revision: int) -> Watch:
        """Watch from a revision on."""
        watch = Watch(wanted)
        if self._line is not None and self._line.endpoint != self._cluster.asked:
            self._end(self._line)
        line = self._line or self._begin()
        if line is None:
            watch.on_broken()
        else:
            line.add(watch, revision)
        return watch

    def close(self, watch: Watch) -> None:
        if self._line is not None:
            self._line.remove(watch)

    def check(self) -> None:
        """See to it that what is silent is not dead."""
        line = self._line
        if line is None:
            return
        if line.is_silent or line.endpoint != self._cluster.asked:
            self._end(line)
        else:
            line.ask()

    async def end(self) -> None:
        """Close all."""
        if self._line is not None:
            self._end(self._line)
        await asyncio.gather(*self._lines, return_exceptions=True)

    def _begin(self) -> "_Line | None":
        stream = self._cluster.stream()
        if stream is None:
            return None
        self._line = line = _Line(stream, self._cluster.asked)
        task = asyncio.create_task(self._live(line))
        self._lines.add(task)
        task.add_done_callback(self._lines.discard)
        return line

    async def _live(self, line: "_Line") -> None:
        try:
            await line.run()
        finally:
            self._end(line)

    def _end(self, line: "_Line") -> None:
        if self._line is line:
            self._line = None
        line.close()


class _Line:
    """One stream."""

    def __init__(self, stream: Any, endpoint: str) -> None:
        self.endpoint = endpoint
        self.is_silent = False
        """Whether it was asked and did not answer yet."""
        self._stream = stream
        self._watches: dict[int, Watch] = {}
        self._numbers: dict[Watch, int] = {}
        self._last = 0
        self._to_write: asyncio.Queue[Message] = asyncio.Queue()

    def add(self, watch: Watch, revision: int) -> None:
        self._last += 1
        self._watches[self._last] = watch
        self._numbers[watch] = self._last
        wanted = watch.wanted
        create = messages.WatchCreateRequest(
            key=wanted.span.start,
            range_end=wanted.span.end,
            start_revision=revision,
            watch_id=self._last,
            filters=() if wanted.changes else (messages.WatchCreateRequest.NOPUT,),
        )
        self._to_write.put_nowait(messages.WatchRequest(create_request=create))

    def remove(self, watch: Watch) -> None:
        number = self._numbers.pop(watch, 0)
        if number and self._watches.pop(number, None) is not None:
            cancel = messages.WatchCancelRequest(watch_id=number)
            self._to_write.put_nowait(messages.WatchRequest(cancel_request=cancel))

    def ask(self) -> None:
        self.is_silent = True
        self._to_write.put_nowait(messages.WatchRequest(progress_request=messages.WatchProgressRequest()))

    def close(self) -> None:
        """All watches of it are broken; who opened them looks, and opens others."""
        self._stream.cancel()
        watches, self._watches = self._watches, {}
        self._numbers.clear()
        for watch in watches.values():
            watch.on_broken()

    async def run(self) -> None:
        """Until it breaks or is closed."""
        writing = asyncio.create_task(self._write())
        try:
            with suppress(CallFailed):
                while (told := await self._stream.read()) is not None:
                    self._on_told(told)
        finally:
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def _write(self) -> None:
        try:
            while True:
                await self._stream.write(await self._to_write.get())
        except CallFailed:
            self._stream.cancel()

    def _on_told(self, told: Message) -> None:
        self.is_silent = False
        watch = self._watches.get(told.watch_id)
        if watch is None:
            return
        if told.canceled:
            # Its revision was compacted, or it is not allowed.
            del self._watches[told.watch_id]
            self._numbers.pop(watch, None)
            watch.on_broken()
        elif told.events:
            watch.on_events(list(told.events))
