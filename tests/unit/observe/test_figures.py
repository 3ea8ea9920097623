"""What a node looks up for the page of metrics."""

import re
from pathlib import Path

from fencehold.core.commands import OpenSession
from fencehold.engines.file.journal import FileJournal
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.journal.port import Journal
from fencehold.journal.sync_times import BOUNDS_S
from fencehold.observe.catalogue import SYNC_SECONDS
from fencehold.observe.figures import figures_of
from fencehold.observe.page import page
from tests.unit.node.test_node import serving, told


async def _page(journal: Journal) -> str:
    async with serving(journal) as node:
        await told(node, OpenSession(60_000, secret="s"))
        return page(figures_of([(node, None)])).decode()


def test_syncs_are_told_by_the_bounds_by_which_they_are_counted() -> None:
    """Listeners know the page, and no journal: so the bounds are written in both."""
    assert SYNC_SECONDS == BOUNDS_S


async def test_how_long_syncs_took_is_told_of_a_journal_with_a_disk_of_its_own(tmp_path: Path) -> None:
    """Apart from appends, of which they are a part: is it the disk? It goes on if the journal is opened again."""
    journal = FileJournal(tmp_path / "journal")
    before = 0
    for _ in range(2):
        text = await _page(journal)
        (count,) = re.findall(r'^fencehold_sync_seconds_count{shard="0"} (.*)$', text, re.MULTILINE)
        assert f'fencehold_sync_seconds_bucket{{le="+Inf",shard="0"}} {count}' in text
        assert before < float(count) <= sum(journal.sync_times.counts)
        before = sum(journal.sync_times.counts)
    assert journal.sync_times.total_s > 0


async def test_what_another_server_syncs_is_not_told_here() -> None:
    """It has metrics of its own."""
    assert "fencehold_sync_seconds" not in await _page(MemoryJournal(MemoryStore()))
