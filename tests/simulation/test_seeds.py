"""Seeds (four, with `LONG=1` a hundred), those that once failed, and that a seed says all there is to say."""

import os
import subprocess
import sys
from itertools import count, islice
from pathlib import Path

import pytest
from msgspec.structs import replace

from fencehold.build import PURE
from fencehold.journal.codec import decode
from tests.depth import deep
from tests.simulation.runs import Run, run, seeds_from
from tests.simulation.world import CHAOS_S, World, shards_of

pytestmark = pytest.mark.slow

SEEDS, CHUNK = deep(4, 100), 2
MOVED_SEEDS, MOVES_S = deep(0, 40), deep(40.0, 300.0)
SHORT_S = deep(10.0, 30.0)
"""Of runs that are only compared with one another: what would tell them apart is in each second."""
REGRESSIONS = Path(__file__).with_name("regressions.txt")


def regressions() -> list[int]:
    """The seeds in the file: the first word of each line that is no comment."""
    lines = REGRESSIONS.read_text().splitlines()
    return [int(line.split()[0]) for line in lines if line.strip() and not line.startswith("#")]


def notable_seeds() -> list[int]:
    """Of those in which slots move, the first with names of several shards, with a flooder, and with a policy."""
    worlds = [World(seed) for seed in islice(seeds_from(1, of_moves=True), 50)]
    several = next(world for world in worlds if world.plan.habits.across)
    flooded = next(world for world in worlds if "w" in world.wild and world.plan.nodes > 1)
    ruled = next(world for world in worlds if world.has_policy)
    return [world.seed for world in (several, flooded, ruled)]


def judge(seed: int, length_s: float = CHAOS_S) -> Run:
    told = run(seed, chaos_s=length_s)
    replay = f"python -m tests.simulation --seed {seed} --length {length_s:g} --trace"
    assert not told.violations, f"{replay}\n{told.violations}"
    assert not told.void, f"seed {seed} proves nothing: {told.void}"
    assert told.simulated_s >= length_s
    return told


@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G3")
@pytest.mark.guarantee("G7")
@pytest.mark.guarantee("G9")
@pytest.mark.guarantee("G10")
@pytest.mark.guarantee("G12")
@pytest.mark.guarantee("G13")
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_seed_breaks_a_guarantee(first: int) -> None:
    """Five minutes of kills, pauses, partitions and lost replies, many times over, break nothing."""
    # Five minutes in which slots move take several times as long: at a push they are shorter, in the next test.
    seeds = (seed for seed in count(1) if deep(shards_of(seed) == 1, True))
    for seed in islice(seeds, first, first + CHUNK):
        judge(seed)


@pytest.mark.guarantee("G1")
@pytest.mark.guarantee("G2")
@pytest.mark.guarantee("G4")
@pytest.mark.guarantee("G8")
@pytest.mark.guarantee("G13")
def test_slots_that_move_break_no_guarantee() -> None:
    """Moves drawn by lot, nodes killed, paused and cut off in the middle: one home, greater fences, an end.

    Nor do names of several shards, policies that change meanwhile, or clients that keep to no rule.
    """
    seeds = [*notable_seeds(), *islice(seeds_from(1, of_moves=True), MOVED_SEEDS)]
    told = [judge(seed, MOVES_S) for seed in seeds]
    assert sum(each.moves for each in told) >= 3 * len(seeds)
    assert sum(each.struck for each in told) >= len(seeds)
    assert sum(each.joint for each in told) >= len(seeds)
    assert sum(each.followed for each in told) >= len(seeds)


@pytest.mark.parametrize("seed", regressions())
def test_what_once_failed_does_not_fail_again(seed: int) -> None:
    """Each of these seeds found a bug."""
    judge(seed, CHAOS_S if shards_of(seed) == 1 else MOVES_S)


def test_a_seed_has_one_history() -> None:
    """The same seed gives the same history, to the nanosecond; another one gives another."""
    first, again, other = (World(seed, chaos_s=SHORT_S).run().digest() for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_the_time_of_day_decides_nothing() -> None:
    """With clocks that are set forwards and back, a seed has the same journal but for the times of day in it."""
    # Where bytes are never split, the length of what is shown makes no difference to the network.
    seed = next(seed for seed in count(1) if not World(seed).plan.weather.split_share)
    histories = [World(seed, chaos_s=SHORT_S, sets_calendars=is_set).run() for is_set in (False, True)]
    steady, wild = ([(stored.at_ns, decode(stored.data)) for stored in history.stored] for history in histories)
    assert [entry.unix_ms for _, entry in steady] != [entry.unix_ms for _, entry in wild]
    undated = [[(at_ns, replace(entry, unix_ms=0)) for at_ns, entry in one] for one in (steady, wild)]
    assert undated[0] == undated[1]
    assert histories[0].stored


def test_a_history_does_not_depend_on_the_process() -> None:
    """Neither the order of hashes nor the addresses of objects decide anything, nor which build runs."""
    program = (
        f"import sys, tests.simulation.world as w; sys.stdout.write(w.World(7, chaos_s={SHORT_S}).run().digest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": hash_seed, PURE: is_pure},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout
        for hash_seed, is_pure in (("1", ""), ("2", "1"))
    }
    assert digests == {World(7, chaos_s=SHORT_S).run().digest()}
