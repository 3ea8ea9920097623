"""Growth: what an entry may add to a snapshot is never thought to be less than it does add."""

import random

import pytest

from fencehold.core.commands import Acquire, AcquireAtLeast, Command, Entry, Mode, OpenSession, Release
from fencehold.core.limits import Limits
from fencehold.core.machine import Machine
from fencehold.core.outcomes import Granted
from fencehold.journal.codec import encode
from fencehold.node.snapshot_growth import growth_bytes


def _size(machine: Machine) -> int:
    return sum(map(len, machine.snapshot()))


def _command(draw: random.Random, grants: list[Granted], number: int) -> Command:
    if grants and draw.random() < 0.3:
        granted = grants.pop(draw.randrange(len(grants)))
        return Release(granted.session, granted.names, granted.fence)
    if draw.random() < 0.1:
        return OpenSession(3_600_000, secret="s" * 20, meta="é" * draw.choice((0, 400)))
    kind = draw.choice((Acquire, Acquire, AcquireAtLeast))
    names = tuple({draw.choice("abcdefgh") * draw.choice((1, 2, 200)) for _ in range(draw.choice((1, 1, 6)))})
    more = {"at_least_ms": 60_000} if kind is AcquireAtLeast else {}
    words = {"owner": "o" * draw.choice((0, 100)), "meta": "é" * draw.choice((0, 500))}
    mode = draw.choice((Mode.EXCLUSIVE, Mode.SHARED)) if kind is Acquire else Mode.EXCLUSIVE
    return kind(1, names, request=number, mode=mode, **words, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(20))
def test_a_snapshot_grows_by_no_more_than_was_thought(seed: int) -> None:
    """Long words, several names at once, waiters that are granted later, names kept for somebody: all count."""
    draw, machine, limits, grants = random.Random(seed), Machine(), Limits(), list[Granted]()
    machine.apply(1, Entry(0, (OpenSession(3_600_000, secret="s"),)))
    bound = start = _size(machine)
    for position in range(2, 150):
        entry = Entry(1, tuple(_command(draw, grants, 100 * position + at) for at in range(3)))
        applied = machine.apply(position, entry)
        grants += [outcome for outcome in applied.outcomes if isinstance(outcome, Granted)]
        bound += growth_bytes(entry, applied, len(encode(entry)), limits)
        assert _size(machine) <= bound
    assert _size(machine) > start


def test_metadata_of_many_names_counts_once_and_their_owner_with_each() -> None:
    """A snapshot has a holder's metadata once, and who it is for each of its names."""
    machine = Machine()
    machine.apply(1, Entry(0, (OpenSession(3_600_000, secret="s"),)))
    before = _size(machine)
    entry = Entry(0, (Acquire(1, tuple(f"n{at}" for at in range(64)), owner="o" * 100, meta="m" * 1_000),))
    applied = machine.apply(2, entry)
    size = len(encode(entry))
    assert 64 * 100 < _size(machine) - before < 64 * 100 + 3 * size
    assert growth_bytes(entry, applied, size, Limits()) >= _size(machine) - before
