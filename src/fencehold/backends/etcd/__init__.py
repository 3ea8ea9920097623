"""`etcd://`: locks kept by the etcd that somebody already runs, with nothing between.

Under the prefix of the URL there is

::

    locks/<name>/<client>.<token>.<limit>   one ask: it holds the name, or stands in the queue for it
    clients/<client>/                       the witness of a client: gone when its lease is
    clients/<client>/<token>                a notice: an operator has taken that hold away

and all of a client's keys go with its one lease. `queues` says where things are, how they look and who is next;
`calls` carries transactions together and hears of changes, `session` is a client's lease, `queue_entry` is one
ask; `inspection` shows names, and `backend` is the port.
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
