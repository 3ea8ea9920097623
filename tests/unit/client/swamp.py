"""A server with too much to do: it says BUSY to what a test chooses, for as long as the test chooses."""

import threading
from collections.abc import Callable
from random import Random

import pytest

from fencehold.core.commands import Acquire, AcquireAtLeast, Cancel, Command, Extend, OpenSession, Release, Settle
from fencehold.errors import Overloaded
from fencehold.node.lanes import Lane
from fencehold.node.leader import Leader

NEW_WORK: tuple[type, ...] = (Acquire, AcquireAtLeast)
ANYTHING: tuple[type, ...] = (*NEW_WORK, OpenSession, Release, Extend, Cancel, Settle)


class Swamp:
    """In place of every leader's `submit`: whatever is of these kinds and `refuses` is told BUSY."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kinds: tuple[type, ...] = NEW_WORK) -> None:
        self.told = 0
        """How often BUSY was said."""
        self.refuses: Callable[[], bool] = lambda: True
        self.retry_after_s = 0.001
        self.is_told = threading.Event()
        submit = Leader.submit

        def swamped(
            leader: Leader, command: Command, answer: Callable[..., None], lane: Lane | None = None
        ) -> None:
            if isinstance(command, kinds) and self.refuses():
                self.told += 1
                self.is_told.set()
                answer(Overloaded("too much to do", retry_after_s=self.retry_after_s), 0)
            else:
                submit(leader, command, answer, lane)

        monkeypatch.setattr(Leader, "submit", swamped)

    def refuse(self, times: int) -> None:
        """Say BUSY so often from now on, then serve."""
        until = self.told + times
        self.refuses = lambda: self.told < until

    def refuse_by_lot(self, seed: int, part: float) -> None:
        """Say BUSY to such a part, for ever."""
        lot = Random(seed)
        self.refuses = lambda: lot.random() < part

    def drain(self) -> None:
        """Serve."""
        self.refuses = lambda: False
