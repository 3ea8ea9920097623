"""Roles, told: once per change, and never the same again and again."""

from typing import cast

from fencehold.cli.roles import Roles
from fencehold.node.node import Node
from fencehold.node.standbys import Member


class Actor:
    """A node that is what the test says."""

    def __init__(self, **facts: object) -> None:
        self.role = "waiting"
        self.notes: tuple[str, ...] = ()
        self.leader = Member()
        self.member = Member("a", "host:1")
        self.epoch = self.position = 0
        self.__dict__.update(facts)
        self._roles = Roles(cast(Node, self))

    def now(self, **changes: object) -> str:
        """What is told after these changes; nothing if that is no news."""
        self.__dict__.update(changes)
        change = self._roles.change()
        return change.words if change is not None else ""


B, C = Member("b", "host:2"), Member("c", "host:3")


def test_each_change_is_told_once() -> None:
    """It leads, follows one, then another, then leads again."""
    node = Actor()
    assert node.now(role="leader", epoch=1) == "leads, epoch 1"
    assert node.now(position=9) == ""
    assert node.now(role="standby", leader=B) == "stands by; b leads at host:2"
    assert node.now(position=10) == ""
    assert node.now(leader=C) == "stands by; c leads at host:3"
    assert node.now(role="leader", epoch=4) == "leads, epoch 4"
    assert node.now(epoch=5) == "leads, epoch 5"


def test_a_node_that_is_about_to_lead_is_not_standing_by() -> None:
    """Nobody led before it, or it did itself."""
    node = Actor(role="standby")
    assert node.now() == ""
    assert node.now(leader=Member("a", "host:1")) == ""


def test_trouble_is_told_once_and_its_end_too() -> None:
    """However often it is tried meanwhile; the same role afterwards is news again."""
    node = Actor(role="leader", epoch=1)
    assert node.now() == "leads, epoch 1"
    assert node.now(role="waiting", notes=("trying again: away",)) == "cannot serve: trying again: away"
    assert node.now() == ""
    assert node.now(notes=("trying again: no majority",)) == "cannot serve: trying again: no majority"
    assert node.now(notes=("trying again: away",)) == ""
    assert node.now(role="leader", notes=()) == "leads, epoch 1"
    assert node.now(role="waiting", notes=("trying again: away",)) == "cannot serve: trying again: away"


def test_reasons_that_never_repeat_do_not_fill_the_log() -> None:
    """An engine may word each failure differently."""
    node = Actor()
    told = [node.now(notes=(f"trying again: attempt {number}",)) for number in range(100)]
    assert sum(bool(words) for words in told) == 8


def test_a_node_that_has_not_begun_says_nothing() -> None:
    """It neither serves nor fails."""
    assert Actor().now() == ""


def test_a_log_has_the_facts() -> None:
    """Each event with its own fields."""
    roles = Roles(cast(Node, Actor(role="standby", leader=B, position=7)))
    change = roles.change()
    assert change is not None
    assert (change.event, change.facts) == (
        "standing_by",
        {"leader": "b", "leader_address": "host:2", "position": 7},
    )
    assert not change.is_trouble
