"""The ZooKeeper engine, on an ensemble of three that all tests of a run share."""

import itertools
from functools import cache
from pathlib import Path
from typing import Any

from fencehold.drivers.zookeeper.address import ZookeeperAddress
from fencehold.drivers.zookeeper.client import AnswerLost
from fencehold.engines.zookeeper import ZookeeperJournal
from fencehold.errors import Unavailable
from rig.zookeeper import ZookeeperEnsemble
from tests.contract.engines.embedded import OneFault
from tests.contract.engines.standing import kill_some, own_folder, stand
from tests.contract.harness import Cluster

PATIENCE_S = 3.0
"""More than the default: machines that run tests are busy."""
_numbers = itertools.count(1)


@cache
def ensemble() -> ZookeeperEnsemble:
    """Three servers, started by the first who asks, and ended with the process."""
    return stand(ZookeeperEnsemble, own_folder("zookeeper"))


def fresh_root() -> str:
    """Where no journal was before."""
    return f"/test/{next(_numbers)}"


def journal_at(root: str, **options: Any) -> ZookeeperJournal:
    """A handle on the journal there, not opened yet."""
    return ZookeeperJournal(
        ZookeeperAddress.parse(ensemble().url(root)), **{"append_timeout_s": PATIENCE_S, **options}
    )


class EnsembleCluster:
    """The ensemble, as something that can be killed."""

    size = 3
    answer_s = 10.0

    def kill(self, count: int) -> None:
        kill_some(ensemble(), self.size, count)

    def restore(self) -> None:
        servers = ensemble()
        for index, member in enumerate(servers.members):
            if not member.process.is_running:
                servers.restart(index)
        servers.await_healthy()


class ZookeeperHarness:
    volume = 2_000

    def __init__(self, path: Path) -> None:
        self.cluster: Cluster | None = EnsembleCluster()
        self._root = fresh_root()
        self._faults = OneFault()

    def handle(self) -> ZookeeperJournal:
        return journal_at(self._root, faults=self._faults)

    quick_handle = handle

    def lose_next_reply(self) -> None:
        self._faults.armed = ("append.stored", AnswerLost("injected"))

    def fail_next_append(self) -> None:
        self._faults.armed = ("append.before", Unavailable("injected"))
