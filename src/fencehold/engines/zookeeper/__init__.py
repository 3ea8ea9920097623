"""The ZooKeeper engine: a journal in an ensemble, shared by any number of nodes."""

from fencehold.engines.zookeeper.address import Address
from fencehold.engines.zookeeper.journal import ZookeeperJournal

__all__ = ["Address", "ZookeeperJournal"]
