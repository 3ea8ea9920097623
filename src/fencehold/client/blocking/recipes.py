"""What is made of locks, for threads: readers and writers, re-entrant locks, watches."""

from types import EllipsisType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, cast, overload

from fencehold.client.admission import admit
from fencehold.client.aio.channel import Channel
from fencehold.client.aio.watch import Watch as AsyncWatch
from fencehold.client.aio.wrapping import channel_of
from fencehold.client.blocking.hold import Claim
from fencehold.client.blocking.lines import Line
from fencehold.client.blocking.lock import Held, Lock, Untimed, UntimedLock, lock_on
from fencehold.client.blocking.portal import one_by_one
from fencehold.client.calls import BlockingOnly
from fencehold.client.ownership import Bodies, Levels
from fencehold.durations import Duration
from fencehold.errors import NotOwner, Unsupported
from fencehold.locks.hold import Body
from fencehold.locks.identity import ThreadIdentity, this_thread
from fencehold.locks.terms import Forever, Terms
from fencehold.locks.views import Event


class RWLock(Generic[Held]):
    """One name, for many readers or one writer. A waiting writer is not overtaken by later readers."""

    __slots__ = ("_held", "_line", "_reading", "_writing", "name")

    def __init__(self, line: Line, name: str, held: type[Held], options: dict[str, Any]) -> None:
        self._reading = Terms((name,), shared=True, **options)
        self._writing = Terms((name,), **options)
        admit(self._reading, line.guarantees)
        self._line = line
        self._held = held
        self.name = name

    def read(self) -> Lock[Held]:
        """The lock of a reader."""
        return lock_on(self._line, self._reading, self._held)

    def write(self) -> Lock[Held]:
        """The lock of the writer."""
        return lock_on(self._line, self._writing, self._held)


class UntimedRWLock(RWLock[Held]):
    """One that was made without a timeout, and makes locks that have none."""

    __slots__ = ()

    if TYPE_CHECKING:

        def read(self) -> UntimedLock[Held]: ...

        def write(self) -> UntimedLock[Held]: ...


class RLock(BlockingOnly, Generic[Held]):
    """A lock that the thread which has it may take again. The fence is the same inside."""

    __slots__ = ("_entered", "_levels", "_lock")

    def __init__(self, lock: Lock[Held], levels: Levels[Any]) -> None:
        self._lock = lock
        self._levels: Levels[Held] = levels
        """Shared by all of a client in one tier, so that another object of the same name is no stranger."""
        self._entered: Bodies[Held] = Bodies()

    @property
    def name(self) -> str:
        """The name asked for."""
        return self._lock.name

    @overload
    def acquire(self, *, blocking: Literal[True] = True, timeout: Forever) -> Held: ...

    @overload
    def acquire(self, *, blocking: bool = True, timeout: Duration | EllipsisType | None = ...) -> Held | None: ...

    def acquire(self, *, blocking: bool = True, timeout: Duration | EllipsisType | None = ...) -> Held | None:
        """As `Lock.acquire`; granted at once if this thread has it.

        Raises:
            HoldLost: this thread had it and lost it: it must leave all levels before it asks anew.
        """
        thread = this_thread()
        hold, depth = self._levels.held(thread, self.name), self._levels.depth(thread, self.name)
        if hold is not None:
            hold.check()
        else:
            hold = self._lock.acquire(blocking=blocking, timeout=timeout)
        if hold is not None:
            try:
                self._levels.enter(thread, self.name, hold)
            except BaseException:
                self._go_back(thread, hold, depth)
                raise
        return hold

    def release(self) -> None:
        """Leave one level; the last one releases."""
        thread = this_thread()
        hold, depth = self._levels.held(thread, self.name), self._levels.depth(thread, self.name)
        if hold is None:
            raise NotOwner(f"this thread holds nothing by a re-entrant lock on {self.name!r}")
        try:
            if depth == 1:
                hold.release()
        finally:
            # Not if an interrupt came first: then it is this thread's still.
            if depth > 1 or hold._grant.ending:
                self._levels.go_back(thread, self.name, depth - 1)

    def owned(self) -> bool:
        """Whether this thread has it, and can trust it."""
        hold = self._levels.held(this_thread(), self.name)
        return hold is not None and hold.safe_for() > 0

    def locked(self) -> bool:
        """Whether anyone has it."""
        return self._lock.locked()

    def __enter__(self) -> Held:
        thread = this_thread()
        hold, depth = self._levels.held(thread, self.name), self._levels.depth(thread, self.name)
        if hold is not None:
            hold.check()
        else:
            hold = self._lock.acquire_or_raise()
        body: Body[Held] | None = None
        try:
            body = Body(hold)
            self._levels.enter(thread, self.name, hold, body.enter())
            self._entered.enter(thread, body)
        except BaseException:
            if body is not None:
                self._entered.leave(thread, body)
            self._go_back(thread, hold, depth)
            raise
        return hold

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entered: tuple[Any, Body[Held]] | None = None
        try:
            entered = self._entered.last(this_thread(), error)
            if entered is not None:
                who, body = entered
                body.leave()
                if self._levels.is_last(who, self.name, body):
                    body.hold._leave(error)
        finally:
            # After an interrupt, too, whatever that kept from being done.
            entered = entered or self._entered.last(this_thread(), error)
            if entered is not None:
                who, body = entered
                self._entered.leave(who, body)
                is_last = self._levels.is_last(who, self.name, body)
                self._levels.leave(who, self.name, body)
                if is_last:
                    body.hold._abandon()

    def _go_back(self, who: ThreadIdentity, hold: Claim, depth: int) -> None:
        """Be no more than so many levels deep, and hold nothing if that is none."""
        self._levels.go_back(who, self.name, depth)
        if depth == 0:
            hold._abandon()


class UntimedRLock(Untimed[Held], RLock[Held]):
    """A re-entrant lock that was made without a timeout."""

    __slots__ = ()


class Watch:
    """Events of names with a prefix. Iterate over it; leave it with `with`, or by `close`."""

    __slots__ = ("_portal", "_watch")

    def __init__(self, line: Line, prefix: str) -> None:
        if not line.guarantees.watches:
            raise Unsupported(f"{line.guarantees.backend}:// tells no events; the Fencehold service does")
        self._portal = line.portal()
        channel = cast("Channel", channel_of(self._portal.channel))
        self._watch = AsyncWatch(channel, channel.watches, prefix)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        event: Event = next(one_by_one(self._portal, self._watch))
        return event

    def close(self) -> None:
        """Watch no longer. It does not wait, and may come after the client was closed."""
        # Whoever waited here could be the portal's own thread, when it collects an iterator that was forgotten.
        self._portal.run_soon(self._watch.close())

    def __enter__(self) -> Self:
        """Once entered, no event is missed."""
        self._portal.run(self._watch.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
