"""The table of needs: no command without one, and none for a command that is not there."""

import pytest

from fencehold.doors.resp import door, hello
from fencehold.engines.memory import MemoryJournal, MemoryStore
from fencehold.errors import UsageError
from fencehold.node.node import Node
from fencehold.security.rights import NEEDS, About, check_registered
from tests.loops import run
from tests.unit.node.doubles import HandClock


def test_a_command_without_a_need_cannot_be_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A door with a command that is not in the table cannot be made."""

    async def scenario() -> None:
        node = Node(MemoryJournal(MemoryStore()), HandClock())
        door.Door(node)
        monkeypatch.setitem(hello.HANDLERS, b"LOCK.STEAL", hello.ping)
        with pytest.raises(UsageError, match=r"LOCK\.STEAL"):
            door.Door(node)

    run(scenario())
    with pytest.raises(UsageError, match="A, B"):
        check_registered(["PING", "B", "A"])


def test_every_need_is_of_a_command() -> None:
    """What is set down and not served is a right that nobody can use."""

    async def scenario() -> None:
        served = door.Door(Node(MemoryJournal(MemoryStore()), HandClock())).handlers
        assert {command.decode() for command in served} == set(NEEDS)

    run(scenario())


def test_what_is_about_names_or_the_service_needs_a_verb() -> None:
    """Nothing that touches or shows more than the principal's own goes without a verb."""
    for command, need in NEEDS.items():
        assert (need.verb is None) is (need.about in (About.CONNECTION, About.OWN)), command
