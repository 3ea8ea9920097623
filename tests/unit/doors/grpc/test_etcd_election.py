"""What is seen of an election while its leader resigns."""

from types import SimpleNamespace
from typing import Any

from fencehold.doors.grpc.etcd_election import PROCLAIMED, EtcdElectionServicer
from fencehold.gateway.credentials import ANONYMOUS
from fencehold.locks.views import Holder, party


def holder(fence: int, session: int, **meta: str) -> Holder:
    return Holder(party(session, "", ""), fence, "X", 1, 1.0, None, meta)


class Upstream:
    """Answers looks one after the other: at the name, at what was proclaimed, at the name, …"""

    def __init__(self, *looks: list[Holder]) -> None:
        self._looks = list(looks)
        self.asked: list[str] = []

    async def shared(self, _: object) -> Any:
        return SimpleNamespace(client=self)

    async def explain(self, name: str, limit: int) -> Any:
        self.asked.append(name)
        return SimpleNamespace(holders=tuple(self._looks.pop(0)[:limit]))


async def seen(*looks: list[Holder]) -> tuple[Any, Upstream]:
    upstream: Any = Upstream(*looks)
    unused: Any = None
    return await EtcdElectionServicer(unused, unused, upstream, unused)._seen("lead", ANONYMOUS), upstream


async def test_a_leader_that_resigns_between_two_looks_is_not_seen_with_its_first_words() -> None:
    """What it had proclaimed is gone already, and so is its term: another look finds its successor."""
    one, two = holder(7, 1), holder(9, 2)
    told, upstream = await seen([one], [], [two], [], [two])
    assert (told.term, told.revision) == (9, 9)
    assert upstream.asked == ["lead", "lead" + PROCLAIMED, "lead", "lead" + PROCLAIMED, "lead"]
    assert (await seen([one], [], []))[0] is None


async def test_a_leader_that_has_proclaimed_nothing_is_seen() -> None:
    """It leads before and after it was looked what it has said."""
    one = holder(7, 1)
    told, _ = await seen([one], [], [one])
    assert (told.term, told.revision, told.version) == (7, 7, 1)
