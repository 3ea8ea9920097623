"""The benchmark of what an operation costs the server does what it counts."""

import asyncio
import os

import pytest

from bench import serving
from tests.unit.doors import box


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("kind", ["journal", "volatile"])
async def test_every_name_is_acquired_and_released(connections: int, kind: str) -> None:
    """Both are counted, each reply is that of its command, and nothing is held in the end."""
    async with box.serving() as served:
        before = served.server.node.position
        figures = await asyncio.to_thread(
            serving.load, served.server.port, os.getpid(), kind, connections, operations=60
        )
        assert figures["ops_per_s"] > 0
        assert not served.state.held
        if kind == "journal":
            assert served.state.fence == 33
            assert served.server.node.position > before


def test_every_width_is_there_for_every_server() -> None:
    contest = serving.BENCHMARK.build(True)
    names = {contestant.name for contestant in contest.contestants}
    assert {f"{kind} {width}" for kind in ("journal", "volatile", "only OK") for width in serving.WIDTHS} <= names
