"""The address of locks in MySQL or MariaDB: ``mysql://user:password@host[:3306]/database[?option=value]``.

- ``replication``: ``synchronous`` (default: one server, or others that have each commit before it is answered), or
  ``asynchronous``: a server that takes over may lack the last grants, so state cannot be protected.
- ``connections``: how many are used at once, 8 by default; they are opened when they are needed.
- ``timeout``: how long one step may take, 5 seconds by default: 2, 2s or 500ms.
- ``socket``: the path of a Unix socket, in place of host and port.
- ``tls``: ``yes`` encrypts and checks the server's certificate and name, ``unchecked`` only encrypts.
- ``ca``, ``cert``, ``key``: paths of files; to name one is to ask for TLS.

``ssl``, ``ssl_ca``, ``ssl_cert`` and ``ssl_key`` are older spellings. `drivers.address` has the rules of all URLs.
"""

import ssl
from typing import Any, NamedTuple, Self

from fencehold.drivers.address import Scheme, seconds, text, whole, word
from fencehold.drivers.tls import context_of

REPLICATIONS = ("synchronous", "asynchronous")
SCHEME = Scheme(
    names=("mysql", "mariadb"),
    form="mysql://user:password@host[:3306]/database",
    port=3306,
    options=(
        word("replication", REPLICATIONS),
        whole("connections", 8, most=64),
        seconds("timeout", 5.0, most=60.0),
        text("socket"),
    ),
    aliases={"ssl": "tls", "ssl_ca": "ca", "ssl_cert": "cert", "ssl_key": "key"},
    hosts_min=0,
    hosts_max=1,
    files_ask_for_tls=True,
)


class MysqlAddress(NamedTuple):
    """What a URL says."""

    host: str
    port: int
    user: str
    password: str
    database: str
    replication: str = REPLICATIONS[0]
    connections: int = 8
    timeout: float = 5.0
    socket: str = ""
    tls: ssl.SSLContext | None = None

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a URL.

        Raises:
            UsageError: it is none, or a file it names cannot be used; the message says what to write instead.
        """
        said = SCHEME.parse(url)
        needed = (
            ("host", said.endpoints or said.options["socket"]),
            ("user", said.login.user),
            ("database", said.path),
        )
        for what, is_there in needed:
            if not is_there:
                raise said.refusal(f"it names no {what}: write {SCHEME.form}")
        if "/" in said.path:
            raise said.refusal(f"the name of a database has no / in it: write {SCHEME.form}")
        host, port = said.endpoints[0] if said.endpoints else ("localhost", SCHEME.port)
        tls = None if said.tls is None else context_of(said.tls)
        return cls(host, port, *said.login, said.path, **said.options, tls=tls)

    def __repr__(self) -> str:
        return f"MysqlAddress({self})"

    def __str__(self) -> str:
        return f"mysql://{self.user}@{self.socket or f'{self.host}:{self.port}'}/{self.database}"

    def arguments(self) -> dict[str, Any]:
        """What aiomysql takes."""
        return {
            "host": self.host,
            "port": self.port,
            "user": self.user,
            "password": self.password,
            "db": self.database,
            "unix_socket": self.socket or None,
            "ssl": self.tls,
            "charset": "utf8mb4",
            "program_name": "fencehold",
        }
