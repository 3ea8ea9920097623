"""The address of a journal: an ensemble, and the root under which the journal lives in it.

`fencehold.drivers.zookeeper.address` has the laws of all addresses. Here TLS is asked for by the scheme.
"""

from dataclasses import dataclass

from fencehold.drivers.zookeeper.address import Ensemble, hosts_of, login_of, options_of, parts_of, root_of, tls_of
from fencehold.errors import UsageError

ROOT = "/fencehold"
_OPTIONS = ("ca", "cert", "key")


@dataclass(frozen=True)
class Address(Ensemble):
    """What a URL says."""

    root: str = ROOT

    def __str__(self) -> str:
        scheme = "zookeeper" if self.tls is None else "zookeepers"
        return f"{scheme}://{','.join(self.hosts)}{self.root}"

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Read `zookeeper://[user:password@]host[:port][,host[:port]…][/root]`.

        `zookeepers://` is the same over TLS; `?ca=FILE&cert=FILE&key=FILE` says whom to trust and who we are.

        Raises:
            UsageError: it is not such a URL, or a file it names cannot be used.
        """
        parts = parts_of(url)
        if parts.scheme not in ("zookeeper", "zookeepers"):
            raise UsageError("the URL of an ensemble starts with zookeeper:// or zookeepers://")
        if parts.query and parts.scheme == "zookeeper":
            raise UsageError("only zookeepers:// takes options, and they are about TLS")
        options = options_of(parts.query, _OPTIONS, f"zookeepers:// name files, {', '.join(_OPTIONS)}")
        tls = tls_of(options) if parts.scheme == "zookeepers" else None
        hosts = hosts_of(parts.hosts, "the URL of an ensemble names at least one host")
        root = root_of(parts.root, ROOT, "a journal")
        return cls(hosts, root, *login_of(parts.login, "user:password@"), tls)
