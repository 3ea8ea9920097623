"""The plan: which source serves which tier, what stands around it, and what is refused before anything happens."""

from typing import Any

import pytest

from fencehold import CORRECTNESS, EFFICIENCY, Unsupported, UsageError
from fencehold.client.aio.channel import Channel
from fencehold.client.making import Making
from fencehold.client.memory import MemorySource
from fencehold.client.plan import Plan, plan_of
from fencehold.client.rules import Rules
from fencehold.client.sources import BreakingSource, ProceedingSource, ServiceSource, Source, bare, source_of
from fencehold.guarantees import Guarantees
from fencehold.types import Tier

MAKING = Making("", 30.0, 1.0, "", None, 5.0, None)
SERVICE = "fencehold://10.0.0.1"


def plan(
    url: str | None = None, *, correctness: str | None = None, efficiency: str | None = None, **said: Any
) -> Plan:
    return plan_of(MAKING, url=url, correctness=correctness, efficiency=efficiency, rules=Rules(), **said)


class Weak:
    """A source for EFFICIENCY only, as a Redis is one."""

    is_service = False

    def __init__(self, *, linearizable: bool = False) -> None:
        self.guarantees = Guarantees("weak", linearizable, False, False, False, False, 30.0, "all")

    def at(self, tier: Tier) -> "Weak":
        return self

    def carrier(self) -> Channel:
        raise NotImplementedError


@pytest.fixture
def weak(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `weak://` be the URL of a backend to be used directly."""

    def found(making: Making) -> Source:
        return Weak() if making.url.startswith("weak") else source_of(making)

    monkeypatch.setattr("fencehold.client.plan.source_of", found)


def kinds(of: Plan) -> dict[Tier, list[type]]:
    """What each tier is served by, from the outside in."""
    found: dict[Tier, list[type]] = {}
    for tier, source in of.sources.items():
        inside: Source = source
        found[tier] = [type(inside)]
        while isinstance(inside, BreakingSource | ProceedingSource):
            inside = inside.within
            found[tier].append(type(inside))
    return found


def test_one_service_is_asked_without_a_detour() -> None:
    """For either tier: no breaker, nothing to go through."""
    assert kinds(plan(SERVICE)) == {EFFICIENCY: [ServiceSource], CORRECTNESS: [ServiceSource]}
    assert all(source.is_service for source in plan(SERVICE).sources.values())
    assert kinds(plan(correctness=SERVICE)) == kinds(plan(SERVICE))


def test_a_backend_used_directly_has_a_breaker(weak: None) -> None:
    """And nothing for the tier that it cannot give."""
    assert kinds(plan("weak://")) == {EFFICIENCY: [BreakingSource, Weak]}
    assert kinds(plan(efficiency="weak://")) == {EFFICIENCY: [BreakingSource, Weak]}


def test_several_sources_have_a_breaker_each(weak: None) -> None:
    """The one for EFFICIENCY takes the place of what the other could do as well."""
    assert kinds(plan(correctness=SERVICE, efficiency="weak://")) == {
        CORRECTNESS: [BreakingSource, ServiceSource],
        EFFICIENCY: [BreakingSource, Weak],
    }
    both = plan(correctness="memory://a", efficiency="memory://b")
    urls = {tier: bare(source).making.url for tier, source in both.sources.items()}  # type: ignore[attr-defined]
    assert urls == {CORRECTNESS: "memory://a", EFFICIENCY: "memory://b"}


def test_only_efficiency_goes_on_without_a_lock(weak: None) -> None:
    """Whichever way the sources were said, nothing is put around the one that protects state."""
    assert kinds(plan(SERVICE, on_unavailable="proceed")) == {
        CORRECTNESS: [ServiceSource],
        EFFICIENCY: [ProceedingSource, BreakingSource, ServiceSource],
    }
    assert kinds(plan("memory://", on_unavailable="proceed")) == {
        CORRECTNESS: [MemorySource],
        EFFICIENCY: [ProceedingSource, BreakingSource, MemorySource],
    }
    assert kinds(plan(correctness=SERVICE, efficiency="weak://", on_unavailable="proceed")) == {
        CORRECTNESS: [BreakingSource, ServiceSource],
        EFFICIENCY: [ProceedingSource, BreakingSource, Weak],
    }


def test_what_may_go_on_without_a_lock_gives_no_correctness() -> None:
    """Its guarantees are less than those of its source, and say so."""
    source = plan("memory://", on_unavailable="proceed").source(EFFICIENCY)
    assert bare(source).guarantees.gives(CORRECTNESS)
    assert not source.guarantees.gives(CORRECTNESS)


@pytest.mark.parametrize("on_unavailable", ["raise", "proceed"])
def test_what_cannot_protect_state_is_not_asked_to(weak: None, on_unavailable: str) -> None:
    """Not even by being named for it; the message says why, and what to do."""
    with pytest.raises(Unsupported, match="weak:// cannot give CORRECTNESS, as it may have two holders"):
        plan("weak://", on_unavailable=on_unavailable).source(CORRECTNESS)
    with pytest.raises(Unsupported, match="weak:// cannot give CORRECTNESS"):
        plan(correctness="weak://", efficiency=SERVICE, on_unavailable=on_unavailable)
    fenceless = Plan({EFFICIENCY: Weak(linearizable=True)})
    with pytest.raises(Unsupported, match="has no fence that only grows"):
        fenceless.source(CORRECTNESS)


@pytest.mark.parametrize("on_unavailable", ["raise", "proceed"])
def test_what_was_named_for_efficiency_only_serves_nothing_else(on_unavailable: str) -> None:
    """It could do more, but was not asked to."""
    with pytest.raises(Unsupported, match="no source for CORRECTNESS: say correctness="):
        plan(efficiency=SERVICE, on_unavailable=on_unavailable).source(CORRECTNESS)


def test_a_client_is_first_connected_to_what_protects_state(weak: None) -> None:
    """If it has that."""
    both = plan(correctness=SERVICE, efficiency="weak://")
    assert both.first is both.sources[CORRECTNESS]
    assert plan("weak://").first.guarantees.backend == "weak"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"url": SERVICE, "efficiency": SERVICE}, "either one URL, or correctness= and efficiency="),
        ({"url": SERVICE, "on_unavailable": "ignore"}, "on_unavailable is 'raise' or 'proceed', not 'ignore'"),
        ({"correctness": "ftp://host"}, "a URL begins with one of"),
        ({"correctness": ""}, "a URL begins with one of"),
        ({"correctness": SERVICE, "efficiency": ""}, "a URL begins with one of"),
    ],
)
def test_what_makes_no_sense_is_refused(said: dict[str, Any], words: str) -> None:
    """Before anything is connected to."""
    with pytest.raises(UsageError, match=words):
        plan(**said)
