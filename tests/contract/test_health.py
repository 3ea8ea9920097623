"""Health: what an engine says of what keeps the journal, open or not, while its servers live and die."""

import asyncio

from fencehold.journal.health import Health
from tests.contract.harness import Cluster, Harness, opened

WITHIN_S = 10.0
"""Machines that run tests are busy."""


async def _settled(harness: Harness, up: int) -> Health:
    """Look until so many are up: a member that was just started is there before it knows a leader."""
    journal = harness.handle()
    async with asyncio.timeout(30):
        while True:
            found = await journal.health(WITHIN_S)
            if sum(member.is_up for member in found.members) == up:
                return found
            await asyncio.sleep(0.05)


async def test_a_journal_that_is_open_or_not_says_what_keeps_it(harness: Harness) -> None:
    """A disk with its room, or servers that are up; what keeps nothing says nothing."""
    async with opened(harness.handle()) as journal:
        found = await journal.health(WITHIN_S)
    closed = await journal.health(WITHIN_S)
    assert closed._replace(volume=None) == found._replace(volume=None)
    assert found.note == ""
    assert bool(found.volume) == (journal.declared.engine == "file")
    assert bool(found.members) == journal.declared.durable & journal.declared.shared
    if found.volume is not None:
        assert 0 < found.volume.free_bytes <= found.volume.total_bytes


async def test_all_servers_are_counted_and_those_that_are_gone_are_said_to_be(
    harness: Harness, cluster: Cluster
) -> None:
    """Before, while some are killed, and after; one of them leads."""
    whole = await _settled(harness, cluster.size)
    assert len(whole.members) == cluster.size
    leading = [one for one in whole.members if one.role in ("leader", "primary")]
    assert len(leading) == 1
    cluster.kill(1)
    less = await _settled(harness, cluster.size - 1)
    (gone,) = [one for one in less.members if not one.is_up]
    assert len(less.members) == cluster.size
    assert gone.note
    assert gone.address not in gone.note
    cluster.restore()
    assert len((await _settled(harness, cluster.size)).members) == cluster.size
