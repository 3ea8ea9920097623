"""The journal port: what a node requires of the engine that stores its entries, and what each failure means.

A journal is one sequence of entries at positions 1, 2, 3, … without gaps, written under epochs. Its engine
decides nothing else: it never looks inside an entry.

The rules every engine keeps, and the contract suite checks:

1. An append is atomic: all of the entry at exactly the position named, durable, or nothing.
2. An append succeeds only under the newest epoch. Taking an epoch seals every older one, for ever.
3. A position is written once. What was read there once is read there always, until it is trimmed.
4. No answer is a guess. An error says *certainly absent* (`Unavailable`, `OutOfPlace`, `Sealed`) or
   *don't know* (`OutcomeUnknown`); a timeout is never turned into a no.
5. A snapshot replaces the one before it whole, or not at all; entries are trimmed only up to a snapshot.
6. Epochs and positions never go back: not by a restart, a trim or a new leader.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from typing import NamedTuple, Protocol, runtime_checkable

from fencehold.journal.health import Health
from fencehold.journal.room import Room
from fencehold.journal.sync_times import SyncTimes
from fencehold.types import Epoch, Position


class Record(NamedTuple):
    """One entry as it stands in the journal."""

    position: Position
    epoch: Epoch
    entry: bytes


class Snapshot(NamedTuple):
    """The state after the entry at `position`, as bytes only the machine understands."""

    position: Position
    data: bytes


class Opened(NamedTuple):
    """What a journal held when it was opened."""

    snapshot: Snapshot | None
    epoch: Epoch
    """The newest epoch taken so far; 0 if there never was a leader."""
    end: Position
    """The position of the last entry, or of the snapshot if no entry follows it; 0 if empty."""
    notes: tuple[str, ...] = ()
    """What opening repaired, in words an operator can read: never silent, never more than a synced prefix."""


class Declared(NamedTuple):
    """What an engine declares about itself."""

    engine: str
    durable: bool
    """Entries survive the end of the process."""
    shared: bool
    """Several processes may have the journal open at once; if not, a second `open` raises `AlreadyOwned`."""
    entry_bytes_max: int = 4 << 20
    """The largest entry it takes."""


@runtime_checkable
class PromptJournal(Protocol):
    """A journal that can append inside the call, for a leader that has one client and nothing to await."""

    def append_here(self, entry: bytes, *, epoch: Epoch, position: Position) -> bool:
        """Append as `Journal.append` does, but before it returns; False: nothing was done, `append` is to be used.

        Raises: as `Journal.append`.
        """
        ...


@runtime_checkable
class DirectJournal(Protocol):
    """A remote journal that can be asked to append without a task that waits for the reply."""

    def begin_append(
        self, entry: bytes, *, epoch: Epoch, position: Position, done: Callable[[BaseException | None], None]
    ) -> bool:
        """Begin what `Journal.append` does; False: nothing was begun, `append` is to be used.

        `done` is called once, never before this returns: with None when the entry is durable, otherwise with what
        `append` raises. It raises nothing itself. It counts as an append in progress until then.
        """
        ...


@runtime_checkable
class PacedJournal(Protocol):
    """A journal whose tails may be late to be cheap: by a tenth of a second or two. Any other follows closely."""

    def follow_closely(self, wanted: bool) -> None:
        """Have the tails of this handle be close, those there are and those to come; or cheap again.

        A close tail hands an entry on some milliseconds after it is durable, however many there are, and costs
        what that costs. It may be called at any time, open or not, and again; it raises nothing and waits for
        nothing. What a tail promises is the same either way: only a wait in it is cut short.
        """
        ...


@runtime_checkable
class SyncedJournal(Protocol):
    """A journal on a disk of its own, which counts how long syncs took. Remote servers report their own syncs."""

    sync_times: SyncTimes
    """Since the handle was made, over all that it was opened and closed."""


class Journal(Protocol):
    """A handle on one journal. Use: `open`, `read` what follows the snapshot, then `lead` and `append`, or `tail`.

    One task at a time may append. After `close`, and before `open`, every other call raises `Unavailable`.
    """

    declared: Declared

    async def open(self) -> Opened:
        """Open the journal, making an empty one if there is none, and repair what a crash may leave.

        Raises:
            AlreadyOwned: another handle owns it, and the engine is not shared.
            Damaged: stored bytes are not what was written; the message names the place.
            NotAdmitted: the engine answers, and refuses the credentials or rights it was shown.
            Unavailable: the engine cannot be reached.
        """
        ...

    def read(self, after: Position) -> AsyncIterator[Record]:
        """The entries after a position, in order, up to what was the end when reading began.

        Every entry whose append any node has seen succeed by then is among them: a reading is never of an older
        state.

        Raises:
            Trimmed: entries after `after` are gone; a snapshot is in their place.
            Damaged: stored bytes are not what was written.
            Unavailable: the engine cannot be reached.
        """
        ...

    def tail(self, after: Position) -> AsyncIterator[Record]:
        """Like `read`, but waits for more at the end. Ends only when the journal is closed, or by an error.

        Raises: as `read`.
        """
        ...

    async def lead(self, known: Epoch | None = None) -> Epoch:
        """Take the next epoch: from its return on, no append under an older one succeeds anywhere.

        With `known`, a compare-and-swap: it takes the epoch after that one and no other. Of several nodes
        that take over at once with the same `known`, only one succeeds.

        Raises:
            Sealed: a newer epoch than `known` exists (its `newest`). None was taken, or only one that is sealed.
            Unavailable: no epoch was taken.
            OutcomeUnknown: one may have been taken. Calling again is safe: it takes a newer one.
        """
        ...

    async def append(self, entry: bytes, *, epoch: Epoch, position: Position) -> None:
        """Append one entry, atomically and durably, at exactly `position`. Returning is the promise.

        Raises:
            Unavailable: the entry is certainly absent, and will stay so. `Overloaded`: for want of room.
            OutcomeUnknown: it may be there or arrive yet: take a new epoch and read before going on. An engine
                that cannot trust its storage any more refuses to lead until it is closed and opened again;
                only then does reading show the outcome.
            UsageError: the entry is empty or larger than the engine takes, or the epoch was never taken.
            Sealed: a newer epoch exists; the entry is certainly absent: stop serving.
            OutOfPlace: the next position is another; the entry is certainly absent: read before going on.
        """
        ...

    async def save(self, position: Position, chunks: Iterable[bytes]) -> None:
        """Keep a snapshot of the state after `position`, in place of any older one.

        `chunks` is consumed step by step, and the event loop runs between the steps, so that a snapshot never
        blocks a working node.

        Raises:
            Unavailable: the older snapshot, if any, stands as before.
            OutcomeUnknown: either of the two is kept, whole.
            UsageError: `position` is after the end of the journal, or before the newest snapshot.
        """
        ...

    async def seed(self, position: Position, chunks: Iterable[bytes]) -> None:
        """Begin an empty journal with a snapshot of the state after `position`, which some other journal held.

        The next append is at the position after it. Epochs are the engine's own, and are not touched.

        Raises:
            UsageError: the journal is not empty: it has entries or a snapshot; or `position` is not above 0.
            Unavailable: it is empty as before.
            OutcomeUnknown: it is empty as before, or begins with this snapshot, whole.
        """
        ...

    async def trim(self, *, urgent: bool = False) -> None:
        """Free the room of entries and snapshots that the newest snapshot has made unnecessary.

        What is left may still include some of them: engines trim in the units they store in, and some keep a
        little for readers just behind. If it is `urgent`, they do not.

        Raises:
            Unavailable: some may be gone, some not; all that is needed is there. Calling again is safe.
        """
        ...

    async def health(self, within_s: float) -> Health:
        """The health of the journal's storage, whether the journal is open or not.

        It raises nothing, ends in about that time, and delays nothing else in the journal: it asks servers over
        connections of its own, and checks a disk in a thread.
        """
        ...

    async def room(self, within_s: float) -> Room:
        """How much room the journal's storage has. Called about every second while the journal is open.

        It raises nothing and ends in about that time, and no append waits for it. Without an answer, or while the
        journal is not open, nothing is known.
        """
        ...

    async def close(self) -> None:
        """Close the engine. Appends in progress end first. Idempotent."""
        ...
