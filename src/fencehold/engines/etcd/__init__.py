"""The etcd engine: a journal that several nodes share, kept by an etcd that is already running.

Nothing here elects, leases or locks: etcd's transactions decide, and only they. Under a prefix of its own there
is

::

    epoch                       the newest epoch, in digits
    entries/<position>          epoch and entry; the first one kept may be a mere mark of where the journal begins
    snapshot                    which snapshot is current, and of which position
    snapshots/<name>/<number>   the chunks of snapshots: of the current one, one under way, one aborted

Calls to etcd are made by `fencehold.drivers.etcd`. Here `layout` says how things look in it, `reader` reads and
follows, `snapshots` keeps and trims, `room` says how full etcd is, and `journal` is the port.
"""

from fencehold.drivers.etcd.client import EtcdBounds
from fencehold.engines.etcd.journal import EtcdJournal

__all__ = ["EtcdBounds", "EtcdJournal"]
