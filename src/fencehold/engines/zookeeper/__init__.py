"""The ZooKeeper engine: a journal in an ensemble, shared by any number of nodes."""

from fencehold.engines.zookeeper.journal import ZookeeperJournal

__all__ = ["ZookeeperJournal"]
