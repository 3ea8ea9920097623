"""The log: how an empty journal is made, how an epoch is taken, how an entry is appended; and what each failure
means.

An empty journal:

1. All its znodes are made by one transaction, so a journal is there whole or not at all.
2. That transaction is sent at every opening. Where the journal is there already it fails, and its failing makes
   what is read afterwards current.

Epochs are the version of one znode; taking the next is a conditional set, a compare-and-swap of the version:

3. A version only grows, and no two callers are answered with the same one.
4. The outcome of an attempt without a reply is not looked up: the next epoch is taken instead. Should the first
   arrive yet, its condition fails.
5. An epoch this handle has not seen taken is looked up before anything is written under it.

Entries:

6. An append is one transaction: the epoch is still the newest, the entry before is there, this one is not; then it
   is. So it is decided by ZooKeeper, never by something read before.
7. An epoch is known to be taken before anything is sent under it. So when the condition on it fails, a newer one
   was taken, and nothing under this one can be done any more.
8. When an attempt had no reply and the next one fails, the entry itself shows the outcome. It is ours: the first
   attempt did it. It is another's: ours can never be there. It is missing: then ours is certainly absent only if
   its epoch was sealed *and* no snapshot covers its place, for it might have been there and been trimmed;
   otherwise the outcome is unknown.
9. A late attempt does no harm. The position is taken by our own repetition; or the epoch was sealed; or the entry
   was trimmed, and so was the one before it, since trimming begins with the oldest and leaves the last.
"""

from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from fencehold.engines.zookeeper.layout import BUCKET, NO_POINTER, STUB, Layout, entry_value, opens_bucket, pointed
from fencehold.engines.zookeeper.retries import FailedTransaction, RetryingClient, Written, failed, transaction
from fencehold.errors import Damaged, FenceholdError, OutcomeUnknown, OutOfPlace, Sealed, Unavailable, UsageError
from fencehold.types import BEGINNING, Epoch, Position


async def create(retries: RetryingClient, layout: Layout, deadline_at: float) -> None:
    """Make an empty journal if there is none."""
    problem = await _create(retries, layout, deadline_at)
    if problem is not None and problem.is_a(NoNodeError, 0):
        for path in layout.ancestors():
            await retries.make(path, b"", deadline_at)
        problem = await _create(retries, layout, deadline_at)
    if problem is not None and not problem.is_a(NodeExistsError, 0):
        raise retries.client.refusal(problem.error)


async def _create(retries: RetryingClient, layout: Layout, deadline_at: float) -> FailedTransaction | None:
    def fill(request: Any) -> None:
        request.create(layout.epoch)
        request.create(layout.entries)
        request.create(layout.bucket(0))
        request.create(layout.entry(BEGINNING), STUB)
        request.create(layout.pointer, NO_POINTER)
        request.create(layout.snapshots)

    answer = await retries.read_one(transaction(fill), deadline_at)
    return failed(answer.value)


class Epochs:
    """The epochs of one journal, as far as this handle has seen."""

    def __init__(self, retries: RetryingClient, layout: Layout) -> None:
        self._retries = retries
        self._path = layout.epoch
        self._newest = Epoch(0)

    async def newest(self, deadline_at: float | None = None) -> Epoch:
        """The newest epoch taken, unless one was taken just now elsewhere."""
        answer = await self._retries.read_one(lambda client: client.exists_async(self._path), deadline_at)
        if answer.value is None:
            raise self._gone()
        self._newest = max(self._newest, Epoch(answer.value.version))
        return self._newest

    async def catch_up(self, deadline_at: float | None = None) -> None:
        """From here on, reads see everything that was done before."""
        nothing = transaction(lambda request: request.check(self._path, -1))
        answer = await self._retries.read_one(nothing, deadline_at)
        problem = failed(answer.value)
        if problem is not None:
            raise self._gone() if problem.is_a(NoNodeError) else self._retries.client.refusal(problem.error)

    async def require(self, epoch: Epoch, deadline_at: float) -> None:
        """Refuse an epoch that was never taken."""
        if not 0 < epoch <= self._newest:
            await self.catch_up(deadline_at)
            newest = await self.newest(deadline_at)
            if not 0 < epoch <= newest:
                raise UsageError(f"epoch {epoch} was never taken: the newest is {newest}")

    async def take(self, deadline_at: float, known: Epoch | None) -> Epoch:
        """Take the next epoch; with `known`, none but the next after that."""
        doubtful, may_be_ours = False, 0
        while True:
            try:
                newest = await self.newest(deadline_at)
                if known is not None and newest > known + may_be_ours:
                    raise Sealed(f"epoch {newest} was taken before", newest=newest)
                written = await self._set(newest, deadline_at)
            except Unavailable as error:
                if doubtful:
                    raise OutcomeUnknown("an epoch may have been taken before the connection was lost") from error
                raise
            if written.failed is None:
                self._newest = Epoch(written.results[0].version)
                return self._newest
            if not written.failed.is_a(BadVersionError):
                raise self._gone()
            # By us, or by another: the next attempt finds a newer one.
            doubtful, may_be_ours = doubtful or written.doubtful, int(written.doubtful)
            known = None if known is None else newest

    async def _set(self, newest: Epoch, deadline_at: float) -> Written:
        return await self._retries.write(
            "lead", lambda request: request.set_data(self._path, b"", newest), deadline_at
        )

    def _gone(self) -> Unavailable:
        return Unavailable(f"{self._path} is missing: the journal was removed while it was open")


_EPOCH, _PREVIOUS = 0, 1
"""The place in the transaction of what asks for the epoch, and for the entry before."""


class Entries:
    """What is written at the end of one journal."""

    def __init__(self, retries: RetryingClient, layout: Layout, epochs: Epochs) -> None:
        self._retries = retries
        self._layout = layout
        self._epochs = epochs

    async def append(self, entry: bytes, epoch: Epoch, position: Position, deadline_at: float) -> None:
        """See the port."""
        await self._epochs.require(epoch, deadline_at)
        if position <= BEGINNING:
            raise OutOfPlace(f"entries are at positions from 1 on, never at {position}")
        value = entry_value(epoch, entry)
        written = await self._retries.write("append", self._operations(value, epoch, position), deadline_at)
        if written.failed is None:
            return
        if not written.doubtful:
            raise self._refusal(written.failed, epoch, position)
        await self._settle(written.failed, value, epoch, position, deadline_at)

    def _operations(self, value: bytes, epoch: Epoch, position: Position) -> Any:
        layout = self._layout

        def fill(request: Any) -> None:
            request.check(layout.epoch, epoch)
            request.check(layout.entry(position - 1), -1)
            if opens_bucket(position):
                request.create(layout.bucket(position // BUCKET))
            request.create(layout.entry(position), value)

        return fill

    def _refusal(self, failed: FailedTransaction, epoch: Epoch, position: Position) -> FenceholdError:
        """What a failed transaction says of an entry that is certainly absent."""
        if failed.is_a(BadVersionError, _EPOCH):
            return Sealed(f"epoch {epoch} was sealed by a newer one")
        if failed.is_a(NoNodeError, _PREVIOUS):
            return OutOfPlace(f"there is no entry at {position - 1} for {position} to come after")
        if failed.is_a(NodeExistsError):
            return OutOfPlace(f"position {position} is taken")
        return self._retries.client.refusal(failed.error)

    async def _settle(
        self, failed: FailedTransaction, value: bytes, epoch: Epoch, position: Position, deadline_at: float
    ) -> None:
        """Find the outcome of an entry when one attempt had no reply, and the next one failed."""
        try:
            found, covered = await self._found(position, deadline_at)
        except (Unavailable, Damaged) as error:
            raise OutcomeUnknown(f"position {position} could not be read after a lost answer") from error
        if found == value:
            return
        if found is None and (covered or not failed.is_a(BadVersionError, _EPOCH)):
            raise OutcomeUnknown(f"whether the entry at {position} was written cannot be known any more")
        raise self._refusal(failed, epoch, position)

    async def _found(self, position: Position, deadline_at: float) -> tuple[bytes | None, bool]:
        # The entry first: a snapshot that does not cover it later did not cover it before, either.
        entry, pointer = await self._retries.read(
            lambda client: client.get_async(self._layout.entry(position)),
            lambda client: client.get_async(self._layout.pointer),
            deadline_at=deadline_at,
        )
        covered = pointed(pointer).position >= position
        return None if entry.is_missing else entry.unwrap()[0], covered
