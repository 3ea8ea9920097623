"""Batches: transactions of one client that travel together, as one which etcd's members agree upon once.

1. *One leaves at once while few calls are under way.* Others gather until one of those is answered, and leave as
   one.
2. *No name is twice in a batch*: its transactions would not see one another, and keys made at one revision have no
   order. The second of a name leaves after the first, which does not wait for anybody then.
3. *A batch is not called back* because one of those who are in it stops waiting.
"""

import asyncio
from typing import NamedTuple

from fencehold.drivers.etcd.cluster import Answer, Cluster
from fencehold.drivers.etcd.transactions import Message, nested, transaction
from fencehold.errors import FenceholdError

_CALLS_MAX = 2
"""Calls under way, beyond which others gather."""
_TOGETHER_MAX = 64
"""etcd takes 128 steps in a transaction, unless it is told otherwise."""
_BYTES_MAX = 256 << 10
"""Far below the largest request that etcd takes: one that is too large for it travels alone."""


class Told(NamedTuple):
    """What became of one transaction."""

    succeeded: bool
    responses: list[Message]
    revision: int
    """Of etcd, then: that of its changes, if it made any."""
    doubted: bool = False
    """An earlier try may have arrived, and may be what this one found."""


class _Item(NamedTuple):
    request: Message
    told: "asyncio.Future[Told]"


class Batches:
    """Those of one client."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._items: list[_Item] = []
        self._names: set[str] = set()
        self._bytes = 0
        self._calls: set[asyncio.Task[None]] = set()

    def transact(self, name: str, request: Message) -> "asyncio.Future[Told]":
        """Have a transaction done that concerns a name.

        Raises:
            Unavailable, OutcomeUnknown, NoLease: as `Cluster.transact` does, for all of a batch.
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
        """Call all back."""
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


def told_of(answer: Answer) -> Told:
    """What became of a transaction that travelled alone."""
    message = answer.message
    return Told(message.succeeded, list(message.responses), message.header.revision, answer.doubted)


def _as_one(requests: list[Message]) -> Message:
    if len(requests) == 1:
        return requests[0]
    return transaction(then=[nested(each) for each in requests])


def _apart(answer: Answer, count: int) -> list[Told]:
    if count == 1:
        return [told_of(answer)]
    revision = answer.message.header.revision
    each = [response.response_txn for response in answer.message.responses]
    return [Told(one.succeeded, list(one.responses), revision, answer.doubted) for one in each]


def _call_back(items: list[_Item]) -> None:
    """Tell those who were not told anything that nothing comes any more."""
    for item in items:
        item.told.cancel()


def _fail(told: "asyncio.Future[Told]", error: FenceholdError) -> None:
    if not told.done():
        told.set_exception(error)
        # Whoever waits for it is told; if nobody does any more, there is nobody to tell.
        told.exception()
