"""Over failovers and restarts of a sink, the events that arrive are those of the journal, each once."""

from pathlib import Path

from tests.robustness.event_failovers import fail_over


async def test_events_survive_failovers_and_restarts_of_a_sink(tmp_path: Path) -> None:
    """Deduplicated by place, what the sink has is what the journal says; and it has nothing twice."""
    found = await fail_over(tmp_path, rounds=20, seed=3)
    assert found.wrong == []
    assert found.gaps == 0
    assert min(found.failovers, found.sink_restarts) > 3
