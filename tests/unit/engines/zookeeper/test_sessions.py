"""Sessions and connections that end: tails miss nothing, appends go on, and nothing is left behind."""

import asyncio
import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.client import KazooClient

from fencehold.drivers.zookeeper.address import ZookeeperAddress
from fencehold.drivers.zookeeper.client import AnswerLost, ZookeeperClient
from fencehold.drivers.zookeeper.kazoo_client import ZookeeperAnswer
from fencehold.engines.zookeeper import ZookeeperJournal
from fencehold.errors import OutcomeUnknown, Unavailable
from fencehold.types import Position
from rig.processes import free_port
from tests.contract.engines.zookeeper import PATIENCE_S, ensemble, fresh_root, journal_at
from tests.contract.harness import fill, leading, opened, read_all, run
from tests.contract.test_tail import Follower
from tests.unit.engines.zookeeper.valve import Valve, behind, unlinked, until, valve

pytestmark = pytest.mark.slow


def link_of(journal: ZookeeperJournal) -> ZookeeperClient:
    assert journal._running is not None
    return journal._running.client


def end(session: Any) -> None:
    """End a session as ZooKeeper would: whoever shows its secret may."""
    thief = KazooClient(",".join(ensemble().endpoints), client_id=session)
    thief.start(timeout=30)
    thief.stop()
    thief.close()


async def expired(front: Valve, journal: ZookeeperJournal) -> None:
    """The journal's session is ended while it is out of reach; when it is back, it begins another one."""
    link = link_of(journal)
    before, session = link._client, link._client.client_id
    front.shut()
    await unlinked(journal)
    await asyncio.to_thread(end, session)
    front.is_open = True
    await replaced(link, before)
    await link.ready(link.deadline_at(20))


async def replaced(link: ZookeeperClient, client: object) -> None:
    async def is_replaced() -> bool:
        return link._client is not client

    await until(is_replaced)


@pytest.mark.parametrize("leads", [False, True])
def test_a_session_that_expires_costs_nothing(leads: bool) -> None:
    """A new session takes its place: appends go on under the same epoch, and a tail misses nothing."""

    async def work(root: str) -> None:
        async with valve() as front, behind(front, root) as one, opened(journal_at(root)) as other:
            leader, standby = (one, other) if leads else (other, one)
            epoch = await leader.lead()
            follower = Follower(standby)
            records = await fill(leader, epoch, range(1, 6))
            await follower.until(5)
            await expired(front, one)
            records += await fill(leader, epoch, range(6, 11))
            await follower.until(10)
            assert await read_all(leader) == await read_all(standby) == records
        await follower.task
        assert follower.seen == records

    ensemble()
    run(work(fresh_root()))


def test_what_a_session_has_seen_the_next_one_sees() -> None:
    """The next session is begun with the newest transaction seen: no server may answer that is behind it."""

    async def work(root: str) -> None:
        async with valve() as front, behind(front, root) as journal:
            await fill(journal, await journal.lead(), range(1, 6))
            seen = link_of(journal)._client.last_zxid
            await expired(front, journal)
            assert link_of(journal)._zxid >= seen
            assert link_of(journal)._client.last_zxid >= seen

    ensemble()
    run(work(fresh_root()))


def test_what_a_client_says_after_its_session_has_ended_is_not_heard() -> None:
    """It may come from a server that is behind: it is as good as no answer."""

    async def work() -> None:
        link = ZookeeperClient(ZookeeperAddress((f"127.0.0.1:{free_port()}",)), session_timeout_s=6)
        future: asyncio.Future[ZookeeperAnswer] = asyncio.get_running_loop().create_future()
        link._settle(object(), future, SimpleNamespace(exception=None, value="old news"))
        assert isinstance((await future).error, AnswerLost)
        await link.stop()

    run(work())


def test_a_tail_outlasts_an_outage() -> None:
    """A tail without a connection waits for one, and then goes on where it was."""

    async def work(root: str) -> None:
        async with valve() as front, behind(front, root) as standby, leading(journal_at(root)) as (leader, epoch):
            follower = Follower(standby)
            records = await fill(leader, epoch, range(1, 6))
            await follower.until(5)
            front.shut()
            await unlinked(standby)
            records += await fill(leader, epoch, range(6, 41))
            front.is_open = True
            await follower.until(40)
            records += await fill(leader, epoch, range(41, 44))
            await follower.until(43)
            assert follower.seen == records
        await follower.task

    ensemble()
    run(work(fresh_root()))


def test_a_tail_ends_when_the_journal_is_closed_in_an_outage() -> None:
    """Closing does not wait for a server, and ends every tail without an error."""

    async def work(root: str) -> None:
        async with valve() as front, behind(front, root) as journal:
            follower = Follower(journal)
            await fill(journal, await journal.lead(), [1])
            await follower.until(1)
            front.shut()
            await unlinked(journal)
            await journal.close()
            await follower.task

    ensemble()
    run(work(fresh_root()))


def threads_of_kazoo() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("fencehold zookeeper")]


def test_no_thread_is_left_after_closing() -> None:
    """A handle has one thread while it is open, and none after, not even for the sessions it had before."""

    async def work(root: str) -> None:
        async with valve() as front:
            async with behind(front, root) as journal:
                await expired(front, journal)
                assert threads_of_kazoo()
            assert not threads_of_kazoo()

    ensemble()
    run(work(fresh_root()))


def test_closing_does_not_wait_for_a_server_that_is_silent() -> None:
    """A server that took the request and says nothing is hung up on."""

    async def work() -> None:
        silent = await asyncio.start_server(lambda reader, writer: held.append(writer), "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        journal = ZookeeperJournal(
            ZookeeperAddress((f"127.0.0.1:{port}",)), append_timeout_s=0.2, session_timeout_s=60
        )
        with pytest.raises(Unavailable):
            await journal.open()
        assert not threads_of_kazoo()
        silent.close()
        for writer in held:
            writer.close()

    held: list[asyncio.StreamWriter] = []
    run(work())


def test_an_ensemble_out_of_reach_is_unavailable_and_may_be_opened_later() -> None:
    """Nobody listens there: opening says so, leaves nothing behind, and can be tried again."""

    async def work() -> None:
        journal = ZookeeperJournal(ZookeeperAddress((f"127.0.0.1:{free_port()}",)), append_timeout_s=0.2)
        for _ in range(2):
            with pytest.raises(Unavailable, match="no server answered in time"):
                await journal.open()
            assert not threads_of_kazoo()
        await journal.close()

    run(work())


def test_kazoo_says_nothing_unless_asked(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Lost connections are no news to the log; and what kazoo sends is never in it, for it may be a password."""

    async def work(root: str) -> None:
        async with valve() as front, behind(front, root) as journal:
            front.lose_reply()
            await journal.lead()

    ensemble()
    run(work(fresh_root()))
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []
    with caplog.at_level(logging.DEBUG, logger="fencehold.drivers.zookeeper.kazoo"):
        run(work(fresh_root()))
    assert {record.levelno for record in caplog.records} == {logging.INFO, logging.WARNING}


def test_a_session_whose_thread_has_died_is_replaced() -> None:
    """Whatever ends kazoo's thread, the link goes on with another."""

    async def work(root: str) -> None:
        async with valve() as front, behind(front, root) as journal:
            link = link_of(journal)
            before: Any = link._client
            before.handler.select = broken
            await replaced(link, before)
            assert await journal.lead() == 1
        async with opened(journal_at(root)) as again:
            assert await again.lead() == 2
            assert await read_all(again, Position(0)) == []

    def broken(*_: object) -> None:
        raise ArithmeticError("injected")

    ensemble()
    run(work(fresh_root()))


def test_a_server_that_falls_silent_is_left_for_another() -> None:
    """Its connection stays, and nothing comes: after one deadline another is made, in the same session."""

    async def work(root: str) -> None:
        async with valve() as front, behind(front, root) as journal:
            epoch = await journal.lead()
            session = link_of(journal)._client.client_id
            front.hush()
            journal._append_timeout_s = 1.1
            with pytest.raises(OutcomeUnknown):
                await journal.append(b"entry", epoch=epoch, position=Position(1))
            journal._append_timeout_s = PATIENCE_S
            assert await journal.lead() == epoch + 1
            assert (front.connections, link_of(journal)._client.client_id) == (2, session)

    ensemble()
    run(work(fresh_root()))
