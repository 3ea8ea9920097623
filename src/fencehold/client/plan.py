"""The plan: which source serves which tier, and which tier a name may be asked for in.

1. A tier is served by a source that gives it, or not at all: what protects state never comes from less by mistake.
2. A rule about names outweighs what a caller says: a name that is CORRECTNESS is never had for EFFICIENCY.
3. CORRECTNESS fails closed. Only EFFICIENCY can be told to go on without a lock when its source is away.
4. A backend that is used directly has a breaker, and so has each source where there are several: one that is away
   must not make the callers of another wait. A service that is a client's only source is asked without a detour.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from fencehold.client.making import Making, where
from fencehold.client.rules import Rules
from fencehold.client.sources import (
    BreakingSource,
    ProceedingSource,
    ServiceSource,
    Source,
    bare,
    source_of,
)
from fencehold.errors import Unsupported, UsageError
from fencehold.types import Tier

OnUnavailable: TypeAlias = Literal["raise", "proceed"]
"""What happens to an acquire for EFFICIENCY whose source is away: it fails, or goes on without a lock."""


class Plan(NamedTuple):
    """All that a client is made of."""

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
            raise Unsupported("this client has no source for EFFICIENCY: say efficiency='redis://…' to `connect`")
        given = bare(self.sources[Tier.EFFICIENCY]).at(tier).guarantees
        if given.gives(tier):
            raise Unsupported("this client has no source for CORRECTNESS: say correctness='…' to `connect`, too")
        raise Unsupported(
            f"{given.backend}:// cannot give CORRECTNESS, as it {_lack(given.linearizable)}: ask with "
            "tier=fencehold.EFFICIENCY, or connect to what can protect state, such as fencehold://"
        )

    @property
    def first(self) -> Source:
        """What a client is connected to before it is used: where state is protected, if it has that."""
        return self.sources.get(Tier.CORRECTNESS) or self.sources[Tier.EFFICIENCY]


def service_plan(making: Making) -> Plan:
    """The plan of whoever uses one service for everything.

    Raises:
        UsageError: what was given makes no sense.
    """
    source = ServiceSource(making.checked())
    return Plan({tier: source.at(tier) for tier in Tier})


def plan_of(
    making: Making,
    *,
    url: str | None,
    correctness: str | None,
    efficiency: str | None,
    rules: Rules,
    on_unavailable: OnUnavailable = "raise",
) -> Plan:
    """The plan for what was said to `connect`. The URL of `making` does not matter.

    Raises:
        UsageError: what was given makes no sense.
        Unsupported: what is to protect state cannot.
    """
    is_routed = correctness is not None or efficiency is not None
    if url is not None and is_routed:
        raise UsageError("say either one URL, or correctness= and efficiency=, not both")
    if on_unavailable not in ("raise", "proceed"):
        raise UsageError(f"on_unavailable is 'raise' or 'proceed', not {on_unavailable!r}")
    if is_routed:
        sources = _routed(making, correctness, efficiency)
    else:
        sources = _sources_of(making._replace(url=where(url)))
    if on_unavailable == "proceed":
        sources[Tier.EFFICIENCY] = ProceedingSource(_with_breaker(sources[Tier.EFFICIENCY], making), making)
    return Plan(sources, rules)


def _routed(making: Making, correctness: str | None, efficiency: str | None) -> dict[Tier, Source]:
    """A source for each tier, as far as it was said."""
    sources: dict[Tier, Source] = {}
    if correctness is not None:
        sources.update(_sources_of(making._replace(url=correctness)))
        if Tier.CORRECTNESS not in sources:
            Plan(sources).source(Tier.CORRECTNESS)
    if efficiency is not None:
        sources[Tier.EFFICIENCY] = _sources_of(making._replace(url=efficiency))[Tier.EFFICIENCY]
    if correctness is not None and efficiency is not None:
        return {tier: _with_breaker(source, making) for tier, source in sources.items()}
    return sources


def _sources_of(making: Making) -> dict[Tier, Source]:
    """All that one URL can serve."""
    source = source_of(making)
    if not source.is_service:
        source = _with_breaker(source, making)
    return {tier: source.at(tier) for tier in Tier if source.guarantees.gives(tier)}


def _with_breaker(source: Source, making: Making) -> Source:
    """A source with a breaker, if it has none yet."""
    return source if isinstance(source, BreakingSource) else BreakingSource(source, making)


def _lack(is_linearizable: bool) -> str:
    return (
        "has no fence that only grows" if is_linearizable else "may have two holders at once when a server fails"
    )
