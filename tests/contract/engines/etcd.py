"""The etcd engine, on three members that all tests of a run share, each test under a prefix of its own."""

import itertools
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.drivers.etcd.http2.status import CallFailed
from fencehold.drivers.http2.codes import Code
from fencehold.engines.etcd import EtcdBounds, EtcdJournal
from rig.etcd import EtcdCluster
from tests.contract.engines.standing import kill_some, own_folder, stand
from tests.contract.harness import Cluster
from tests.unit.drivers.etcd.between import Between, GoOn

BOUNDS = EtcdBounds(call_s=3.0)
"""More than the default: machines that run tests are busy."""
_numbers = itertools.count(1)


@cache
def members() -> EtcdCluster:
    """Three members, started by the first who asks, and ended with the process."""
    return stand(EtcdCluster, own_folder("etcd"))


def fresh_address() -> EtcdAddress:
    """Where no journal was before."""
    return EtcdAddress.parse(members().url(f"test/{next(_numbers)}"))


class SharedMembers:
    """The members, as something that can be killed."""

    size = 3
    # The deadline of a call, and another one for what a busy machine adds.
    answer_s = 2 * BOUNDS.call_s

    def kill(self, count: int) -> None:
        kill_some(members(), self.size, count)

    def restore(self) -> None:
        members().restore()


class Middle(Between):
    """Stands between a journal and its members, and makes the tries of some calls go wrong on the way.

    The plan has a word for each try to come: `lose` its reply, `refuse` it, `hold` it back; others pass.
    """

    def __init__(self, puts: bytes = b"/entries/") -> None:
        """Of those transactions that put one key, with this in its name: by default appends."""
        self._puts = puts
        self.plan: list[str] = []
        self.tries = 0
        self.on_lost: Callable[[], Awaitable[object]] | None = None
        """What happens between a reply that is lost and the next try."""
        self._held: list[GoOn] = []

    async def on_call(self, path: str, request: Any, go_on: GoOn) -> Any:
        if not self._is_meant(path, request):
            return await go_on()
        self.tries += 1
        word = self.plan.pop(0) if self.plan else "pass"
        if word == "refuse":
            raise CallFailed(Code.DATA_LOSS, "etcdserver: corrupt cluster")
        if word == "hold":
            self._held.append(go_on)
            raise CallFailed(Code.DEADLINE_EXCEEDED, "no answer in time")
        answer = await go_on()
        if word == "lose":
            await self._lose()
        return answer

    async def release(self) -> list[bool]:
        """Let the tries through that were held back; says which of them had an effect."""
        held, self._held = self._held, []
        return [(await go_on(timeout=5.0)).succeeded for go_on in held]

    async def _lose(self) -> None:
        if self.on_lost is not None:
            await self.on_lost()
        raise CallFailed(Code.UNAVAILABLE, "it hung up")

    def _is_meant(self, path: str, request: Any) -> bool:
        if path != "/etcdserverpb.KV/Txn" or len(request.success) != 1:
            return False
        return self._puts in request.success[0].request_put.key


class EtcdHarness:
    volume = 1_000

    def __init__(self, path: Path) -> None:
        self.cluster: Cluster | None = SharedMembers()
        self.address = fresh_address()
        self.middle = Middle()
        members()

    def handle(self) -> EtcdJournal:
        return EtcdJournal(self.address, bounds=BOUNDS, connect=self.middle.connect)

    quick_handle = handle

    def lose_next_reply(self) -> None:
        self.middle.plan = ["lose"]

    def fail_next_append(self) -> None:
        self.middle.plan = ["refuse"]
