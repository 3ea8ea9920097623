"""The checker: what a history must not show. Fences order all holds, so it sorts and does not search.

1. *A fence is had once*: no two grants have the same one.
2. *Fences follow time*: what was granted before another was asked for has the smaller fence.
3. *Trust does not overlap*: when a hold of a name is trusted, none with a larger fence has been granted.
4. *What was granted is there*: a reading shows every hold that was granted before it and let go of after it, with
   its session and fence; and shows none that was given back before it, or that nobody asked for.
5. *A client keeps its session*, and no hold is lost.
6. *No request fails*.

The first four are safety, and hold whatever happens. What a fault justifies of the last two is *excused*: errors
by their names, losses by a flag.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import accumulate, pairwise
from math import inf
from typing import NamedTuple

from tests.robustness.history import Claim, History, Reading, Seen


class Excused(NamedTuple):
    """What the faults of a run justify."""

    errors: frozenset[str] = frozenset()
    """Names of errors that requests may end with."""
    losses: bool = False
    """Sessions may end, and holds be lost."""


NOTHING = Excused()


def violations(history: History, excused: Excused = NOTHING) -> list[str]:
    """Everything that is wrong, in words; empty if nothing is."""
    granted = sorted(history.granted(), key=_fence)
    return [
        *_shared_fences(granted),
        *_fences_against_time(granted),
        *_overlaps(granted),
        *_wrong_readings(history),
        *(() if excused.losses else _losses(history.claims)),
        *_failures(history.claims, excused.errors),
    ]


def _fence(claim: Claim) -> int:
    return claim.fence


def _with_larger_fence(one: Claim, other: Claim) -> Claim:
    return other if other.fence > one.fence else one


def _trusted_longer(one: Claim, other: Claim) -> Claim:
    return other if other.trusted_until > one.trusted_until else one


def _granted_at(claim: Claim) -> float:
    return inf if claim.granted_at is None else claim.granted_at


def _shared_fences(granted: list[Claim]) -> Iterator[str]:
    for one, other in pairwise(granted):
        if one.fence == other.fence:
            yield f"a fence was had twice: {one} and {other}"


def _fences_against_time(granted: list[Claim]) -> Iterator[str]:
    by_return = sorted(granted, key=_granted_at)
    returned = [_granted_at(claim) for claim in by_return]
    largest = list(accumulate(by_return, _with_larger_fence))
    for claim in granted:
        before = bisect_left(returned, claim.asked_at)
        if before and largest[before - 1].fence > claim.fence:
            yield f"a fence went back: {claim} was asked after {largest[before - 1]} had been granted"


def _overlaps(granted: list[Claim]) -> Iterator[str]:
    by_name: defaultdict[str, list[Claim]] = defaultdict(list)
    for claim in granted:
        by_name[claim.name].append(claim)
    for claims in by_name.values():
        # The one trusted longest among those with smaller fences is the only one that need be compared.
        longest = accumulate(claims, _trusted_longer)
        for before, claim in zip(longest, claims[1:], strict=False):
            if before.trusted_until > _granted_at(claim):
                yield (
                    f"two held it: {before} trusted it until {before.trusted_until:.3f}, "
                    f"{claim} was granted at {claim.granted_at:.3f}"
                )


def _wrong_readings(history: History) -> Iterator[str]:
    by_name: defaultdict[str, list[Claim]] = defaultdict(list)
    by_fence = {claim.fence: claim for claim in history.granted()}
    for claim in history.claims:
        by_name[claim.name].append(claim)
    for reading in history.readings:
        claims = by_name[reading.name]
        yield from _missing(reading, claims)
        for seen in reading.holds:
            yield from _unfounded(reading, seen, by_fence.get(seen.fence), claims)


def _missing(reading: Reading, claims: Iterable[Claim]) -> Iterator[str]:
    for claim in claims:
        was_held = _granted_at(claim) < reading.asked_at and not claim.lost
        is_held_after = claim.let_go_at is None or claim.let_go_at > reading.answered_at
        if was_held and is_held_after and Seen(claim.session, claim.fence) not in reading.holds:
            yield f"a grant is gone: {claim}; at {reading.answered_at:.3f} there was {reading.holds}"


def _unfounded(reading: Reading, seen: Seen, claim: Claim | None, claims: Iterable[Claim]) -> Iterator[str]:
    if claim is None:
        if not any(_may_have_been_granted(each, reading, seen) for each in claims):
            yield f"nobody asked for it: {reading.name!r} is held at {reading.answered_at:.3f} by {seen}"
    elif (claim.name, claim.session) != (reading.name, seen.session):
        yield f"it is another's: {claim}; at {reading.answered_at:.3f} {reading.name!r} is held by {seen}"
    elif claim.freed_at is not None and claim.freed_at < reading.asked_at:
        yield f"a release is undone: {claim}; at {reading.answered_at:.3f} it is held again"


def _may_have_been_granted(claim: Claim, reading: Reading, seen: Seen) -> bool:
    """Whether it was asked for by then, in that session, and its client did not know yet."""
    if claim.session != seen.session or claim.asked_at > reading.answered_at or claim.granted_at is not None:
        return False
    if claim.failure.startswith("Unavailable"):
        # That is a promise, too: nothing happened.
        return False
    return claim.refused_at is None or claim.refused_at > reading.asked_at


def _losses(claims: Iterable[Claim]) -> Iterator[str]:
    sessions: defaultdict[str, dict[int, None]] = defaultdict(dict)
    for claim in claims:
        if claim.lost:
            yield f"a hold was lost: {claim}: {claim.lost}"
        if claim.granted_at is not None:
            sessions[claim.client][claim.session] = None
    for client, had in sessions.items():
        if len(had) > 1:
            yield f"a session was lost: {client} had {', '.join(map(str, had))}"


def _failures(claims: Iterable[Claim], excused: frozenset[str]) -> Iterator[str]:
    for claim in claims:
        if claim.failure and claim.failure.partition(":")[0] not in excused:
            yield f"a request failed: {claim}: {claim.failure}"
