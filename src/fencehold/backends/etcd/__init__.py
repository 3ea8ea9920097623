"""`etcd://`: locks kept by the etcd that somebody already runs, with nothing between.

Under the prefix of the URL there is

::

    locks/<name>/<client>.<token>.<limit>   one ask: it holds the name, or stands in the queue for it
    clients/<client>/                       the witness of a client: gone when its lease is
    clients/<client>/<token>                a notice: an operator has taken that hold away

and all of a client's keys go with its one lease. `keys` says where things are, `records` how they look, `queues`
who is next; `batches` carries asks together, `watches` hears of changes, `session` is a client's lease, `turns` is
one ask; `looking` shows names, `sweeping` finds what is not as it should be, and `locking` is the port.
"""

from fencehold.backends.etcd.locking import EtcdBackend
from fencehold.backends.port import Settings
from fencehold.drivers.etcd.address import LOCKS, EtcdAddress

__all__ = ["EtcdBackend", "backend"]


def backend(url: str, settings: Settings) -> EtcdBackend:
    """The backend at a URL: `etcd://[user:password@]host[:2379][,host…][/prefix]`, or `etcds://` with TLS.

    Raises:
        UsageError: the URL says something else; the message says what to write.
    """
    return EtcdBackend(EtcdAddress.parse(url, LOCKS), settings)
