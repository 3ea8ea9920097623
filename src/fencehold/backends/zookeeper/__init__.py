"""`zookeeper://`: locks in a ZooKeeper ensemble, without the service.

One queue of ephemeral znodes for each name: `queue` says who is granted, `acquisition` how an ask gets a place
there and how nothing is left behind, `session` for how long a session can be trusted, `session_keeper` how there
is always one, `inspection` shows a name, and `backend` puts them together. kazoo is in
`fencehold.drivers.zookeeper`.
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
