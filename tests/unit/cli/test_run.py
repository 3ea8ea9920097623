"""The loop of `fencehold run`, with a command that only tells what was done to it."""

import os
import signal
from collections.abc import Iterator
from typing import Any, cast

import pytest

from fencehold.cli.child import Child
from fencehold.cli.held_locks import HoldThread
from fencehold.cli.run import Running


class Command:
    """Stopped from the beginning."""

    pid = 0
    has_terminal = True

    def __init__(self) -> None:
        self.done: list[object] = []

    def take_terminal(self) -> None:
        self.done.append("terminal taken")

    def give_terminal(self) -> None:
        self.done.append("terminal given")

    def kill(self, number: int) -> None:
        self.done.append(signal.Signals(number))


class Held:
    """A hold that is not lost."""

    def loss(self) -> str:
        return ""


@pytest.fixture
def blocked() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCONT})
    yield
    signal.sigtimedwait({signal.SIGCONT}, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


@pytest.mark.usefixtures("blocked")
def test_a_command_is_continued_once_by_one_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What continued us is not passed on a second time: by then the command may have been stopped again."""
    monkeypatch.setattr(os, "killpg", lambda *_: os.kill(os.getpid(), signal.SIGCONT))
    monkeypatch.setattr(os, "waitpid", lambda *_: (1, signal.SIGTSTP << 8 | 0x7F))
    command = Command()
    running = Running(cast(Child, command), cast(HoldThread, Held()), 5.0)
    assert cast(Any, running)._look() is None
    assert command.done == ["terminal taken", "terminal given", signal.SIGCONT]
    assert signal.SIGCONT not in signal.sigpending()
