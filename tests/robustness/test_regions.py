"""Regions in short: real servers, distance between them, homes that move and are lost."""

import asyncio
from pathlib import Path

import pytest

from tests.robustness.regions import run


@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G14")
def test_homes_move_and_are_promoted_over_a_distance_with_nothing_lost(tmp_path: Path) -> None:
    """Near names are near, far ones a round trip away; an old home that wakes up grants nothing."""
    said: list[str] = []
    asyncio.run(run(tmp_path, rounds=10, moves=2, say=said.append, distance_ms=30))
    assert any("granted 0" in line for line in said)
