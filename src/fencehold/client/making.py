"""Making a client's protocol from what the application and the environment said.

The one place of the SDK with dice.
"""

import os
import random
import ssl
from collections.abc import Callable, Mapping
from math import inf
from typing import NamedTuple, Self

from fencehold.client.endpoints import Rotation, parse
from fencehold.client.protocol.session import SessionProtocol
from fencehold.client.protocol.settings import Settings
from fencehold.locks.clock import Clock, clock
from fencehold.locks.identity import session_meta
from fencehold.version import __version__

DEFAULT_URL = "fencehold://127.0.0.1:7420"
URL_VARIABLE = "FENCEHOLD_URL"


def where(url: str | None) -> str:
    """Where the service is: as given, or as the environment says, or on this machine."""
    return os.environ.get(URL_VARIABLE) or DEFAULT_URL if url is None else url


class Making(NamedTuple):
    """All that a client is made of. A child process makes another from the same."""

    url: str
    ttl: float
    grace: float
    name: str
    meta: Mapping[str, object] | None
    connect_timeout: float
    tls: ssl.SSLContext | None
    clock: Clock = clock
    draw: Callable[[], float] = random.random
    """A number between 0 and 1, drawn by lot."""
    tier: str = ""
    """`EFFICIENCY` or `CORRECTNESS`, to be said to a service that has both; empty: nothing is said."""
    long_wait: float = inf
    """Seconds after which an acquire that waits is worth a warning."""

    def checked(self) -> Self:
        """The same, if it makes sense; with a TLS context if the URL asks for one."""
        self.protocol()
        if self.tls is None and parse(self.url).tls:
            return self._replace(tls=ssl.create_default_context())
        return self

    def protocol(self) -> SessionProtocol:
        """A protocol that has not connected yet."""
        address = parse(self.url)
        settings = Settings(
            ttl=self.ttl,
            grace=self.grace,
            connect_timeout=self.connect_timeout,
            long_wait=self.long_wait,
            name=self.name,
            meta=session_meta(self.name, self.meta, __version__),
            user=address.user,
            secret=address.secret,
            tier=self.tier,
        )
        return SessionProtocol(
            settings.checked(), Rotation(address.endpoints, self.draw, scheme=self.url.partition("://")[0])
        )
