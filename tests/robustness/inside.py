"""Clients on one machine of several: a load as any other, and a look at the node of that machine.

``python -m tests.robustness.inside URL HOST PORT`` writes a line when the load is under way, and on a line from
its input asks once more, stops, and writes all that was seen as one line of JSON. All namespaces of a machine have
one clock, so its instants can be compared with others.
"""

import json
import sys
import threading
import time
from dataclasses import asdict
from typing import Any

from tests.robustness.asking import Told, ask_while
from tests.robustness.history import Claim, History, Reading, Seen
from tests.robustness.load import Load, Shape

SHAPE = Shape(clients=2, ttl_s=3.0, grace_s=3.0, connect_timeout_s=2.0)
"""Sessions that run out before the partition ends, so that others get what they held."""


BACK_S_MAX = 20.0
"""How long it is tried to be granted something in the end."""


def main(url: str, host: str, port: int) -> None:
    told: list[Told] = []
    ending = threading.Event()

    def ask() -> None:
        told.extend(ask_while(host, port, "nobody's", lambda: not ending.is_set()))

    asking = threading.Thread(target=ask, daemon=True)
    with Load(url, SHAPE, label="inside") as load:
        asking.start()
        sys.stdout.write("at work\n")
        sys.stdout.flush()
        sys.stdin.readline()
        until = time.monotonic() + BACK_S_MAX
        while not any(claim.granted_at for claim in load.ask("healed")) and time.monotonic() < until:
            pass
        ending.set()
        asking.join()
        load.halt()
    seen = {
        "claims": [asdict(claim) for claim in load.history.claims],
        "readings": load.history.readings,
        "told": told,
    }
    sys.stdout.write(json.dumps(seen) + "\n")


def read(line: str) -> tuple[History, list[Told]]:
    """What `main` wrote."""
    seen = json.loads(line)
    claims = [Claim(**claim) for claim in seen["claims"]]
    return History(claims, [_reading(*reading) for reading in seen["readings"]]), [
        Told(*each) for each in seen["told"]
    ]


def _reading(asked_at: float, answered_at: float, name: str, holds: list[Any]) -> Reading:
    return Reading(asked_at, answered_at, name, tuple(Seen(*hold) for hold in holds))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
