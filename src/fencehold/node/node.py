"""The node: from a journal to a service, and back again when the journal fails.

1. It opens the journal, comes up to its end, takes the next epoch, and leads until it is stopped or the journal
   fails. Then it drops its state, opens anew and tries again, ever more slowly, up to a bound.
2. While it does not lead it refuses at once: `Unavailable`, certainly nothing happened.
3. What cannot be mended by trying again (damage, an fsync that failed, our own bug) ends it with that error.
4. It routes notices to whoever is attached to the session they concern, and wakes those who look on.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Protocol

from fencehold.core.commands import Command, Entry, SetLimits, Suspend
from fencehold.core.limits import Limits
from fencehold.core.outcomes import Applied, Notice
from fencehold.errors import OutcomeUnknown, Unavailable
from fencehold.journal.port import Journal
from fencehold.node.alarm import Alarm
from fencehold.node.leader import Answer, Bounds, Leader, Question, Reply
from fencehold.node.replica import Replica
from fencehold.node.ring import Ring
from fencehold.node.saver import Saver
from fencehold.runtime.clock import Clock

_RETRY_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""How long to wait before opening a journal that failed again; the last one from then on."""


_DUE_S_MIN = 0.02
"""How soon after an entry another may be made only because something is due: a bound on their number."""


class Listener(Protocol):
    """Who is told of what happens to a session: a connection."""

    def on_notice(self, notice: Notice, at_ms: int) -> None: ...


class Node:
    """One replica that serves."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        *,
        limits: Limits | None = None,
        bounds: Bounds | None = None,
        ring: Ring | None = None,
    ) -> None:
        self.journal = journal
        self.replica = Replica(journal)
        self.ring = ring or Ring()
        self.notes: tuple[str, ...] = ()
        self._clock = clock
        self._limits = limits or Limits()
        self._bounds = bounds or Bounds()
        self._leader: Leader | None = None
        self._leading = asyncio.Event()
        self._stopping = False
        self._stopped = asyncio.Event()
        self._listeners: dict[int, Listener] = {}
        self._watchers: dict[Callable[[], None], None] = {}
        self._saver = Saver(journal)
        self._due: Alarm | None = None
        self.epoch = 0
        self.position = 0
        """Of the last entry known to be durable."""
        self.appends = 0

    # What doors ask of it.

    @property
    def leads(self) -> bool:
        return self._leader is not None

    def submit(self, command: Command, answer: Answer) -> None:
        """Have a command journaled and applied; `answer` is called when that is durable, or has failed."""
        if self._leader is None:
            answer(Unavailable("the node is not serving"), 0)
        else:
            self._leader.submit(command, answer)

    def renew(self, session: int, answer: Answer) -> None:
        """Have a session renewed with the next entry."""
        if self._leader is None:
            answer(Unavailable("the node is not serving"), 0)
        else:
            self._leader.renew(session, answer)

    def ask(self, question: Question, reply: Reply) -> None:
        """Put a question to the current state; `reply` may get an error instead."""
        if self._leader is None:
            reply(Unavailable("the node is not serving"))
        else:
            self._leader.ask(question, reply)

    def look(self, question: Question, reply: Reply) -> None:
        """Put a question to what is there, without an entry; `reply` may get an error instead."""
        if self._leader is None:
            reply(Unavailable("the node is not serving"))
        else:
            self._leader.look(question, reply)

    def attach(self, session: int, listener: Listener) -> Listener | None:
        """Route what concerns a session to a listener; returns the one it takes the place of."""
        replaced = self._listeners.get(session)
        self._listeners[session] = listener
        return None if replaced is listener else replaced

    def detach(self, session: int, listener: Listener) -> bool:
        """Undo `attach`, unless another listener has taken its place; says whether it was undone."""
        if self._listeners.get(session) is not listener:
            return False
        del self._listeners[session]
        return True

    def is_attached(self, session: int) -> bool:
        return session in self._listeners

    def watch(self, wake: Callable[[], None]) -> None:
        """Have `wake` called whenever the ring has something new."""
        self._watchers[wake] = None

    def unwatch(self, wake: Callable[[], None]) -> None:
        self._watchers.pop(wake, None)

    # Its life.

    async def ready(self) -> None:
        """Wait until it serves."""
        await self._leading.wait()

    async def run(self) -> None:
        """Serve until stopped.

        Raises: what cannot be mended by trying again.
        """
        failures = 0
        while not self._stopping:
            appends = self.appends
            try:
                await self._serve()
            except (Unavailable, OutcomeUnknown) as error:
                if self.epoch == 0 or not self._is_mendable(error):
                    raise
                self.notes = (f"trying again: {error}",)
                failures = 0 if self.appends > appends else failures
                await self._pause(_RETRY_S[min(failures, len(_RETRY_S) - 1)])
                failures += 1
            finally:
                await self.journal.close()

    def stop(self) -> None:
        """Have `run` return when all that was taken is answered."""
        self._stopping = True
        self._stopped.set()
        if self._leader is not None:
            self._leader.stop()

    def _is_mendable(self, error: Unavailable | OutcomeUnknown) -> bool:
        # A shared engine can be read to find out. A file that could not be synced cannot, be it of entries or of a
        # snapshot: what the kernel shows may not be on the disk, so only a new start, after a look at the disk,
        # may go on.
        is_unknown = isinstance(error, OutcomeUnknown) or isinstance(self._saver.failure, OutcomeUnknown)
        return self.journal.declared.shared or not is_unknown

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopped.wait(), seconds)

    async def _serve(self) -> None:
        # What was appended though nobody could be told so is told now.
        opened = await self.replica.open(self._on_followed)
        self.notes = opened.notes
        self.position = self.replica.machine.position
        self.ring.forget(self.position)
        self._saver.begin(self.position - (opened.snapshot.position if opened.snapshot else 0))
        epoch = await self.journal.lead()
        self.epoch = epoch
        leader = Leader(
            self.replica.machine,
            self.journal,
            epoch,
            self._clock,
            on_durable=self._on_durable,
            bounds=self._bounds,
        )
        if self._stopping:
            return
        self._leader = leader
        if self.replica.machine.state.limits != self._limits:
            leader.submit(SetLimits(self._limits), _ignore)
        for session in self.replica.machine.state.sessions.values():
            if not session.secret and not self.is_attached(session.id):
                # It lived by a connection to a process that is gone: nobody can take it up again.
                leader.submit(Suspend(session.id), _ignore)
        self._leading.set()
        await self._lead(leader)

    async def _lead(self, leader: Leader) -> None:
        ticking = asyncio.create_task(self._tick(leader))
        self._due = Alarm(leader.tick)
        try:
            await leader.lead()
        finally:
            self._leader = None
            self._leading.clear()
            ticking.cancel()
            self._due.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await ticking
            await self._saver.end()

    async def _tick(self, leader: Leader) -> None:
        while True:
            await asyncio.sleep(self._bounds.tick_s)
            leader.tick()

    def _on_followed(self, applied: Applied) -> None:
        if applied.position > self.position:
            self._route(applied)

    def _route(self, applied: Applied) -> None:
        for _, notice in applied.notices:
            listener = self._listeners.get(notice.session)
            if listener is not None:
                listener.on_notice(notice, applied.at_ms)

    def _on_durable(self, entry: Entry, applied: Applied, size_bytes: int) -> None:
        self.appends += 1
        self.position = applied.position
        self.ring.add(entry, applied, size_bytes)
        if applied.notices:
            self._route(applied)
        for wake in tuple(self._watchers):
            wake()
        self._saver.consider(self.replica.machine, len(entry.commands))
        self._expect_next()

    def _expect_next(self) -> None:
        """What comes due before the next tick is not made to wait for it."""
        state = self.replica.machine.state
        due_at = state.next_due_at()
        if due_at is not None and self._due is not None:
            delay_s = max(_DUE_S_MIN, (due_at - state.now_at) / 1000)
            if delay_s < self._bounds.tick_s:
                self._due.set(delay_s)


def _ignore(*_: object) -> None:
    """Nobody waits for the answer."""
