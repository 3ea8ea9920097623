"""The address of locks in several Redises.

``redlock://[user:password@]host[:6379],host[:6379],host[:6379][,…][/db]``, and ``redlocks://`` for TLS. All of
them take the same user, and have the locks in the same database. Options: ``prefix=`` stands before every name;
``node_timeout=`` is how long one of them may take to answer, 0.1 or 100ms; ``ca=``, ``cert=`` and ``key=`` are
files for TLS.
"""

from typing import NamedTuple

from fencehold.drivers.resp.address import TLS_OPTIONS, Server, database, split
from fencehold.durations import LEAST_S, seconds_of
from fencehold.errors import UsageError

NODES_MIN = 3
"""With fewer, none can be lost: then one Redis is as good, and simpler."""
NODE_S_MAX = 60.0


class Address(NamedTuple):
    """What a URL says."""

    servers: tuple[Server, ...]
    prefix: str = ""
    node_s: float | None = None
    """Seconds that one of them may take to answer; None: what is small against the ttl."""


def parse(url: str) -> Address:
    """Read a URL.

    Raises:
        UsageError: it makes no sense; the message says what to write instead.
    """
    parts = split(url, ("prefix", "node_timeout", *TLS_OPTIONS))
    if len(set(parts.endpoints)) < NODES_MIN or len(set(parts.endpoints)) < len(parts.endpoints):
        raise UsageError(
            f"{parts.scheme}:// names three Redises or more, each once, better five than four, as in "
            f"{parts.scheme}://10.0.0.1,10.0.0.2,10.0.0.3; for one say redis://"
        )
    is_secure = parts.scheme == "redlocks"
    if not is_secure and any(name in parts.options for name in TLS_OPTIONS):
        raise UsageError("redlock:// speaks no TLS: say redlocks://, or leave ca=, cert= and key= out")
    tls = parts.files() if is_secure else None
    db = database(parts.path)
    servers = tuple(Server(each, parts.login, db, tls) for each in parts.endpoints)
    return Address(servers, parts.options.get("prefix", ""), _seconds(parts.options.get("node_timeout", "")))


def _seconds(said: str) -> float | None:
    return seconds_of("node_timeout=", said, least=LEAST_S, most=NODE_S_MAX) if said else None
