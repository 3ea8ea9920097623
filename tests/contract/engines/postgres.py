"""The Postgres engine, on one server that all tests of a run share, each test in a schema of its own."""

import atexit
import itertools
import shutil
from functools import cache
from pathlib import Path

from fencehold.drivers.postgres.failures import ReplyLost
from fencehold.engines.postgres import PostgresBounds, PostgresJournal
from fencehold.engines.postgres.address import PostgresJournalAddress
from fencehold.errors import Unavailable
from rig.postgres import Postgres, reachable_folder
from tests.contract.engines.embedded import OneFault
from tests.contract.harness import Cluster

BOUNDS = PostgresBounds(append_s=3.0)
"""More than the default: machines that run tests are busy."""
_numbers = itertools.count(1)


@cache
def server() -> Postgres:
    """A server, started by the first who asks, and ended with the process."""
    folder = reachable_folder()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    postgres = Postgres(folder)
    atexit.register(postgres.stop)
    postgres.start()
    return postgres


def fresh_schema() -> str:
    """Where no journal was before."""
    return f"test_{next(_numbers)}"


class OneServer:
    """The server, as a cluster that has no minority."""

    size = 1
    # The longest a call takes, and as much again for what a busy machine adds.
    answer_s = 2 * BOUNDS.side_s

    def kill(self, count: int) -> None:
        if count:
            server().kill()

    def restore(self) -> None:
        server().restart()


class PostgresHarness:
    volume = 2_000

    def __init__(self, path: Path) -> None:
        self.cluster: Cluster | None = OneServer()
        self._address = PostgresJournalAddress.parse(server().url(fresh_schema()))
        self._faults = OneFault()

    def handle(self) -> PostgresJournal:
        return PostgresJournal(self._address, bounds=BOUNDS, faults=self._faults)

    quick_handle = handle

    def lose_next_reply(self) -> None:
        self._faults.armed = ("append.stored", ReplyLost("injected"))

    def fail_next_append(self) -> None:
        self._faults.armed = ("append.before", Unavailable("injected"))
