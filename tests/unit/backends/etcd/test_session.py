"""A client's lease in etcd: what is believed of its renewals. The members are played, and lie as old ones did."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace as Message
from typing import Any, cast

from fencehold.backends.etcd.calls import KeyWatches
from fencehold.backends.etcd.queues import LockKeys
from fencehold.backends.etcd.session import EtcdSession
from fencehold.drivers.etcd import messages
from fencehold.drivers.etcd.client import EtcdAnswer
from fencehold.errors import OutcomeUnknown
from fencehold.locks.trust import margin
from tests.behaviour.asking import until

TTL_S = 3
WITNESS = 40


class Members:
    """Answers as it is told to."""

    asked = "nobody"

    def __init__(self) -> None:
        self.ttl_s = TTL_S
        self.has_witness = True
        self.renewed_in = self.agreed_in = (1, 5)
        """The member and the term that answer a renewal, and the transaction after it."""
        self.is_silent = False
        self.renewals = 0

    async def grant_lease(self, lease: int, ttl_s: int) -> int:
        return self.ttl_s

    async def keep_alive(self, lease: int, within_s: float) -> Any:
        self.renewals += 1
        if self.is_silent:
            raise OutcomeUnknown("no answer")
        return Message(TTL=self.ttl_s, header=_header(self.renewed_in))

    async def transact(self, request: Any, within_s: float | None = None) -> EtcdAnswer:
        return EtcdAnswer(Message(succeeded=self.has_witness, header=_header(self.agreed_in)), False)

    async def read(self, request: Any) -> Any:
        pairs = [messages.KeyValue(key=b"/app/clients/", create_revision=0)]
        return messages.TxnResponse(
            responses=[messages.ResponseOp(response_range=messages.RangeResponse(kvs=pairs))]
        )

    def stream(self) -> None:
        """There are no watches here."""


def _header(voice: tuple[int, int]) -> Any:
    return Message(revision=WITNESS, member_id=voice[0], raft_term=voice[1])


class Owner:
    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.beats = asyncio.Event()

    def on_over(self, session: EtcdSession, reason: str) -> None:
        self.reasons.append(reason)

    def on_taken(self, session: EtcdSession, token: str) -> None:
        """Not played here."""

    def on_beat(self, session: EtcdSession) -> None:
        self.beats.set()


class Play:
    """A session, its owner, and a clock that is set by hand."""

    def __init__(self) -> None:
        self.members = Members()
        self.owner = Owner()
        self.now = 100.0
        cluster = cast(Any, self.members)
        self.session = EtcdSession(cluster, KeyWatches(cluster), LockKeys("/app/"), self.owner, lambda: self.now)


@asynccontextmanager
async def opened() -> AsyncIterator[Play]:
    play = Play()
    await play.session.open(TTL_S, "somebody")
    try:
        yield play
    finally:
        await play.session.close()


def test_a_renewal_is_trusted_from_when_it_was_sent() -> None:
    """For as long as etcd said, less a margin."""

    async def main() -> None:
        async with opened() as play:
            assert play.session.trust.end == 100 + TTL_S - margin(TTL_S)
            play.now = 101.0
            await asyncio.wait_for(play.owner.beats.wait(), 10)
            assert play.session.trust.end == 101 + TTL_S - margin(TTL_S)

    asyncio.run(main())


def test_a_renewal_by_one_who_led_once_is_not_trusted() -> None:
    """The members agree in another term than that of the renewal: it is asked for again, and trusted then."""

    async def main() -> None:
        async with opened() as play:
            play.members.agreed_in = (1, 6)
            before = play.session.trust.end
            play.now = 101.0
            await until(lambda: play.members.renewals >= 3)
            assert play.session.trust.end == before
            assert not play.owner.beats.is_set()
            play.members.renewed_in = (1, 6)
            await asyncio.wait_for(play.owner.beats.wait(), 10)
            assert play.session.trust.end > before

    asyncio.run(main())


def test_a_renewal_of_a_lease_that_is_gone_ends_the_session() -> None:
    """Though it is answered with a time to live: the witness went with the lease."""

    async def main() -> None:
        async with opened() as play:
            play.members.has_witness = False
            await until(lambda: play.session.ending)
            assert "lease is gone" in play.owner.reasons[0]
            assert play.session.trust.end < 0

    asyncio.run(main())


def test_a_session_that_hears_nothing_ends_by_itself() -> None:
    """When its trust runs out, and it stays over, whatever is answered later."""

    async def main() -> None:
        async with opened() as play:
            play.members.is_silent = True
            await until(lambda: play.members.renewals >= 2)
            play.now = 200.0
            await until(lambda: play.session.ending)
            play.members.is_silent = False
            play.session.end("for another reason")
            assert play.owner.reasons == ["no keep-alive was answered in time"]

    asyncio.run(main())
