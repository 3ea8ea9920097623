"""The next one is not measured before the servers are done with what the last one asked of them."""

import asyncio
import sys

import pytest

from bench import quiet
from tests.stopwatch import Stopwatch

BUSY = "import sys, time\nprint('busy', flush=True)\nwhile time.process_time() < float(sys.argv[1]): pass\ninput()"


async def test_it_waits_for_a_process_that_still_works() -> None:
    """And for no longer: one that has nothing more to do may go on living."""
    quietness = quiet.Quiet()
    busy = await asyncio.create_subprocess_exec(
        sys.executable, "-c", BUSY, "1", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert busy.stdout is not None
        await busy.stdout.readline()
        watch = Stopwatch()
        await quietness.come()
        assert 0.5 < watch.passed_s < quiet.WAIT_S_MAX
        assert busy.returncode is None
    finally:
        busy.kill()
        await busy.wait()


async def test_without_processes_there_is_nothing_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither to learn what they use, nor before a round."""
    monkeypatch.setattr(quiet, "family", lambda pid: [pid])
    quietness, watch = quiet.Quiet(), Stopwatch()
    await quietness.learn()
    await quietness.come()
    assert watch.passed_s < quiet.LOOK_S
