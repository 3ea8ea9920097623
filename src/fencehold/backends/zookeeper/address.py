"""The address of locks: an ensemble, and the root under which the names are kept in it.

`fencehold.drivers.zookeeper.address` has the laws of all addresses. Here TLS is asked for by an option.
"""

import ssl
from dataclasses import dataclass

from fencehold.drivers.zookeeper.address import Ensemble, hosts_of, login_of, options_of, parts_of, root_of, tls_of
from fencehold.errors import UsageError

ROOT = "/fencehold-locks"
_FORM = "zookeeper://[user:password@]host[:port][,host[:port]…][/root]"
_OPTIONS = ("tls", "ca", "cert", "key")


@dataclass(frozen=True)
class Address(Ensemble):
    """What a URL says."""

    root: str = ROOT

    def __str__(self) -> str:
        return f"zookeeper://{','.join(self.hosts)}{self.root}"

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Read `zookeeper://[user:password@]host[:port][,host[:port]…][/root][?tls=yes&ca=…&cert=…&key=…]`.

        Raises:
            UsageError: it is not such a URL, or a file it names cannot be used.
        """
        parts = parts_of(url)
        if parts.scheme not in ("zookeeper", "zk"):
            raise UsageError(f"the URL of an ensemble is {_FORM}")
        hosts = hosts_of(parts.hosts, f"the URL of an ensemble names at least one host: {_FORM}")
        root = root_of(parts.root, ROOT, "the names")
        return cls(hosts, root, *login_of(parts.login, _FORM), _tls(parts.query))


def _tls(query: str) -> ssl.SSLContext | None:
    options = options_of(query, _OPTIONS, "zookeeper:// are tls=yes, ca=, cert= and key=FILE")
    if not options:
        return None
    if options.get("tls") != "yes":
        raise UsageError("tls is yes or left out; ca, cert and key are files for tls=yes")
    return tls_of(options)
