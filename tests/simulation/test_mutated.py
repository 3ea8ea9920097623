"""True histories, each changed in one place so that it is a lie: every one must be rejected.

The histories are of short runs, with faults and all. As they are, nothing is wrong with them.
"""

from collections.abc import Callable
from copy import copy
from functools import cache
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from fencehold.core.commands import Mode
from fencehold.journal.codec import decode, encode
from tests.simulation.checking import check
from tests.simulation.history import NEVER, Ask, History
from tests.simulation.story import Story
from tests.simulation.wire import Said
from tests.simulation.world import World

pytestmark = pytest.mark.slow

SEEDS = (11, 12)
EACH = 8
"""Lies of each kind, of each history."""


@cache
def true_history(seed: int) -> History:
    return World(seed, chaos_s=40).run()


@cache
def true_story(seed: int) -> Story:
    story = Story()
    for record in true_history(seed).stored:
        story.tell(record)
    return story


def copied(history: History) -> History:
    """A copy whose lists and their dataclasses may be changed."""
    other = copy(history)
    other.asks, other.holds = [copy(ask) for ask in history.asks], [copy(held) for held in history.holds]
    other.said, other.stored, other.snapshots = list(history.said), list(history.stored), list(history.snapshots)
    return other


Lie = Callable[[History, Story, Random], None]


def trust_beyond_the_next_grant(history: History, story: Story, random: Random) -> None:
    followed = []
    for held in history.holds:
        later = [
            grant.at_ns
            for fence, grant in story.grants.items()
            if fence > held.fence and set(grant.granted.names) & set(held.names)
        ]
        if held.mode is Mode.EXCLUSIVE and later and (held.names[0], held.fence) not in story.broken:
            followed.append((held, min(later)))
    held, until_ns = random.choice(followed)
    held.trusted_ns = until_ns


def a_fence_is_granted_again(history: History, story: Story, random: Random) -> None:
    granted = sorted((ask for ask in history.asks if ask.outcome == "granted"), key=lambda ask: ask.ended_ns)
    one, other = random.sample(granted, 2)
    one.fence = other.fence


def fences_change_places(history: History, story: Story, random: Random) -> None:
    granted = [ask for ask in history.asks if ask.outcome == "granted"]
    pairs = [(a, b) for a in granted for b in granted if a.ended_ns < b.asked_ns]
    one, other = random.choice(pairs)
    one.fence, other.fence = other.fence, one.fence


def an_acquire_is_never_answered(history: History, story: Story, random: Random) -> None:
    ask: Ask = random.choice([ask for ask in history.asks if ask.ended_ns >= 0])
    ask.ended_ns, ask.outcome, ask.orphaned = NEVER, "", False


def _replace_said(history: History, index: int, **changes: Any) -> None:
    history.said[index] = history.said[index]._replace(**changes)


def _said(history: History, *words: bytes) -> list[tuple[int, Said]]:
    return [
        (index, said)
        for index, said in enumerate(history.said)
        if said.words and said.words[0] in words and isinstance(said.reply, dict)
    ]


def a_grant_is_told_too_early(history: History, story: Story, random: Random) -> None:
    grants = [(index, said) for index, said in _said(history, b"LOCK.ACQUIRE") if b"fence" in said.reply]
    index, said = random.choice(grants)
    _replace_said(history, index, at_ns=story.grants[said.reply[b"fence"]].at_ns - 1)


def a_grant_is_made_up(history: History, story: Story, random: Random) -> None:
    grants = [(index, said) for index, said in _said(history, b"LOCK.ACQUIRE") if b"fence" in said.reply]
    index, said = random.choice(grants)
    _replace_said(history, index, reply=said.reply | {b"fence": max(story.grants) + 1})


def a_keep_alive_is_made_up(history: History, story: Story, random: Random) -> None:
    index, said = random.choice(_said(history, b"SESSION.KEEPALIVE"))
    _replace_said(history, index, reply=said.reply | {b"at": 1})


def a_session_is_opened_too_early(history: History, story: Story, random: Random) -> None:
    index, said = random.choice(_said(history, b"SESSION.OPEN"))
    _replace_said(history, index, at_ns=story.opened[said.reply[b"session"]] - 1)


def time_is_hurried(history: History, story: Story, random: Random) -> None:
    index = random.randrange(len(history.stored))
    record = history.stored[index]
    entry = decode(record.data)
    history.stored[index] = record._replace(data=encode(replace(entry, elapsed_ms=entry.elapsed_ms + 400_000)))


def an_entry_is_lost(history: History, story: Story, random: Random) -> None:
    del history.stored[random.randrange(len(history.stored) - 1)]


def a_snapshot_is_of_another_state(history: History, story: Story, random: Random) -> None:
    index = random.randrange(len(history.snapshots))
    saved = history.snapshots[index]
    history.snapshots[index] = saved._replace(position=saved.position - 1)


LIES: tuple[Lie, ...] = (
    trust_beyond_the_next_grant,
    a_fence_is_granted_again,
    fences_change_places,
    an_acquire_is_never_answered,
    a_grant_is_told_too_early,
    a_grant_is_made_up,
    a_keep_alive_is_made_up,
    a_session_is_opened_too_early,
    time_is_hurried,
    an_entry_is_lost,
    a_snapshot_is_of_another_state,
)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_truth_is_accepted(seed: int) -> None:
    """As it happened, nothing is wrong with it."""
    assert check(true_history(seed)) == []


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_lie_is_rejected(seed: int, lie: Lie) -> None:
    """Changed in one place, it breaks something."""
    for number in range(EACH):
        history = copied(true_history(seed))
        lie(history, true_story(seed), Random(number))
        assert check(history) != [], f"number {number}"
