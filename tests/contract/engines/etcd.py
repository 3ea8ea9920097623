"""The etcd engine, on three members that all tests of a run share, each test under a prefix of its own."""

import itertools
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

import grpc

from fencehold.engines.etcd import Bounds, EtcdJournal
from fencehold.etcd.address import Address, parse
from rig.etcd import EtcdCluster
from tests.contract.engines.standing import kill_some, own_folder, stand
from tests.contract.harness import Cluster

BOUNDS = Bounds(call_s=3.0)
"""More than the default: machines that run tests are busy."""
_numbers = itertools.count(1)


@cache
def members() -> EtcdCluster:
    """Three members, started by the first who asks, and ended with the process."""
    return stand(EtcdCluster, own_folder("etcd"))


def fresh_address() -> Address:
    """Where no journal was before."""
    return parse(members().url(f"test/{next(_numbers)}"))


class SharedMembers:
    """The members, as something that can be killed."""

    size = 3
    # The deadline of a call, and another one for what a busy machine adds.
    answer_s = 2 * BOUNDS.call_s

    def kill(self, count: int) -> None:
        kill_some(members(), self.size, count)

    def restore(self) -> None:
        members().restore()


Continuation = Callable[[Any, Any], Awaitable[Any]]


class Middle(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc]
    """Stands between a journal and its members, and makes the tries of appends go wrong on the way.

    The plan has a word for each try to come: `lose` its reply, `refuse` it, `hold` it back; others pass.
    """

    def __init__(self) -> None:
        self.plan: list[str] = []
        self.tries = 0
        self.on_lost: Callable[[], Awaitable[object]] | None = None
        """What happens between a reply that is lost and the next try."""
        self._held: list[tuple[Continuation, Any, Any]] = []

    async def intercept_unary_unary(self, go_on: Continuation, details: Any, request: Any) -> Any:
        if not _is_append(details, request):
            return await go_on(details, request)
        self.tries += 1
        word = self.plan.pop(0) if self.plan else "pass"
        if word == "refuse":
            raise failed(grpc.StatusCode.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded")
        if word == "hold":
            self._held.append((go_on, details, request))
            raise failed(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded")
        call = await go_on(details, request)
        if word == "lose":
            await self._lose(call)
        return call

    async def release(self) -> list[bool]:
        """Let the tries through that were held back; says which of them had an effect."""
        held, self._held = self._held, []
        answers = [await (await go_on(details._replace(timeout=5.0), request)) for go_on, details, request in held]
        return [answer.succeeded for answer in answers]

    async def _lose(self, call: Any) -> None:
        await call
        if self.on_lost is not None:
            await self.on_lost()
        raise failed(grpc.StatusCode.UNAVAILABLE, "Socket closed")


def failed(code: Any, text: str) -> Any:
    """The error a call ends with."""
    return grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=text)


def _is_append(details: Any, request: Any) -> bool:
    if bytes(details.method) != b"/etcdserverpb.KV/Txn" or len(request.success) != 1:
        return False
    return b"/entries/" in request.success[0].request_put.key


class EtcdHarness:
    volume = 1_000

    def __init__(self, path: Path) -> None:
        self.cluster: Cluster | None = SharedMembers()
        self.address = fresh_address()
        self.middle = Middle()
        members()

    def handle(self) -> EtcdJournal:
        return EtcdJournal(self.address, bounds=BOUNDS, interceptors=[self.middle])

    quick_handle = handle

    def lose_next_reply(self) -> None:
        self.middle.plan = ["lose"]

    def fail_next_append(self) -> None:
        self.middle.plan = ["refuse"]
