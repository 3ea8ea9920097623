"""Lanes: who is taken into an entry, and how much of a flood."""

from hypothesis import given, settings
from hypothesis import strategies as st

from fencehold.core.commands import Break, Command, Renew
from fencehold.node.lanes import (
    ALONE_AFTER_MS,
    ALONE_MAX,
    BUDGET_MAX,
    BUDGET_MIN,
    BURST_EVERY_MS,
    BURST_MAX,
    BURSTS_MAX,
    OVERFLOW_MAX,
    SHARE_MIN,
    WORK_MS_MIN,
    Batch,
    Lane,
    Lanes,
    Share,
)
from fencehold.runtime.shared import Shared

PENDING_MAX = 65_536


def _ignore(*_: object) -> None:
    """Nobody waits for the answer."""


def _put(lanes: Lanes, lane: Lane, count: int, weight: int = 1, what: str = "a") -> None:
    for number in range(count):
        lanes.put(lane, Break(f"{what}{number}"), _ignore, weight)


def _names(batch: Batch) -> list[str]:
    return [command.name for command in batch.commands if isinstance(command, Break)]


def test_one_that_is_alone_fills_large_batches() -> None:
    """Nobody waits for it, so it has a thousand in one entry."""
    lanes, lane = Lanes(PENDING_MAX), Lane()
    _put(lanes, lane, 1)
    assert len(lanes.take(0.0).commands) == 1
    assert lanes.take(ALONE_AFTER_MS).commands == []
    _put(lanes, lane, 3 * ALONE_MAX)
    assert [len(lanes.take(1_000.0).commands) for _ in range(4)] == [ALONE_MAX, ALONE_MAX, ALONE_MAX, 0]


def test_others_are_in_the_next_entry_whatever_one_sends() -> None:
    """Each lane has a command in the entry that comes next, behind a flood that came before."""
    lanes, flood = Lanes(PENDING_MAX), Lane()
    others = [Lane() for _ in range(300)]
    for lane in others:
        _put(lanes, lane, 1)
    lanes.take(0.0)
    for turn in range(5):
        _put(lanes, flood, 500, what="flood")
        for number, lane in enumerate(others):
            _put(lanes, lane, 1, what=f"other{number}-")
        batch = lanes.take(turn * 10.0)
        names = _names(batch)
        assert sum(name.startswith("other") for name in names) == len(others)
        assert len(names) <= len(others) + BUDGET_MAX


def test_floods_have_turns_one_after_the_other() -> None:
    """A hundred that flood are each served as often as any other, give or take one turn."""
    lanes, floods = Lanes(PENDING_MAX), [Lane() for _ in range(100)]
    lanes.budget = float(BUDGET_MIN)
    for lane in floods:
        _put(lanes, lane, 1)
    lanes.take(0.0)
    for number, lane in enumerate(floods):
        _put(lanes, lane, 50, what=f"{number}-")
    served: dict[str, int] = {}
    lanes.take(0.0)
    lanes.take(0.0)
    for _ in range(125):
        for name in _names(lanes.take(0.0)):
            lane_number = name.partition("-")[0]
            served[lane_number] = served.get(lane_number, 0) + 1
    assert len(served) == 100
    assert max(served.values()) - min(served.values()) <= SHARE_MIN


def test_what_is_heavy_takes_more_of_a_share() -> None:
    """A command for sixty-four names counts as sixty-four."""
    lanes, lane, other = Lanes(PENDING_MAX), Lane(), Lane()
    _put(lanes, other, 1)
    lanes.take(0.0)
    _put(lanes, lane, 100, weight=64)
    _put(lanes, other, 1)
    lanes.take(0.0)
    assert len(lanes.take(0.0).commands) <= BUDGET_MAX // 2 // 64 + 1


def test_a_lane_that_is_full_says_so_and_when_there_is_room() -> None:
    """Its connection is read from no more until half of it is taken."""
    told: list[str] = []
    lanes = Lanes(PENDING_MAX)
    lane, other = Lane(lambda: told.append("room")), Lane()
    _put(lanes, other, 1)
    lanes.take(0.0)
    _put(lanes, lane, 2 * OVERFLOW_MAX + BURST_MAX)
    assert lane.is_full
    while not told:
        _put(lanes, other, 1)
        lanes.take(0.0)
    assert [lane.is_full] == [False]
    assert len(lane.overflow) <= OVERFLOW_MAX // 2
    assert told == ["room"]


def test_many_that_flood_share_the_room() -> None:
    """What waits in all lanes stays near the bound, however many there are."""
    lanes = Lanes(pending_max=1_000)
    floods = [Lane() for _ in range(500)]
    for lane in floods:
        _put(lanes, lane, 1)
    lanes.take(0.0)
    for _ in range(20):
        for lane in floods:
            while not lane.is_full:
                _put(lanes, lane, 1)
    assert lanes.overflow <= 1_000 + len(floods)


def test_dear_commands_make_entries_smaller_and_cheap_ones_larger() -> None:
    """The budget follows what commands cost, and how long appends take, within its bounds."""
    lanes = Lanes(PENDING_MAX)
    for _ in range(100):
        lanes.learn(weight=100, work_ms=10.0, append_ms=0.2)
    assert round(lanes.budget) == BUDGET_MIN
    for _ in range(100):
        lanes.learn(weight=100, work_ms=1.0, append_ms=0.2)
    dear = lanes.budget
    assert round(dear) == 100 * WORK_MS_MIN
    for _ in range(100):
        lanes.learn(weight=100, work_ms=1.0, append_ms=5.0)
    assert lanes.budget > 2 * dear
    for _ in range(100):
        lanes.learn(weight=100, work_ms=0.01, append_ms=5.0)
    assert BUDGET_MAX - 1 < lanes.budget <= BUDGET_MAX


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 40), st.integers(1, 8), st.booleans()), max_size=60))
def test_nothing_is_lost_and_each_lane_keeps_its_order(acts: list[tuple[int, int, int, bool]]) -> None:
    """However lanes are fed and batches taken, every command comes out once, in the order of its lane."""
    lanes, each = Lanes(pending_max=50), [Lane() for _ in range(5)]
    lanes.budget = 4.0
    given_: list[list[Command]] = [[] for _ in each]
    taken: list[Command] = []
    asked: list[tuple[int, int]] = []
    now_ms = 0.0
    for number, count, weight, take in acts:
        for _ in range(count):
            command = Break(f"{number}:{len(given_[number])}")
            given_[number].append(command)
            lanes.put(each[number], command, _ignore, weight)
        asked.append((number, len(given_[number])))
        lanes.ask(each[number], asked[-1].__eq__, _ignore)
        if take:
            now_ms += 7.0
            batch = lanes.take(now_ms)
            taken += batch.commands
            _see_questions(batch, asked, taken)
    while not lanes.is_empty:
        batch = lanes.take(now_ms)
        taken += batch.commands
        _see_questions(batch, asked, taken)
    assert lanes.pending == 0
    for number, commands in enumerate(given_):
        prefix = f"{number}:"
        assert [c for c in taken if isinstance(c, Break) and c.name.startswith(prefix)] == commands


def _see_questions(batch: Batch, asked: list[tuple[int, int]], taken: list[Command]) -> None:
    """Each question comes when all that its lane asked for before has been taken."""
    for question, _ in batch.questions:
        [(number, before)] = {each for each in asked if question(each)}
        mine = [c for c in taken if isinstance(c, Break) and c.name.startswith(f"{number}:")]
        assert len(mine) >= before


def test_a_principal_has_one_share_with_however_many_connections() -> None:
    """A hundred connections of one principal get no more into an entry than the one of another."""
    lanes, shared = Lanes(65_536), Shared(Share())
    many = [Lane(shared=shared) for _ in range(100)]
    single = Lane()
    taken: dict[str, int] = {"many": 0, "single": 0}
    for now_ms in range(40):
        for lane in many:
            for _ in range(5):
                if not lane.is_full:
                    lanes.put(lane, Renew((1,)), _ignore)
        for _ in range(300):
            if not single.is_full:
                lanes.put(single, Renew((2,)), _ignore)
        for command in lanes.take(float(now_ms)).commands:
            assert isinstance(command, Renew)
            taken["many" if command.sessions == (1,) else "single"] += 1
    assert 0.8 < taken["many"] / taken["single"] < 1.25, taken
    assert all(len(lane.overflow) <= OVERFLOW_MAX for lane in many)


def test_the_connections_of_a_principal_take_turns() -> None:
    """None of them is passed over, however much the others ask for."""
    lanes, shared = Lanes(65_536), Shared(Share())
    greedy, modest = Lane(shared=shared), Lane(shared=shared)
    others = [Lane() for _ in range(3)]
    for now_ms in range(3):
        for lane in (greedy, *others):
            for _ in range(250):
                lanes.put(lane, Renew((1,)), _ignore)
        lanes.put(modest, Renew((7,)), _ignore)
        lanes.take(float(now_ms))
    found = [lanes.take(3.0 + number).commands for number in range(4)]
    assert sum(Renew((7,)) in commands for commands in found) >= 1


def _quiet(count: int) -> tuple[Lanes, list[Lane]]:
    """So many lanes that were heard before, where an entry takes little."""
    lanes, each = Lanes(PENDING_MAX), [Lane() for _ in range(count)]
    lanes.budget = float(BUDGET_MIN)
    for lane in each:
        _put(lanes, lane, 1)
    lanes.take(0.0)
    return lanes, each


def test_who_asks_again_is_behind_those_who_asked_at_once() -> None:
    """Twenty ask for ten things each; the first to be answered asks again, and is last in the journal."""
    lanes, each = _quiet(20)
    for number, lane in enumerate(each):
        _put(lanes, lane, 10, what=f"{number}-")
    taken = _names(lanes.take(1.0))
    _put(lanes, each[0], 1, what="again")
    while not lanes.is_empty:
        taken += _names(lanes.take(2.0))
    assert len(taken) == 201
    assert taken[-1] == "again0"


def test_bursts_have_a_bound_and_are_rare() -> None:
    """A crowd that comes in bursts gets so much beyond its shares in a second, all of it together."""
    lanes, each = _quiet(200)
    taken = 0
    for now_ms in range(0, int(BURST_EVERY_MS), 50):
        for lane in each:
            _put(lanes, lane, 1 if lane.overflow else BURST_MAX)
        taken += len(lanes.take(float(now_ms)).commands)
    entries = int(BURST_EVERY_MS) // 50
    assert taken <= entries * (BUDGET_MIN + SHARE_MIN + len(each)) + BURSTS_MAX
    while not lanes.is_empty:
        lanes.take(2 * BURST_EVERY_MS)
    _put(lanes, each[0], BURST_MAX)
    _put(lanes, each[1], BURST_MAX)
    assert len(lanes.take(2 * BURST_EVERY_MS).commands) >= 2 * BURST_MAX


def test_a_lane_that_is_full_stays_so_until_its_owner_is_told() -> None:
    """Though it may have more waiting by now: what comes for it from elsewhere must not end that unnoticed."""
    told: list[str] = []
    lanes = Lanes(PENDING_MAX)
    lane, others = Lane(lambda: told.append("room")), [Lane() for _ in range(29)]
    lanes.budget = float(BUDGET_MIN)
    for each in (*others, lane):
        _put(lanes, each, 1)
    lanes.take(0.0)
    for each in (*others, lane):
        while not each.is_full:
            _put(lanes, each, 1, weight=1 if each is lane else 8)
    # Shares are larger from here on, and so is what may wait in a lane; but the others use up the next entry.
    lanes.budget = float(BUDGET_MAX)
    lanes.take(0.0)
    assert told == []
    _put(lanes, lane, 1)
    assert lane.is_full
    while not lanes.is_empty:
        lanes.take(0.0)
    assert (told, lane.is_full) == (["room"], False)
