"""Ensembles that contests run against, on loopback, their data on a disk: etcd, ZooKeeper, nodes of Fencehold."""

from pathlib import Path

from bench import folders
from bench.contest import Fixture
from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.engines.etcd.layout import JournalKeys
from rig.etcd import EtcdCluster
from rig.nodes import NodeGroup
from rig.zookeeper import ZookeeperEnsemble

MEMBERS = 3


class Ensemble(Fixture):
    """Has a folder while it runs."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._folder: Path | None = None

    def setup(self) -> None:
        self._folder = folders.new_folder()
        self.start(self._folder)

    def teardown(self) -> None:
        folder, self._folder = self._folder, None
        if folder is not None:
            try:
                self.stop()
            finally:
                folders.remove(folder)

    def start(self, folder: Path) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        """May be called after a `start` that failed."""
        raise NotImplementedError


class Etcd(Ensemble):
    """An etcd as its users have it."""

    def __init__(self) -> None:
        super().__init__(f"an etcd of {MEMBERS} members")

    def start(self, folder: Path) -> None:
        self.cluster = EtcdCluster(folder, MEMBERS)
        self.cluster.start()

    def stop(self) -> None:
        self.cluster.stop()

    def leader(self) -> str:
        """The address of the member that leads."""
        return self.cluster.endpoints[self.cluster.leader()]

    def where(self) -> dict[str, str]:
        """The same, as loads take it."""
        return {"endpoint": self.leader()}


class Zookeeper(Ensemble):
    """A ZooKeeper that syncs every write."""

    def __init__(self) -> None:
        super().__init__(f"{MEMBERS} ZooKeepers")

    def start(self, folder: Path) -> None:
        self.ensemble = ZookeeperEnsemble(folder, MEMBERS)
        self.ensemble.start()

    def stop(self) -> None:
        self.ensemble.stop()

    def hosts(self) -> str:
        return ",".join(self.ensemble.endpoints)


class Nodes(Ensemble):
    """Nodes of Fencehold on an etcd that is set up before them: one leads, the others stand by."""

    def __init__(self, etcd: Etcd) -> None:
        super().__init__(f"{MEMBERS} Fencehold nodes")
        self._etcd = etcd

    def start(self, folder: Path) -> None:
        self.group = NodeGroup(self._engine_url(), folder, MEMBERS)
        self.group.start()

    def stop(self) -> None:
        self.group.stop()

    def keys(self) -> JournalKeys:
        """Where their journal is in the etcd."""
        return JournalKeys(EtcdAddress.parse(self._engine_url()).prefix)

    def _engine_url(self) -> str:
        return self._etcd.cluster.url("bench")
