"""The runner: what it says of a service that it cannot read."""

import asyncio
import json
import logging
from functools import partial
from pathlib import Path

import pytest

from fencehold.server import Config, Server
from fencehold.sinks import runner as runner_module
from fencehold.sinks.follower import Follower
from fencehold.sinks.runner import Runner
from rig.event_targets import CLUSTER, File
from rig.processes import free_port
from tests.unit.node.doubles import until


async def test_a_service_that_is_away_is_said_to_be_and_so_is_its_return(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once each, with the reason, in the log and the status: a sink with nothing to do looks just the same."""
    monkeypatch.setattr(runner_module, "_STATUS_S", 0.01)
    caplog.set_level(logging.INFO, "fencehold")
    port, status = free_port(), tmp_path / "status.json"
    follower = Follower(f"fencehold://127.0.0.1:{port}")
    runner = Runner(follower, File(tmp_path).sink(), cluster=CLUSTER, status=status)
    task = asyncio.create_task(runner.run())

    def said(event: str) -> list[str]:
        return [record.facts.get("why", "") for record in caplog.records if record.msg == event]  # type: ignore[attr-defined]

    def is_back(times: int) -> bool:
        return len(said("service_back")) == times and not trouble()

    def is_away(times: int) -> bool:
        return len(said("service_away")) == times and bool(trouble())

    def trouble() -> object:
        return json.loads(status.read_text())["service_error"] if status.exists() else None

    try:
        await until(partial(is_away, 1))
        for times in (1, 2):
            async with Server(Config(port=port)):
                await until(partial(is_back, times))
            await until(partial(is_away, times + 1))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert f"cannot reach the service: 127.0.0.1:{port}" in said("service_away")[0]
