"""Kills: a server killed under load and started again, over and over, and checked each time.

``python -m tests.e2e.kills 1000`` does it a thousand times and shows how it goes; the tests do it twenty times.
"""

import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.e2e.driver import Wire, Worker
from tests.e2e.served import PATIENCE_S, Served, serving

WORKERS = 4


class Tally(NamedTuple):
    """What was done, and found to be there."""

    kills: int
    grants: int
    restart_s_max: float


def port_of(served: Served) -> int:
    return int(served.url.rpartition(":")[2])


def kill_and_check(folder: Path, kills: int, say: Callable[[Tally], None] = lambda _: None) -> Tally:
    """Kill so often. Raises AssertionError if an acknowledged grant or release is lost, or a fence comes twice."""
    workers = [Worker(number) for number in range(WORKERS)]
    tally = Tally(0, 0, 0.0)
    for kill in range(kills + 1):
        started = time.monotonic()
        with serving(folder, "--data", str(folder / "data")) as served:
            restart_s = time.monotonic() - started
            _check(port_of(served), workers)
            if kill < kills:
                _load_and_kill(served, workers, grants=40 + 13 * (kill % 20))
        grants = sum(len(worker.known.fences) for worker in workers)
        tally = Tally(min(kill + 1, kills), grants, max(tally.restart_s_max, restart_s))
        say(tally)
    _check_fences(workers)
    return tally


def _load_and_kill(served: Served, workers: list[Worker], grants: int) -> None:
    for worker in workers:
        worker.begin(port_of(served))
    before = sum(len(worker.known.fences) for worker in workers)
    give_up_at = time.monotonic() + PATIENCE_S
    while sum(len(worker.known.fences) for worker in workers) < before + grants:
        assert time.monotonic() < give_up_at, "no load, no test"
        time.sleep(0.002)
    served.process.kill()
    for worker in workers:
        worker.end()
    assert served.process.wait(PATIENCE_S) == -signal.SIGKILL


def _check(port: int, workers: list[Worker]) -> None:
    """Compare what the workers were told with what the server has."""
    wire = Wire(port)
    for worker in workers:
        known = worker.known
        for name, fence in known.held.items():
            if name != known.asked:
                [hold] = wire.call("LOCK.INFO", name)["holds"]
                assert (hold["session"], hold["fence"]) == (worker.session, fence)
        for name in known.free:
            if name != known.asked:
                assert wire.call("LOCK.INFO", name)["holds"] == []
    wire.close()


def _check_fences(workers: list[Worker]) -> None:
    fences = [fence for worker in workers for fence in worker.known.fences]
    assert len(set(fences)) == len(fences)
    for worker in workers:
        assert worker.known.fences == sorted(worker.known.fences)


def main(kills: int) -> None:
    def say(tally: Tally) -> None:
        if tally.kills % 20 == 0:
            sys.stderr.write(f"{tally.kills} kills, {tally.grants} grants, nothing lost\n")

    with tempfile.TemporaryDirectory(prefix=".robustness-", dir=Path.cwd()) as folder:
        tally = kill_and_check(Path(folder), kills, say)
    sys.stdout.write(
        f"{tally.kills} kills under load: {tally.grants} grants acknowledged, none lost, no fence twice; "
        f"the slowest restart took {tally.restart_s_max:.2f} s\n"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000)
