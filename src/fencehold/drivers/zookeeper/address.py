"""The address of something in ZooKeeper: the servers, the root of its znodes, and who we are to them.

``zookeeper://[user:password@]host[:2181][,host…][/root]``, and ``zookeepers://`` for TLS; ``zk://`` and ``zks://``
are the same. `drivers.address` has the rules of all URLs; here also what TLS needs is read at once.
"""

import ssl
from dataclasses import dataclass, field
from typing import Self

from fencehold.drivers.address import ParsedUrl, Scheme
from fencehold.drivers.tls import context_of

ROOT = "/fencehold"
SCHEME = Scheme(
    names=("zookeeper", "zk"),
    secure=("zookeepers", "zks"),
    form="zookeeper://[user:password@]host[:2181][,host…][/root]",
    port=2181,
    needs_both=True,
)


@dataclass(frozen=True)
class ZookeeperAddress:
    """What a URL says."""

    hosts: tuple[str, ...]
    """`host:port` of each server."""
    root: str = ROOT
    user: str = ""
    password: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str, root: str = ROOT) -> Self:
        """Read a URL; `root` is where things are kept if it names none.

        Raises:
            UsageError: it is none, or a file it names cannot be used.
        """
        said = SCHEME.parse(url)
        tls = None if said.tls is None else context_of(said.tls)
        return cls(tuple(map(str, said.endpoints)), _root(said, root), *said.login, tls)

    def __str__(self) -> str:
        return f"{'zookeeper' if self.tls is None else 'zookeepers'}://{','.join(self.hosts)}{self.root}"


def _root(said: ParsedUrl, usual: str) -> str:
    root = f"/{said.path}".rstrip("/") or usual
    parts = root[1:].split("/")
    if any(part in ("", ".", "..") or not part.isprintable() for part in parts) or parts[0] == "zookeeper":
        raise said.refusal(
            f"the root is a path such as {usual}, and not within /zookeeper, which is ZooKeeper's own"
        )
    return root
