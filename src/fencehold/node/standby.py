"""The standby: it follows the journal and the leader, until this node is to take its place.

1. It applies every entry as it comes, so taking over means reading no more than the last few.
2. Whom it follows is in the journal: the leader announces itself with its first entry.
3. It decides nothing about leadership by itself: `suspicion` says when, and the journal's next epoch says who.
"""

import asyncio
import contextlib
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from fencehold.journal.port import Record
from fencehold.node.replica import Replica
from fencehold.node.standbys import Member
from fencehold.node.suspicion import Patience, Suspicion
from fencehold.types import Epoch, Position

_REDIAL_S = 0.1


class Parting(Enum):
    """How a line to a leader ended."""

    GOODBYE = "goodbye"
    """It said that it stops, or that it does not lead."""
    BROKEN = "broken"
    """It was lost, or could not be made."""


class Line(Protocol):
    """The connection of a standby to the node that leads."""

    async def follow(self, address: str, position: Callable[[], int], on_heard: Callable[[int], None]) -> Parting:
        """Tell the node at `address` periodically how far this one is, until the connection ends.

        `on_heard` is called with this standby's rank each time it answers.
        """
        ...


class StandingBy:
    """One stretch of following, from an open journal to the moment this node is to lead."""

    def __init__(
        self,
        replica: Replica,
        member: Member,
        line: Line,
        *,
        patience: Patience,
        on_record: Callable[[Record], object],
        epoch: Epoch,
        vain_epochs: int = 0,
    ) -> None:
        """`epoch` is the newest there is; `vain_epochs` have been taken by others since the last entry."""
        self._replica = replica
        self._member = member
        self._line = line
        self._on_record = on_record
        self._loop = asyncio.get_running_loop()
        self._suspicion = Suspicion(patience, self._loop.time(), vain_epochs=vain_epochs)
        self.epoch = epoch
        """The newest that was seen."""
        self._news = asyncio.Event()
        """The leader is another one."""
        self._sooner = asyncio.Event()
        """Something happened that makes it due sooner."""

    @property
    def leader(self) -> Member:
        state = self._replica.machine.state
        return Member(state.leader, state.leader_address)

    @property
    def awaits_taker(self) -> bool:
        """Whether another node takes over at the moment."""
        return self._suspicion.awaits_taker

    @property
    def vouches(self) -> bool:
        """Whether the leader was heard from so recently that clients may be sent to it."""
        return self._suspicion.vouches(self._loop.time())

    async def until_due(self) -> None:
        """Return when this node is to take the next epoch.

        Raises: what the journal raised.
        """
        if self._is_headless():
            return
        following = asyncio.create_task(self._follow())
        lining = asyncio.create_task(self._hold_line())
        try:
            while not following.done() and (left_s := self._left_s()) > 0:
                await self._wait(following, left_s)
            if following.done():
                await following
        finally:
            for task in (following, lining):
                task.cancel()
            await asyncio.gather(following, lining, return_exceptions=True)

    def _is_headless(self) -> bool:
        """Whether there is no leader to wait for: the one that was announced last is this node, or none was."""
        return self.leader.address in ("", self._member.address) and not self.awaits_taker

    async def _wait(self, following: asyncio.Task[None], seconds: float) -> None:
        self._sooner.clear()
        looking = asyncio.create_task(self._sooner.wait())
        try:
            await asyncio.wait({following, looking}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Also when a node that stops cancels this: nothing else refers to the task.
            looking.cancel()

    def _left_s(self) -> float:
        """Seconds until it is due, as things stand."""
        if self._is_headless():
            return 0.0
        now, due_at = self._loop.time(), self._suspicion.due_at()
        if self._suspicion.was_asleep(due_at, now):
            self._suspicion.count_anew(now)
            due_at = self._suspicion.due_at()
        return due_at - now

    async def _follow(self) -> None:
        async for record in self._replica.journal.tail(after=Position(self._replica.machine.position)):
            before = self.leader
            self._on_record(record)
            now = self._loop.time()
            if record.epoch < self.epoch:
                # The leader that wrote it is sealed: it says nothing of the one that is to come.
                continue
            if self.leader != before or record.epoch > self.epoch or self.awaits_taker:
                # Another one, or the same anew, which was started again: until it led, it replied that it does
                # not.
                self.epoch = record.epoch
                self._suspicion.start_over(now)
                self._news.set()
                self._sooner.set()
            else:
                self._suspicion.on_entry(now)

    async def _hold_line(self) -> None:
        """Keep a connection to the leader."""
        while True:
            self._news.clear()
            if self.awaits_taker:
                # Who it is will be known when it has written.
                await self._news.wait()
                continue
            calling = asyncio.create_task(self._call(self.leader.address))
            moving = asyncio.create_task(self._news.wait())
            try:
                await asyncio.wait({calling, moving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (calling, moving):
                    task.cancel()
                await asyncio.gather(calling, moving, return_exceptions=True)

    async def _call(self, address: str) -> None:
        parting = await self._line.follow(address, lambda: self._replica.machine.position, self._on_heard)
        now = self._loop.time()
        if parting is Parting.GOODBYE:
            self._suspicion.on_goodbye(now)
        else:
            self._suspicion.on_broken(now)
        self._sooner.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_REDIAL_S):
                await self._news.wait()

    def _on_heard(self, rank: int) -> None:
        self._suspicion.on_heard(self._loop.time(), rank)
