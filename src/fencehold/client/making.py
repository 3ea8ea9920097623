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
from fencehold.client.login import LoginFiles, login_of
from fencehold.client.protocol import SessionProtocol
from fencehold.client.settings import Settings
from fencehold.drivers.client_tls import ClientTls, TlsFiles, files_of, files_of_environment
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
    tls: ssl.SSLContext | ClientTls | None
    clock: Clock = clock
    draw: Callable[[], float] = random.random
    """A number between 0 and 1, drawn by lot."""
    tier: str = ""
    """`EFFICIENCY` or `CORRECTNESS`, to be said to a service that has both; empty: nothing is said."""
    long_wait: float = inf
    """Seconds after which an acquire that waits is worth a warning."""
    tls_files: TlsFiles = TlsFiles()
    """What a configuration names for a URL that asks for TLS and names less itself."""
    login_files: LoginFiles = LoginFiles()

    def __repr__(self) -> str:
        # Not the URL, which may have a secret in it.
        return f"Making(name={self.name!r}, ttl={self.ttl}, tls={self.tls is not None})"

    def checked(self) -> Self:
        """The same, if it makes sense; with a TLS context if the URL asks for one."""
        self.protocol()
        address = parse(self.url)
        if self.tls is None and address.tls:
            named = files_of(address.ca, address.cert, address.key)
            return self._replace(tls=ClientTls(named.over(files_of_environment()).over(self.tls_files)))
        return self

    def protocol(self) -> SessionProtocol:
        """A protocol that has not connected yet."""
        address = parse(self.url)
        login = login_of(address.user, address.secret, self.login_files)
        settings = Settings(
            ttl=self.ttl,
            grace=self.grace,
            connect_timeout=self.connect_timeout,
            long_wait=self.long_wait,
            name=self.name,
            meta=session_meta(self.name, self.meta, __version__),
            user=login.user,
            secret=login.secret,
            tier=self.tier,
        )
        return SessionProtocol(
            settings.checked(), Rotation(address.endpoints, self.draw, scheme=self.url.partition("://")[0])
        )
