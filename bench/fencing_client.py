"""One client that adds to a set under a lock, as many are written: `python -m bench.fencing_client '{…}'`.

It is naive on purpose. It reads, thinks and writes, and does not ask in between whether the lock is still its own:
asking narrows the gap and does not close it, and what is tested here is what happens in it.

Each step is reported in a line of JSON on standard output, so that its parent knows when it is between
its read and its write, and which updates it takes for done. *Told*, it waits for a line on standard input there.
"""

import json
import random
import sys
import time
from typing import Any, NamedTuple

import fencehold
from bench.fencing_arms import STORES, Arm, Guarding

WAIT_S = 20.0
"""For the lock."""


class Plan(NamedTuple):
    """What a client gets when it is started."""

    url: str
    client: str
    name: str
    store: str
    where: str
    guarding: Guarding
    ttl_s: float
    seconds: float = 0.0
    """It runs for so long; 0: one update, and it waits for a signal before its write."""
    section_s: float = 0.0
    """Between read and write it thinks so long, at most."""
    seed: int = 0


def say(what: str, **more: object) -> None:
    """Tell a step."""
    sys.stdout.write(json.dumps({"what": what, **more}) + "\n")
    sys.stdout.flush()


class Client:
    """What it does."""

    def __init__(self, plan: Plan, client: fencehold.Client, arm: Arm) -> None:
        self._plan, self._client, self._arm = plan, client, arm
        self._lots = random.Random(plan.seed)

    def update(self, element: str) -> None:
        """Add an element, and tell how it ended: written, refused, or failed, which says nothing of the write."""
        name = self._plan.name
        try:
            with self._client.lock(name, timeout=WAIT_S) as hold:
                elements = self._arm.read(name, hold)
                # Settled before the read is reported: a process stopped then has thought enough when it wakes up.
                written_at = time.monotonic() + self._lots.uniform(0, self._plan.section_s)
                say("read", element=element, fence=hold.fence)
                self._think(written_at)
                self._arm.write(name, hold, [*elements, element])
                say("written", element=element)
        except fencehold.StaleFence:
            say("refused", element=element)
        except fencehold.HoldLost:
            # Found when all was done: what was written was acknowledged by the store.
            say("lost", element=element)
        except Exception as error:
            say("failed", element=element, error=repr(error))

    def _think(self, until: float) -> None:
        if self._plan.seconds:
            time.sleep(max(0.0, until - time.monotonic()))
        else:
            sys.stdin.readline()


def main(plan: Plan) -> None:
    """Be the client."""
    arm = STORES[plan.store](plan.where, plan.guarding)
    until = time.monotonic() + plan.seconds
    with fencehold.connect(plan.url, ttl=plan.ttl_s, name=plan.client) as connected:
        client = Client(plan, connected, arm)
        client.update(f"{plan.client}:0")
        number = 1
        while time.monotonic() < until:
            client.update(f"{plan.client}:{number}")
            number += 1
    arm.close()


def command(plan: Plan) -> list[str]:
    """How one is started."""
    return [sys.executable, "-m", "bench.fencing_client", json.dumps(plan._asdict())]


def told(line: str | bytes) -> dict[str, Any]:
    """A step, as it was reported."""
    step: dict[str, Any] = json.loads(line)
    return step


if __name__ == "__main__":
    main(Plan(**json.loads(sys.argv[1])))
