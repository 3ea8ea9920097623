"""Sources: where a client's locks come from, as its URLs say. A child process makes its own from the same.

A source is known before anything is connected to, and so are its guarantees: what it cannot give is refused first.
"""

import asyncio
import ssl
from typing import TYPE_CHECKING, Protocol

from fencehold.client.aio.breaking import Breaking
from fencehold.client.aio.channel import Channel
from fencehold.client.aio.proceeding import Proceeding, unassured
from fencehold.client.aio.wrapping import channel_of
from fencehold.client.breaker import Breaker, Pace
from fencehold.client.driver import Driver
from fencehold.client.endpoints import SCHEMES, wrong_scheme
from fencehold.client.making import Making
from fencehold.client.settings import Settings
from fencehold.drivers.client_tls import ClientTls
from fencehold.errors import UsageError
from fencehold.guarantees import Guarantees
from fencehold.locks.carrier import Carrier
from fencehold.locks.identity import session_meta
from fencehold.types import Tier
from fencehold.version import __version__

if TYPE_CHECKING:
    from fencehold.backends.port import Backend
    from fencehold.backends.port import Settings as BackendSettings


class Source(Protocol):
    """Something a client can be connected to."""

    @property
    def guarantees(self) -> Guarantees: ...

    @property
    def is_service(self) -> bool:
        """Whether its carriers are channels to a service."""

    def at(self, tier: Tier) -> "Source":
        """The same for another tier: itself, if it knows no difference."""

    def carrier(self) -> Carrier:
        """A new way to it, on the running loop. Nothing is connected to before it is used."""


class ServiceSource:
    """One tier of the Fencehold service."""

    is_service = True

    def __init__(self, making: Making, tier: Tier = Tier.CORRECTNESS) -> None:
        self.making = making
        self.tier = tier

    @property
    def guarantees(self) -> Guarantees:
        is_replicated = self.tier is Tier.CORRECTNESS
        return Guarantees(
            backend="fencehold",
            linearizable=is_replicated,
            fenced=is_replicated,
            fence_survives_failover=is_replicated,
            fair=True,
            survives_failover=is_replicated,
            frees_on_crash=self.making.grace,
            clocks="durations only, by monotonic clocks that drift by less than 2 % from one another",
            shared=True,
            semaphores=True,
            multi=True,
            delays=True,
            at_least=True,
            watches=True,
        )

    def at(self, tier: Tier) -> "ServiceSource":
        return ServiceSource(self.making, tier)

    def carrier(self) -> Channel:
        making = self.making
        if self.tier is Tier.EFFICIENCY:
            making = making._replace(tier="EFFICIENCY")
        protocol = making.protocol()
        driver = Driver(protocol, asyncio.get_running_loop(), making.tls, clock=making.clock)
        return Channel(protocol, driver, self.guarantees)


class DirectSource:
    """A backend without a service between."""

    is_service = False

    def __init__(self, making: Making) -> None:
        self._making = making
        # Made once for its guarantees, and to find what is wrong with the URL; it connects to nothing.
        self.guarantees = self._backend().guarantees

    def at(self, tier: Tier) -> "DirectSource":
        return self

    def carrier(self) -> Carrier:
        from fencehold.backends.carrier import DirectCarrier  # noqa: PLC0415 - not needed by those who use a service

        making = self._making
        return DirectCarrier(self._backend(), self._settings(), making.clock, long_wait=making.long_wait)

    def _backend(self) -> "Backend":
        from fencehold.backends.registry import backend_of  # noqa: PLC0415

        return backend_of(self._making.url, self._settings())

    def _settings(self) -> "BackendSettings":
        from fencehold.backends.port import Settings  # noqa: PLC0415

        making = self._making
        return Settings(making.ttl, making.connect_timeout, session_meta(making.name, making.meta, __version__))


class BreakingSource:
    """A source with a breaker: what is away is not asked by everybody."""

    is_service = False

    def __init__(self, within: Source, making: Making) -> None:
        self.within = within
        self.guarantees = within.guarantees
        self._making = making

    def at(self, tier: Tier) -> "BreakingSource":
        return self

    def carrier(self) -> Breaking:
        probe_s = self._making.connect_timeout
        breaker = Breaker(self._making.draw, Pace(probe_s_max=2 * probe_s))
        return Breaking(self.within.carrier(), breaker, probe_s)


class ProceedingSource:
    """A source for those who go on without a lock when it is away."""

    is_service = False

    def __init__(self, within: Source, making: Making) -> None:
        self.within = within
        self.guarantees = unassured(within.guarantees)
        self._making = making

    def at(self, tier: Tier) -> "ProceedingSource":
        return self

    def carrier(self) -> Proceeding:
        carrier = self.within.carrier()
        if (channel := channel_of(carrier)) is not None:
            # Whoever can go on without waits no longer for a service that is busy than for one that is away.
            channel.protocol.busy_s_max = self._making.connect_timeout
        return Proceeding(carrier, self._making.ttl)


def bare(source: Source) -> Source:
    """A source without what was put around it."""
    while isinstance(source, BreakingSource | ProceedingSource):
        source = source.within
    return source


def source_of(making: Making) -> Source:
    """Where locks come from.

    Raises:
        UsageError: what was given makes no sense.
        Unsupported: a driver is not installed.
    """
    from fencehold.backends.registry import SCHEMES as DIRECT  # noqa: PLC0415

    if not isinstance(making.url, str):
        raise UsageError(f"a URL must be a str such as 'fencehold://127.0.0.1:7420', got {making.url!r}")
    if not isinstance(making.tls, ssl.SSLContext | ClientTls | None):
        raise UsageError(
            f"tls must be an ssl.SSLContext, got {making.tls!r}; the URL fenceholds://… makes one by itself"
        )
    scheme, separator, _ = making.url.partition("://")
    if scheme in SCHEMES:
        return ServiceSource(making.checked())
    if scheme == "memory":
        from fencehold.backends.memory import MemorySource  # noqa: PLC0415 - it brings the whole server

        return MemorySource(making)
    if scheme not in DIRECT or not separator:
        raise wrong_scheme(making.url, (*SCHEMES, "memory", *DIRECT))
    Settings(making.ttl, making.grace, making.connect_timeout).checked()
    return DirectSource(making)
