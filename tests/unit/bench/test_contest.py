"""How a contest runs: the order, the bounds, and what is torn down when something fails."""

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from bench.contest import Call, Contest, Contestant, ContestFailed, order, run
from bench.samples import Figures, Results
from tests.unit.bench.fakes import AsyncFake, Boom, Fake, FakeServer, Quiet


def ran(contest: Contest) -> Results:
    """Run a contest nobody watches."""
    return asyncio.run(run(contest, Quiet()))


def failed(contest: Contest) -> ContestFailed:
    """Run a contest that fails."""
    with pytest.raises(ContestFailed) as caught:
        ran(contest)
    return caught.value


def test_each_round_runs_everyone_and_starts_one_further_on() -> None:
    """Contestants are interleaved, and none always goes first."""
    log: list[str] = []
    results = ran(Contest([Fake("a", log), Fake("b", log), Fake("c", log)], rounds=4, warmups=0))
    turns = [line.removeprefix("round ") for line in log if line.startswith("round")]
    assert "".join(turns) == "abcbcacabcba"
    assert [(sample.round, sample.place, sample.contestant) for sample in results.samples[3:6]] == [
        (2, 1, "b"),
        (2, 2, "c"),
        (2, 3, "a"),
    ]


def test_over_as_many_rounds_as_contestants_everyone_has_every_place() -> None:
    """Rotation is fair: each contestant is once first, once second, once last."""
    contestants = [Fake(name, []) for name in "abc"]
    rounds = [order(contestants, number) for number in (1, 2, 3)]
    for place in range(3):
        assert {contestants[place].name for contestants in rounds} == set("abc")


@pytest.mark.parametrize("many", [2, 3, 4, 5, 6, 7, 14])
def test_over_enough_rounds_everyone_follows_everyone_as_often(many: int) -> None:
    """Nobody always runs after the same one, who may have left the disk busy."""
    contestants = [Fake(str(number), []) for number in range(many)]
    rounds = [order(contestants, number + 1) for number in range(many if many % 2 == 0 else 2 * many)]
    followed = Counter((before.name, after.name) for turns in rounds for before, after in pairwise(turns))
    assert len(followed) == many * (many - 1)
    assert set(followed.values()) == {1 if many % 2 == 0 else 2}
    for place in range(many):
        assert len({turns[place].name for turns in rounds}) == many


def test_warm_ups_leave_no_samples() -> None:
    """What runs before the first round is forgotten."""
    fake = Fake("a", [], rounds=[{"ops_per_s": 1}, {"ops_per_s": 2}, {"ops_per_s": 3}])
    assert ran(Contest([fake], rounds=2, warmups=1)).series("a", "ops_per_s") == {1: 2, 2: 3}


def test_fixtures_stand_around_the_contestants() -> None:
    """A server is up before anyone connects, and everything is torn down in reverse."""
    log: list[str] = []
    ran(Contest([Fake("a", log), AsyncFake("b", log)], rounds=1, warmups=0, fixtures=[FakeServer(log)]))
    assert log == [
        *("setup server", "setup a", "setup b"),
        *("round a", "round b"),
        *("teardown b", "teardown a", "teardown server"),
    ]


async def test_the_watcher_is_told_of_every_step_and_every_turn() -> None:
    """Progress counts warm-ups too, and reaches the number of turns announced."""
    watcher = Quiet()
    contest = Contest([Fake("a", []), Fake("b", [])], rounds=2, warmups=1)
    await run(contest, watcher)
    assert watcher.turns_done == contest.turns() == 6
    assert watcher.notes[2:5] == ["warm-up: b", "warm-up: a", "round 1 of 2: a"]


@pytest.mark.parametrize(("step", "told"), [("setup", "setup"), ("round", "round 1 of 2")])
def test_a_failing_contestant_is_named_and_everything_begun_is_torn_down(step: str, told: str) -> None:
    """The failure says who and in which step, and carries what was raised."""
    log: list[str] = []
    contest = Contest([Fake("a", log), Fake("b", log, fails_in=step), Fake("c", log)], rounds=2, warmups=0)
    (failure,) = failed(contest).failures
    assert str(failure) == f"'b' failed in {told}"
    assert isinstance(failure.__cause__, Boom)
    begun = [line.removeprefix("setup ") for line in log if line.startswith("setup")]
    torn_down = [line.removeprefix("teardown ") for line in log if line.startswith("teardown")]
    assert torn_down == begun[::-1]


def test_a_failing_teardown_does_not_keep_the_others_up() -> None:
    """Every teardown is tried, and every failure told."""
    log: list[str] = []
    contest = Contest([Fake("a", log), Fake("b", log, fails_in="teardown")], rounds=1)
    assert str(failed(contest)) == "'b' failed in teardown"
    assert log[-1] == "teardown a"


def test_a_step_that_never_ends_is_cut_off() -> None:
    """A bound ends a round that waits for ever, and the note says which bound."""

    class Stuck(Contestant):
        async def round(self) -> Figures:
            await asyncio.Event().wait()
            return {}

    (failure,) = failed(Contest([Stuck("a")], rounds=1, step_timeout_s=0.001)).failures
    assert isinstance(failure.__cause__, TimeoutError)
    assert failure.__cause__.__notes__ == ["took longer than 0.001 s"]


def test_an_interrupted_contest_is_torn_down() -> None:
    """A contest that is cancelled leaves no server behind."""
    log: list[str] = []

    class Interrupted(Contestant):
        async def round(self) -> Figures:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        ran(Contest([Interrupted("a")], rounds=1, fixtures=[FakeServer(log)]))
    assert log == ["setup server", "teardown server"]


def test_a_round_that_measures_nothing_fails_its_contestant() -> None:
    """Empty figures are reported like any failure of the contestant."""
    assert str(failed(Contest([Call("a", dict)], rounds=1, warmups=0))) == "'a' failed in round 1 of 1"


def test_a_function_is_a_contestant() -> None:
    """Arguments are handed on; a coroutine function is awaited."""

    async def double(number: int) -> Figures:
        return {"ops_per_s": number * 2}

    assert ran(Contest([Call("a", double, {"number": 4})], rounds=1)).median("a", "ops_per_s") == 8


def test_a_contest_that_cannot_be_right_is_refused() -> None:
    """Same names, unknown references and no rounds are found before anything runs."""
    with pytest.raises(ValueError, match="same name"):
        Contest([Fake("a", []), Fake("a", [])], rounds=1)
    with pytest.raises(ValueError, match="reference 'b'"):
        Contest([Fake("a", [])], rounds=1, reference="b")
    with pytest.raises(ValueError, match="reference 'c'"):
        Contest([Fake("a", [], reference="c")], rounds=1)
    with pytest.raises(ValueError, match="at least one"):
        Contest([Fake("a", [])], rounds=0)


def test_a_contestants_own_reference_goes_before_the_contests() -> None:
    """Nobody is compared with itself."""
    contest = Contest([Fake("a", []), Fake("b", []), Fake("c", [], reference="b")], rounds=1, reference="a")
    assert contest.references() == {"b": "a", "c": "b"}
