"""`zookeeper://`: locks in a ZooKeeper ensemble, without a server of ours.

One queue of ephemeral znodes for each name: `places` says who is granted, `queueing` how one comes to stand there,
`leaving` how nothing is left behind, `standing` for how long a session can be trusted, `session` and `link` how
one gets it by kazoo, and `backend` puts them together.
"""

from fencehold.backends.port import Settings
from fencehold.backends.zookeeper.backend import ZookeeperBackend
from fencehold.drivers.zookeeper.address import ZookeeperAddress

ROOT = "/fencehold-locks"


def backend(url: str, settings: Settings) -> ZookeeperBackend:
    """The backend at a URL. Nothing is connected to yet.

    Raises:
        UsageError: the URL makes no sense.
    """
    return ZookeeperBackend(ZookeeperAddress.parse(url, ROOT), settings)
