"""`etcd://`: locks in an existing etcd, without the service.

Under the prefix of the URL there is

::

    locks/<name>/<client>.<token>.<limit>   one ask: it holds the name, or is in the queue for it
    clients/<client>/                       the witness of a client: gone when its lease is
    clients/<client>/<token>                a notice: an operator has force-released that hold

and all of a client's keys end with its one lease. `queues` defines the keys, their values and who is next; `calls`
batches transactions and watches keys, `session` is a client's lease, `queue_entry` is one ask; `inspection` shows
names, and `backend` is the port.
"""

from fencehold.backends.etcd.backend import EtcdBackend
from fencehold.backends.port import Settings
from fencehold.drivers.etcd.address import LOCKS, EtcdAddress

__all__ = ["EtcdBackend", "backend"]


def backend(url: str, settings: Settings) -> EtcdBackend:
    """The backend at a URL: `etcd://[user:password@]host[:2379][,host…][/prefix]`, or `etcds://` with TLS.

    Raises:
        UsageError: the URL says something else; the message says what to write.
    """
    return EtcdBackend(EtcdAddress.parse(url, LOCKS), settings)
