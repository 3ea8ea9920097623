"""Creation: the znodes of an empty journal, made by whoever opens it first.

1. All of them are made by one transaction, so a journal is there whole or not at all.
2. That transaction is asked for at every opening. Where the journal is there already it fails, and its failing
   makes what is read afterwards current.
"""

from typing import Any

from kazoo.exceptions import NodeExistsError, NoNodeError

from fencehold.engines.zookeeper.layout import NO_POINTER, STUB, Layout
from fencehold.engines.zookeeper.writes import Asker, Failed, failed, transaction
from fencehold.types import BEGINNING


async def create(asker: Asker, layout: Layout, deadline_at: float) -> None:
    """Make an empty journal if there is none."""
    problem = await _create(asker, layout, deadline_at)
    if problem is not None and problem.is_a(NoNodeError, 0):
        for path in layout.ancestors():
            await asker.make(path, b"", deadline_at)
        problem = await _create(asker, layout, deadline_at)
    if problem is not None and not problem.is_a(NodeExistsError, 0):
        raise asker.link.refusal(problem.error)


async def _create(asker: Asker, layout: Layout, deadline_at: float) -> Failed | None:
    def fill(request: Any) -> None:
        request.create(layout.epoch)
        request.create(layout.entries)
        request.create(layout.bucket(0))
        request.create(layout.entry(BEGINNING), STUB)
        request.create(layout.pointer, NO_POINTER)
        request.create(layout.snapshots)

    answer = await asker.read_one(transaction(fill), deadline_at)
    return failed(answer.value)
