"""Nodes that their engine does not let in; and that changes of their role are told."""

import asyncio

import pytest

from fencehold.engines.file import FileJournal
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import NotAdmitted, OutcomeUnknown
from fencehold.journal.port import Opened
from fencehold.node.leader import Bounds
from fencehold.server import Config, Server
from fencehold.types import Epoch
from tests.unit.node.doubles import until
from tests.unit.node.test_cluster import QUICK, cluster


class Guarded(MemoryJournal):
    """A journal that lets nobody in, or nobody lead, while it is told so."""

    def __init__(self, store: MemoryStore, denied: str = "") -> None:
        super().__init__(store)
        self.denied = denied

    async def open(self) -> Opened:
        self._refuse("open")
        return await super().open()

    async def lead(self, known: Epoch | None = None) -> Epoch:
        self._refuse("lead")
        return await super().lead(known)

    def _refuse(self, what: str) -> None:
        if self.denied == what:
            raise NotAdmitted("no such user")


def server(journal: MemoryJournal, name: str = "a") -> Server:
    return Server(Config(node=name, port=0, patience=QUICK, leader=Bounds(tick_s=0.02)), journal=journal)


async def started_and_served(node: Server) -> None:
    await node.start()
    await node.serve()


async def taken_over(store: MemoryStore) -> None:
    """Somebody takes the next epoch, and does nothing with it."""
    journal = MemoryJournal(store)
    await journal.open()
    await journal.lead()
    await journal.close()


@pytest.mark.parametrize("what", ["open", "lead"])
async def test_a_node_that_is_not_let_in_from_the_start_ends(what: str) -> None:
    """Whoever started it hears why; trying for ever would only hide it."""
    node = server(Guarded(MemoryStore(), what))
    with pytest.raises(NotAdmitted):
        await started_and_served(node)
    await node.stop()


async def test_a_node_that_was_let_in_goes_on_trying() -> None:
    """A password that is changed under it is not its end: somebody may change it back."""
    store = MemoryStore()
    journal = Guarded(store)
    async with server(journal) as node:
        await until(lambda: node.node.leads)
        journal.denied = "open"
        await taken_over(store)
        await until(lambda: node.node.notes == ("trying again: no such user",))
        assert node.node.role == "waiting"
        journal.denied = ""
        await until(lambda: node.node.leads)


async def test_a_standby_that_may_not_lead_goes_on() -> None:
    """It has followed another, so its engine knows it."""
    async with cluster("a") as (nodes, (a,)):
        journal = Guarded(nodes.store, "lead")
        b = nodes.servers["b"] = server(journal, "b")
        await b.start()
        await nodes.stands_by(b, a)
        await a.stop()
        await until(lambda: b.node.notes == ("trying again: no such user",))
        journal.denied = ""
        await until(lambda: b.node.leads)


async def test_changes_of_the_role_are_told() -> None:
    """Each of them, in order, whoever leads."""
    async with cluster("a", "b") as (nodes, (a, b)):
        seen: list[tuple[str, str]] = []
        b.node.on_changed = lambda: seen.append((b.node.role, b.node.leader.name))
        c = await nodes.start("c")
        await nodes.stands_by(c, a)
        await a.stop()
        await until(lambda: b.node.leads)
        assert seen[-1] == ("leader", "a")
        await taken_over(nodes.store)
        await until(lambda: any(role == "waiting" for role, _ in seen))


async def test_a_name_alone_makes_no_cluster_of_a_journal_with_one_owner(tmp_path: object) -> None:
    """A file that could not be synced must end the server, whatever it is called."""
    journal = FileJournal(str(tmp_path))
    alone = Server(Config(node="a", port=0), journal=journal)
    assert not alone.is_clustered
    await alone.start()
    ending = asyncio.create_task(alone.serve())

    async def fail(*_: object, **__: object) -> None:
        raise OutcomeUnknown("fdatasync failed")

    journal.append = fail  # type: ignore[method-assign]
    alone.node.ask(lambda state: state.fence, lambda _: None)
    with pytest.raises(OutcomeUnknown):
        await ending
    await alone.stop()
