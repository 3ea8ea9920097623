"""Company: a crowd comes together before a slow append; nobody else waits."""

import pytest

from fencehold.core.commands import Break
from fencehold.node.group_commit import Company
from fencehold.node.lanes import Lane
from tests.unit.node.doubles import settle, until
from tests.unit.node.test_leader import leading


def test_a_crowd_is_waited_for_as_long_as_an_append_took() -> None:
    """Until most of those are here who were there the last time."""
    company = Company()
    company.on_append(100, 0.004)
    assert company.wait_s(1) == 0.004
    assert company.wait_s(89) == 0.004
    assert company.wait_s(90) == 0


@pytest.mark.parametrize(("crowd", "took_s"), [(1, 0.004), (2, 0.004), (17, 0.004), (1_000, 0.0009)])
def test_few_and_those_before_a_quick_append_never_wait(crowd: int, took_s: float) -> None:
    """Who is alone, or among few, or on a file, is appended at once."""
    company = Company()
    company.on_append(crowd, took_s)
    assert company.wait_s(0) == 0


def test_an_append_that_hung_makes_nobody_wait_as_long() -> None:
    """A node that was stopped for a minute, or an engine that was, is not followed by a minute of waiting."""
    company = Company()
    company.on_append(100, 60.0)
    assert company.wait_s(1) == 0.01


def test_who_did_not_come_is_not_expected_again() -> None:
    """A crowd that goes away costs one wait."""
    company = Company()
    company.on_append(100, 0.004)
    company.on_append(3, 0.004)
    assert company.wait_s(1) == 0


async def test_the_leader_appends_when_the_crowd_is_there() -> None:
    """After a slow append of a crowd the next waits until most of it is back, and then waits no more."""
    async with leading() as scene:
        for number in range(40):
            scene.leader.submit(Break("a"), scene.told.by(f"first {number}"), Lane())
        await settle()
        begun = len(scene.journal.begun)
        scene.clock.advance(60_000)
        await scene.journal.complete()
        for number in range(30):
            scene.leader.submit(Break("a"), scene.told.by(f"second {number}"), Lane())
        await settle()
        assert len(scene.journal.begun) == begun
        for number in range(10):
            scene.leader.submit(Break("a"), scene.told.by(f"third {number}"), Lane())
        await settle()
        assert scene.journal.commands[-1] >= 36
        await scene.journal.complete()


async def test_the_leader_does_not_wait_for_ever() -> None:
    """Those who come alone after a crowd are appended when the time of an append has passed."""
    async with leading() as scene:
        for number in range(40):
            scene.leader.submit(Break("a"), scene.told.by(f"first {number}"), Lane())
        await settle()
        scene.clock.advance(5)
        await scene.journal.complete()
        scene.submit("alone", Break("a"))
        await until(lambda: scene.journal.commands[-1] == 1)
        await scene.journal.complete()
        assert "alone" in scene.told.names


async def test_one_slow_append_among_quick_ones_makes_nobody_wait() -> None:
    """Where appends are quick, what keeps one of them is not followed by a wait as long, for any crowd."""
    async with leading() as scene:
        await scene.commit("quick", Break("a"))
        for number in range(40):
            scene.leader.submit(Break("a"), scene.told.by(f"first {number}"), Lane())
        await settle()
        scene.clock.advance(5)
        await scene.journal.complete()
        begun = len(scene.journal.begun)
        scene.submit("alone", Break("a"))
        await settle()
        assert len(scene.journal.begun) == begun + 1
        await scene.journal.complete()
        assert scene.told.names[-1] == "alone"


async def test_the_leader_waits_for_nobody_who_asks_for_much() -> None:
    """Much that one client asks for beside others is no crowd: the next of another is appended at once."""
    async with leading() as scene:
        flood, other = Lane(), Lane()
        for number in range(100):
            scene.leader.submit(Break("a"), scene.told.by(f"flood {number}"), flood)
        scene.leader.submit(Break("a"), scene.told.by("other"), other)
        await settle()
        scene.clock.advance(5)
        await scene.journal.complete()
        begun = len(scene.journal.begun)
        scene.leader.submit(Break("a"), scene.told.by("again"), other)
        await settle()
        assert len(scene.journal.begun) == begun + 1
        await scene.journal.complete()
        assert scene.told.names[-1] == "again"
