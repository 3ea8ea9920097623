"""`zookeeper://`: locks in a ZooKeeper ensemble, without a server of ours.

One queue of ephemeral znodes for each name: `places` says who is granted, `queueing` how one comes to stand there,
`leaving` how nothing is left behind, `standing` for how long a session can be trusted, `session` and `link` how
one gets it by kazoo, and `backend` puts them together.
"""

from fencehold.backends.port import Settings
from fencehold.backends.zookeeper.address import Address
from fencehold.backends.zookeeper.backend import ZookeeperBackend


def backend(url: str, settings: Settings) -> ZookeeperBackend:
    """The backend at a URL. Nothing is connected to yet.

    Raises:
        UsageError: the URL makes no sense.
    """
    return ZookeeperBackend(Address.parse(url), settings)
