"""The checker itself: what is legal passes, and every way to break a law is seen."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.robustness.checker import Excused, violations
from tests.robustness.history import Claim, History, Reading, Seen

NAMES = [f"n{number}" for number in range(4)]
CLIENTS = {f"c{number}": 100 + number for number in range(5)}


@dataclass
class Service:
    """A lock service that keeps the laws, with answers that take their time."""

    lots: random.Random
    history: History = field(default_factory=History)
    now: float = 0.0
    fence: int = 0
    holders: dict[str, Claim] = field(default_factory=dict)
    freed: dict[str, float] = field(default_factory=dict)
    """When names were let go of."""

    def step(self) -> None:
        self.now += self.lots.random()
        name = self.lots.choice(NAMES)
        holder = self.holders.get(name)
        if self.lots.random() < 0.3:
            self._read(name)
        elif holder is None:
            self._grant(name)
        elif holder.granted_at is not None and holder.granted_at < self.now:
            self._free(name, holder)

    def _late(self) -> float:
        return self.now + self.lots.random() * 3

    def _grant(self, name: str) -> None:
        client = self.lots.choice(list(CLIENTS))
        claim = Claim(client, CLIENTS[client], name, self.now - self.lots.random() * 3)
        self.history.claims.append(claim)
        self.fence += 1
        claim.fence = self.fence
        claim.granted_at = claim.trusted_until = self._late()
        self.holders[name] = claim

    def _free(self, name: str, claim: Claim) -> None:
        # Asked for a while ago; the answer takes a while, too.
        assert claim.granted_at is not None
        claim.let_go_at = claim.trusted_until = max(claim.granted_at, self.now - self.lots.random())
        claim.freed_at = self._late()
        del self.holders[name]

    def _read(self, name: str) -> None:
        holder = self.holders.get(name)
        holds = () if holder is None else (Seen(holder.session, holder.fence),)
        self.history.readings.append(Reading(self.now - self.lots.random(), self._late(), name, holds))


def legal(seed: int, steps: int = 120) -> History:
    service = Service(random.Random(seed))
    for _ in range(steps):
        service.step()
    return service.history


def test_what_is_legal_passes() -> None:
    """Histories of a service that keeps the laws, with answers that come late and in any order, show nothing."""
    for seed in range(300):
        assert violations(legal(seed)) == [], f"seed {seed}"


def fence_had_twice(history: History, lots: random.Random) -> str:
    one, other = lots.sample(list(history.granted()), 2)
    one.fence = other.fence
    return "had twice"


def fence_gone_back(history: History, lots: random.Random) -> str:
    history.readings.clear()
    granted = sorted(history.granted(), key=lambda claim: claim.granted_at or 0)
    late = lots.choice(granted[-5:])
    early = next(claim for claim in granted if (claim.granted_at or 0) < late.asked_at)
    early.fence, late.fence = late.fence, early.fence
    return "went back"


def trust_that_outlasts_the_next_grant(history: History, lots: random.Random) -> str:
    history.readings.clear()
    by_name = [[claim for claim in history.granted() if claim.name == name] for name in NAMES]
    one, other = lots.choice(by_name)[:2]
    one.trusted_until = (other.granted_at or 0) + 0.001
    return "two held it"


def grant_that_is_gone(history: History, lots: random.Random) -> str:
    claim = lots.choice(list(history.granted()))
    claim.let_go_at = claim.freed_at = None
    after = (claim.granted_at or 0) + 0.001
    others = [(), (Seen(claim.session, claim.fence - 1),), (Seen(claim.session + 1, claim.fence),)]
    history.readings.append(Reading(after, after + 1, claim.name, lots.choice(others)))
    return "a grant is gone"


def hold_that_nobody_asked_for(history: History, lots: random.Random) -> str:
    at = lots.random() * 10
    history.readings.append(Reading(at, at + 1, "nobody's", (Seen(100, 10_000),)))
    return "nobody asked for it"


def hold_under_another_name(history: History, lots: random.Random) -> str:
    claim = lots.choice(list(history.granted()))
    history.readings.append(Reading(0, 1000, "another", (Seen(claim.session, claim.fence),)))
    return "it is another's"


def release_that_is_undone(history: History, lots: random.Random) -> str:
    claim = lots.choice([claim for claim in history.granted() if claim.freed_at is not None])
    after = (claim.freed_at or 0) + 0.001
    history.readings.append(Reading(after, after + 1, claim.name, (Seen(claim.session, claim.fence),)))
    return "a release is undone"


def lost_hold(history: History, lots: random.Random) -> str:
    lots.choice(list(history.granted())).lost = "the session was expired"
    return "a hold was lost"


def lost_session(history: History, lots: random.Random) -> str:
    history.readings.clear()
    lots.choice([claim for claim in history.granted() if claim.client == "c1"]).session = 7
    return "a session was lost: c1 had"


def failed_request(history: History, lots: random.Random) -> str:
    lots.choice(history.claims).failure = "OutcomeUnknown: the connection was lost"
    return "a request failed"


BREACHES: list[Callable[[History, random.Random], str]] = [
    fence_had_twice,
    fence_gone_back,
    trust_that_outlasts_the_next_grant,
    grant_that_is_gone,
    hold_that_nobody_asked_for,
    hold_under_another_name,
    release_that_is_undone,
    lost_hold,
    lost_session,
    failed_request,
]


@pytest.mark.parametrize("breach", BREACHES)
def test_every_breach_is_seen(breach: Callable[[History, random.Random], str]) -> None:
    """A legal history with one thing made wrong is refused, and the words name what it is."""
    for seed in range(100):
        history = legal(seed)
        words = breach(history, random.Random(seed))
        assert any(words in found for found in violations(history)), f"seed {seed}"


def test_an_answer_that_never_came_may_be_either() -> None:
    """A claim without an end, or with an unknown one, may be held; one that certainly failed or ended may not."""

    def held_by(claim: Claim) -> list[str]:
        reading = Reading(5.0, 6.0, "n", (Seen(1, 9),))
        return violations(History([claim], [reading]), Excused(frozenset({"OutcomeUnknown", "Unavailable"})))

    assert held_by(Claim("c", 1, "n", asked_at=4.0)) == []
    assert held_by(Claim("c", 1, "n", asked_at=4.0, failure="OutcomeUnknown: gone", failed_at=4.5)) == []
    assert held_by(Claim("c", 1, "n", asked_at=4.0, refused_at=5.5)) == []
    assert held_by(Claim("c", 1, "n", asked_at=4.0, refused_at=4.5)) != []
    assert held_by(Claim("c", 1, "n", asked_at=4.0, failure="Unavailable: not sent", failed_at=4.5)) != []
    assert held_by(Claim("c", 2, "n", asked_at=4.0)) != []
    assert held_by(Claim("c", 1, "n", asked_at=6.5)) != []


def test_what_a_fault_justifies_is_excused_and_nothing_else() -> None:
    """Errors are excused by name and losses by a flag; a fence had twice never is."""
    lost = Claim("c", 1, "n", 0.0, granted_at=1.0, fence=1, trusted_until=2.0, lost="the session was expired")
    failed = Claim("c", 1, "n", 0.0, failure="Unavailable: not reached", failed_at=1.0)
    excused = Excused(frozenset({"Unavailable"}), losses=True)
    assert violations(History([lost, failed]), excused) == []
    assert len(violations(History([lost, failed]))) == 2
    again = Claim("d", 2, "n", 3.0, granted_at=4.0, fence=1, trusted_until=5.0)
    assert violations(History([lost, again]), excused) != []
