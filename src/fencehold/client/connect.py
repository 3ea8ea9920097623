"""What a client is connected to: which source serves which tier, and the carriers made of them.

1. A tier is served by a source that gives it, or not at all: CORRECTNESS never comes from less by mistake.
2. A rule about names overrides the caller: a name that is CORRECTNESS is always that.
3. CORRECTNESS fails closed. Only EFFICIENCY can be configured to proceed without a lock when its source is
   unavailable.
4. A backend that is used directly has a circuit breaker, and so has each source where there are several: one that
   is down must not make the callers of another wait. A service that is a client's only source has none.
5. A source is known before anything is connected to, and so are its guarantees: what it cannot give is refused
   first. A child process makes its own carriers of the same sources.
"""

import asyncio
import ssl
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import msgspec

from fencehold.backends import registry
from fencehold.backends.carrier import DirectCarrier
from fencehold.backends.port import Backend
from fencehold.backends.port import Settings as BackendSettings
from fencehold.client.aio.carriers import BreakerCarrier, ProceedCarrier, channel_of, unassured
from fencehold.client.aio.channel import Channel
from fencehold.client.circuit import CircuitBreaker, Pace
from fencehold.client.config import Config
from fencehold.client.direct.driver import LineDriver
from fencehold.client.direct.turns import SharedProtocol
from fencehold.client.driver import Driver
from fencehold.client.endpoints import Rotation
from fencehold.client.login import LoginFiles, login_of
from fencehold.client.protocol.connection import Settings
from fencehold.client.protocol.session import SessionProtocol
from fencehold.client.rules import Rules
from fencehold.drivers.address import (
    SERVICE_SCHEMES,
    Login,
    ServiceAddress,
    endpoint,
    scheme_in,
    service_address,
    with_endpoints,
    wrong_scheme,
)
from fencehold.drivers.tls import ClientTls, files_of, files_of_environment
from fencehold.errors import Unsupported, UsageError
from fencehold.guarantees import Guarantees
from fencehold.locks.carrier import Carrier
from fencehold.locks.identity import session_meta
from fencehold.placement.cells import Cell
from fencehold.types import Tier
from fencehold.version import __version__

_MEMORY = "memory"
_MEMORY_MACHINE = "EFFICIENCY"
"""The server's volatile machine, whose fences begin at the time of day. It serves both tiers of `memory://`."""


class Source(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """Where the locks of one tier, or of both, come from."""

    config: Config
    url: str
    guarantees: Guarantees
    tls: ssl.SSLContext | ClientTls | None = None
    client: str = ""
    """Which client its sessions belong to; empty: none has been made yet."""
    shard: int | None = None
    """Which of the service's shards to use; None: any, and the greeting says whether there are several."""
    machine: str = ""
    """Which of the service's machines to use; empty: its default."""
    is_far: bool = False
    """Another cell than the one connected to first."""
    has_breaker: bool = False
    proceeds: bool = False
    """Whether its callers proceed without a lock when it is unavailable."""

    @property
    def is_service(self) -> bool:
        """Whether its carriers are channels to a service."""
        is_bare = not self.has_breaker and not self.proceeds
        return is_bare and scheme_in(self.url) in (*SERVICE_SCHEMES, _MEMORY)

    def guarded(self) -> "Source":
        """The same with a circuit breaker."""
        return self if self.has_breaker else msgspec.structs.replace(self, has_breaker=True)

    def proceeding(self) -> "Source":
        """The same for callers that proceed without a lock when it is unavailable."""
        less = unassured(self.guarantees)
        return msgspec.structs.replace(self.guarded(), proceeds=True, guarantees=less)


class Plan(NamedTuple):
    """Which source serves which tier, and in which tier a name may be acquired."""

    sources: Mapping[Tier, Source]
    rules: Rules = Rules()

    def source(self, tier: Tier) -> Source:
        """Where a tier is served.

        Raises:
            Unsupported: nowhere; the message says what to do.
        """
        if tier in self.sources:
            return self.sources[tier]
        if tier is Tier.EFFICIENCY:
            raise Unsupported("this client has no source for EFFICIENCY: pass efficiency='redis://…' to `connect`")
        given = _guarantees(self.sources[Tier.EFFICIENCY].config, self.sources[Tier.EFFICIENCY].url, tier)
        if given.gives(tier):
            raise Unsupported("this client has no source for CORRECTNESS: pass correctness='…' to `connect`, too")
        raise Unsupported(
            f"{given.backend}:// cannot give CORRECTNESS, as it {_lack(given.linearizable)}: ask with "
            "tier=fencehold.EFFICIENCY, or connect to what can protect state, such as fencehold://"
        )

    @property
    def first(self) -> Source:
        """What a client connects to first: its source for CORRECTNESS, if it has one."""
        return self.sources.get(Tier.CORRECTNESS) or self.sources[Tier.EFFICIENCY]


def plan_of(config: Config) -> Plan:
    """The plan of a client with this configuration.

    Raises:
        UsageError: a URL makes no sense.
        Unsupported: the source for CORRECTNESS cannot give it; or a driver is not installed.
    """
    sources = _routed(config) if config.is_routed else _sources(config, config.url)
    if config.on_unavailable == "proceed":
        sources[Tier.EFFICIENCY] = sources[Tier.EFFICIENCY].proceeding()
    return Plan(sources, config.rules)


def carrier_of(source: Source, *, is_direct: bool = False) -> Carrier:
    """A new carrier for a source, on the running loop. Nothing is connected to before it is used.

    Args:
        is_direct: callers on other threads send and receive by themselves, if it is a service.
    """
    config = source.config
    carrier = _bare_carrier(source, is_direct)
    if source.has_breaker:
        probe_s = config.connect_timeout
        pace = Pace(failures_max=1 if source.is_far else Pace().failures_max, probe_s_max=2 * probe_s)
        breaker = CircuitBreaker(config.draw, pace)
        carrier = BreakerCarrier(carrier, breaker, probe_s)
    if source.proceeds:
        if (channel := channel_of(carrier)) is not None:
            # A caller that can proceed without a lock waits as long for a busy service as for an unreachable one.
            channel.protocol.busy_s_max = config.connect_timeout
        carrier = ProceedCarrier(carrier, config.ttl)
    return carrier


def _bare_carrier(source: Source, is_direct: bool) -> Carrier:
    config, scheme = source.config, scheme_in(source.url)
    if scheme in SERVICE_SCHEMES:
        # A new one each time: a child process makes carriers of the same source.
        source = msgspec.structs.replace(source, client=config.identify())
        driver = _driver(source, source.url, is_direct)
        make_cell = None if source.is_far else partial(_cell_carrier, source)
        return Channel(driver, source.guarantees, partial(_shard_channel, source), make_cell)
    if scheme == _MEMORY:
        from fencehold.client.memory import HostedChannel  # noqa: PLC0415 - it brings the whole server

        # However it is spelled, it is one service.
        hosted = _MEMORY + source.url[len(_MEMORY) :]
        return HostedChannel(hosted, lambda url: _driver(source, url, is_direct), source.guarantees)
    settings = _settings_of_backend(config)
    backend = registry.backend_of(source.url, settings)
    return DirectCarrier(backend, settings, config.clock, long_wait=config.long_wait_s)


def _shard_channel(source: Source, shard: int) -> Channel:
    """A channel of its own to one of several shards."""
    driver = _driver(msgspec.structs.replace(source, shard=shard), source.url, is_direct=False)
    return Channel(driver, source.guarantees)


def _cell_carrier(source: Source, cell: Cell) -> tuple[Carrier, Channel]:
    """A carrier of its own for another cell, reached as the first one is; with a circuit breaker."""
    url = with_endpoints(source.url, map(endpoint, cell.addresses))
    carrier = carrier_of(msgspec.structs.replace(source, url=url, is_far=True, has_breaker=True, proceeds=False))
    channel = channel_of(carrier)
    if channel is None:
        raise UsageError(f"cell {cell.name!r} is not a Fencehold service")
    return carrier, channel


def _driver(source: Source, url: str, is_direct: bool) -> Driver:
    # memory:// is the process's own and needs no login: that is for a service.
    login = Login() if scheme_in(source.url) == _MEMORY else None
    kind, loop = SharedProtocol if is_direct else SessionProtocol, asyncio.get_running_loop()
    place = (source.machine, login, source.shard, source.client)
    protocol = session_protocol(source.config, url, *place, kind=kind)
    if isinstance(protocol, SharedProtocol):
        return LineDriver(protocol, loop, source.tls, clock=source.config.clock)
    return Driver(protocol, loop, source.tls, clock=source.config.clock)


def session_protocol(
    config: Config,
    url: str,
    machine: str = "",
    login: Login | None = None,
    shard: int | None = None,
    client: str = "",
    *,
    kind: type[SessionProtocol] = SessionProtocol,
) -> SessionProtocol:
    """The protocol of a session at a service. It has not connected yet.

    Raises:
        UsageError: the URL makes no sense, or the file of a secret cannot be read.
    """
    address = service_address(url)
    if login is None:
        login = _login(config, address)
    settings = Settings(
        ttl=config.ttl,
        grace=config.grace,
        connect_timeout=config.connect_timeout,
        long_wait=config.long_wait_s,
        name=config.name,
        meta=session_meta(config.name, config.meta, __version__, client),
        user=login.user,
        secret=login.password,
        tier=machine,
        shard=shard,
    )
    return kind(settings, Rotation(address.endpoints, config.draw, scheme=scheme_in(url)))


def _login(config: Config, address: ServiceAddress) -> Login:
    files = LoginFiles(config.user, config.secret_file, config.token_file)
    return login_of(address.user, address.secret, files)


def _routed(config: Config) -> dict[Tier, Source]:
    """A source for each tier that is configured."""
    sources: dict[Tier, Source] = {}
    if config.correctness is not None:
        sources.update(_sources(config, config.correctness))
        if Tier.CORRECTNESS not in sources:
            Plan(sources).source(Tier.CORRECTNESS)
    if config.efficiency is not None:
        sources[Tier.EFFICIENCY] = _sources(config, config.efficiency)[Tier.EFFICIENCY]
    if config.correctness is not None and config.efficiency is not None:
        return {tier: source.guarded() for tier, source in sources.items()}
    return sources


def _sources(config: Config, url: str) -> dict[Tier, Source]:
    """All that one URL can serve."""
    if not isinstance(url, str):
        raise UsageError(f"a URL must be a str such as 'fencehold://127.0.0.1:7420', got {url!r}")
    scheme = scheme_in(url)
    if scheme in SERVICE_SCHEMES:
        address = service_address(url)
        # Read again for each session; errors in its files are raised before anything is connected to.
        _login(config, address)
        # Shared by both tiers: making it may read all certificates of the machine.
        tls = _tls(config, address) if config.tls is None else config.tls
        return {tier: _service(config, url, tier, tls) for tier in Tier}
    if scheme != _MEMORY and scheme not in registry.SCHEMES:
        raise wrong_scheme(url, (*SERVICE_SCHEMES, _MEMORY, *registry.SCHEMES))
    given = _guarantees(config, url, Tier.CORRECTNESS)
    machine = _MEMORY_MACHINE if scheme == _MEMORY else ""
    # One for both tiers: they are the same there.
    source = Source(config=config, url=url, guarantees=given, machine=machine, has_breaker=scheme != _MEMORY)
    return {tier: source for tier in Tier if given.gives(tier)}


def _service(config: Config, url: str, tier: Tier, tls: ssl.SSLContext | ClientTls | None) -> Source:
    """One tier of the Fencehold service."""
    machine = "EFFICIENCY" if tier is Tier.EFFICIENCY else ""
    return Source(config=config, url=url, guarantees=_guarantees(config, url, tier), tls=tls, machine=machine)


def _tls(config: Config, address: ServiceAddress) -> ClientTls | None:
    """The TLS files for a service, if the URL asks for TLS: from the URL, the environment, the configuration."""
    if address.tls is None:
        return None
    return ClientTls(address.tls.over(files_of_environment()).over(files_of(config.ca, config.cert, config.key)))


def _guarantees(config: Config, url: str, tier: Tier) -> Guarantees:
    """What the source at a URL guarantees in a tier."""
    scheme = scheme_in(url)
    if scheme not in (*SERVICE_SCHEMES, _MEMORY):
        # Made for that, and to check the URL; it connects to nothing.
        backend: Backend = registry.backend_of(url, _settings_of_backend(config))
        return backend.guarantees
    is_memory, is_replicated = scheme == _MEMORY, tier is Tier.CORRECTNESS
    clocks = "durations only, by monotonic clocks that drift by less than 2 % from one another"
    if is_memory:
        clocks = "durations by monotonic clocks; for fences of a later process, that the time of day moves forward"
    return Guarantees(
        backend=_MEMORY if is_memory else "fencehold",
        linearizable=is_memory or is_replicated,
        fenced=is_memory or is_replicated,
        fence_survives_failover=is_memory or is_replicated,
        fair=True,
        survives_failover=is_replicated and not is_memory,
        frees_on_crash=config.grace,
        clocks=clocks,
        shared=True,
        semaphores=True,
        multi=True,
        delays=True,
        at_least=True,
        watches=True,
    )


def _settings_of_backend(config: Config) -> BackendSettings:
    said = session_meta(config.name, config.meta, __version__)
    return BackendSettings(config.ttl, config.connect_timeout, said)


def _lack(is_linearizable: bool) -> str:
    return (
        "has no fence that only grows" if is_linearizable else "may have two holders at once when a server fails"
    )
