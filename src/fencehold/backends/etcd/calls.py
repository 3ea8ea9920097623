"""How a client's transactions are batched, and how it watches keys.

1. *A transaction is sent at once while few calls are in flight.* Others gather until one of those is answered, and
   are sent as one, which etcd's members agree upon once.
2. *No name is twice in a batch*: its transactions would not see one another, and keys made at one revision have no
   order. The second of a name is sent after the first, which is sent at once then.
3. *A batch is not cancelled* because one of its callers stops waiting.
4. *A watch only says that it is worth reading.* So does one that broke, was compacted or hangs; the state is read.
   All watches are on one stream.
5. A stream is probed at each renewal. One that has not answered since is dropped, and so is that of a member that
   is no longer in use.
"""

import asyncio
from contextlib import suppress
from typing import Any, NamedTuple

from fencehold.drivers.etcd import messages
from fencehold.drivers.etcd.client import EtcdAnswer, EtcdClient
from fencehold.drivers.etcd.http2.status import CallFailed
from fencehold.drivers.etcd.transactions import Message, nested, transaction
from fencehold.errors import FenceholdError

_CALLS_MAX = 2
"""Calls in flight, beyond which others gather."""
_TOGETHER_MAX = 64
"""etcd allows 128 operations in a transaction, unless configured otherwise."""
_BYTES_MAX = 256 << 10
"""Far below the largest request that etcd accepts: a transaction larger than this is sent alone."""


class TransactionResult(NamedTuple):
    """The result of one transaction."""

    succeeded: bool
    responses: list[Message]
    revision: int
    """Of etcd, then: that of its changes, if it made any."""
    doubted: bool = False
    """An earlier try may have arrived, and may be what this one found."""


class _Item(NamedTuple):
    request: Message
    told: "asyncio.Future[TransactionResult]"


class Batches:
    """The batches of one client."""

    def __init__(self, cluster: EtcdClient) -> None:
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._items: list[_Item] = []
        self._names: set[str] = set()
        self._bytes = 0
        self._calls: set[asyncio.Task[None]] = set()

    def transact(self, name: str, request: Message) -> "asyncio.Future[TransactionResult]":
        """Have a transaction about a name done.

        Raises:
            Unavailable, OutcomeUnknown, NoLease: as `EtcdClient.transact` does, for all of a batch.
        """
        size = request.ByteSize()
        if name in self._names or self._bytes + size > _BYTES_MAX:
            self._leave()
        item = _Item(request, self._loop.create_future())
        self._items.append(item)
        self._names.add(name)
        self._bytes += size
        if len(self._items) >= _TOGETHER_MAX or len(self._calls) < _CALLS_MAX:
            self._leave()
        return item.told

    async def end(self) -> None:
        """Cancel all."""
        _call_back(self._items)
        self._items = []
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    def _leave(self) -> None:
        items, self._items = self._items, []
        self._names.clear()
        self._bytes = 0
        if items:
            call = self._loop.create_task(self._carry(items))
            self._calls.add(call)
            call.add_done_callback(lambda call: self._on_done(call, items))

    def _on_done(self, call: "asyncio.Task[None]", items: list[_Item]) -> None:
        _call_back(items)
        self._calls.discard(call)
        if len(self._calls) < _CALLS_MAX:
            self._leave()

    async def _carry(self, items: list[_Item]) -> None:
        try:
            answer = await self._cluster.transact(_as_one([item.request for item in items]))
        except FenceholdError as error:
            for item in items:
                _fail(item.told, error)
        else:
            for item, told in zip(items, _apart(answer, len(items)), strict=True):
                if not item.told.done():
                    item.told.set_result(told)


def told_of(answer: EtcdAnswer) -> TransactionResult:
    """The result of a transaction that was sent alone."""
    message = answer.message
    return TransactionResult(message.succeeded, list(message.responses), message.header.revision, answer.doubted)


def _as_one(requests: list[Message]) -> Message:
    if len(requests) == 1:
        return requests[0]
    return transaction(then=[nested(each) for each in requests])


def _apart(answer: EtcdAnswer, count: int) -> list[TransactionResult]:
    if count == 1:
        return [told_of(answer)]
    revision = answer.message.header.revision
    each = [response.response_txn for response in answer.message.responses]
    return [TransactionResult(one.succeeded, list(one.responses), revision, answer.doubted) for one in each]


def _call_back(items: list[_Item]) -> None:
    """Cancel the futures that have no result: none will come."""
    for item in items:
        item.told.cancel()


def _fail(told: "asyncio.Future[TransactionResult]", error: FenceholdError) -> None:
    if not told.done():
        told.set_exception(error)
        # Retrieved here: without a waiting caller, asyncio must not complain about an unretrieved exception.
        told.exception()


class KeyRange(NamedTuple):
    """A range of keys."""

    start: bytes
    end: bytes


class WatchedKeys(NamedTuple):
    """What to watch until it is worth reading again."""

    span: KeyRange
    among: frozenset[bytes]
    """Only the end of one of these matters; empty: whatever happens there does."""
    changes: bool
    """Not only deletions: a key is touched when its ask is granted."""


class KeyWatch:
    """Something that is watched for. Its opener closes it."""

    __slots__ = ("_woken", "events", "is_broken", "wanted")

    def __init__(self, wanted: WatchedKeys) -> None:
        self.wanted = wanted
        self.events: list[Message] = []
        self.is_broken = False
        self._woken = asyncio.Event()

    async def wait(self) -> None:
        """Until there is a reason to read."""
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


class KeyWatches:
    """All watches of one client."""

    def __init__(self, cluster: EtcdClient) -> None:
        self._cluster = cluster
        self._stream: _WatchStream | None = None
        self._streams: set[asyncio.Task[None]] = set()

    def open(self, wanted: WatchedKeys, revision: int) -> KeyWatch:
        """KeyWatch from a revision on."""
        watch = KeyWatch(wanted)
        if self._stream is not None and self._stream.endpoint != self._cluster.asked:
            self._end(self._stream)
        stream = self._stream or self._begin()
        if stream is None:
            watch.on_broken()
        else:
            stream.add(watch, revision)
        return watch

    def close(self, watch: KeyWatch) -> None:
        if self._stream is not None:
            self._stream.remove(watch)

    def check(self) -> None:
        """Probe the stream, and drop it if it did not answer the last probe."""
        stream = self._stream
        if stream is None:
            return
        if stream.is_silent or stream.endpoint != self._cluster.asked:
            self._end(stream)
        else:
            stream.ask()

    async def end(self) -> None:
        """Close all."""
        if self._stream is not None:
            self._end(self._stream)
        await asyncio.gather(*self._streams, return_exceptions=True)

    def _begin(self) -> "_WatchStream | None":
        made = self._cluster.stream()
        if made is None:
            return None
        self._stream = stream = _WatchStream(made, self._cluster.asked)
        task = asyncio.create_task(self._live(stream))
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)
        return stream

    async def _live(self, stream: "_WatchStream") -> None:
        try:
            await stream.run()
        finally:
            self._end(stream)

    def _end(self, stream: "_WatchStream") -> None:
        if self._stream is stream:
            self._stream = None
        stream.close()


class _WatchStream:
    """One stream."""

    def __init__(self, stream: Any, endpoint: str) -> None:
        self.endpoint = endpoint
        self.is_silent = False
        """Whether it was probed and did not answer yet."""
        self._stream = stream
        self._watches: dict[int, KeyWatch] = {}
        self._numbers: dict[KeyWatch, int] = {}
        self._last = 0
        self._to_write: asyncio.Queue[Message] = asyncio.Queue()

    def add(self, watch: KeyWatch, revision: int) -> None:
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

    def remove(self, watch: KeyWatch) -> None:
        number = self._numbers.pop(watch, 0)
        if number and self._watches.pop(number, None) is not None:
            cancel = messages.WatchCancelRequest(watch_id=number)
            self._to_write.put_nowait(messages.WatchRequest(cancel_request=cancel))

    def ask(self) -> None:
        self.is_silent = True
        self._to_write.put_nowait(messages.WatchRequest(progress_request=messages.WatchProgressRequest()))

    def close(self) -> None:
        """All its watches are broken; their openers read again, and open others."""
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
            # Its revision was compacted, or it is not permitted.
            del self._watches[told.watch_id]
            self._numbers.pop(watch, None)
            watch.on_broken()
        elif told.events:
            watch.on_events(list(told.events))
