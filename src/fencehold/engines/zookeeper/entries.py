"""Entries: how one is appended, and what it means when that fails.

The rules it obeys:

1. An append is one transaction: the epoch is still the newest, the entry before is there, this one is not; then it
   is. So it is decided by ZooKeeper, never by something read before.
2. An epoch is known to be taken before anything is sent under it. So when the condition on it fails, a newer one
   was taken, and nothing under this one can be done any more.
3. When an attempt was not answered and the next one fails, the entry itself tells. It is ours: the first attempt
   did it. It is another's: ours can never be there. It is missing: then ours is certainly absent only if its epoch
   was sealed *and* no snapshot covers its place, for it might have been there and been trimmed; else nobody knows.
4. A late attempt does no harm. The position is taken by our own repetition; or the epoch was sealed; or the entry
   was trimmed, and so was the one before it, since trimming begins with the oldest and leaves the last.
"""

from typing import Any

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from fencehold.engines.zookeeper.epochs import Epochs
from fencehold.engines.zookeeper.layout import BUCKET, Layout, entry_value, opens_bucket, pointed
from fencehold.engines.zookeeper.writes import Asker, Failed
from fencehold.errors import Damaged, FenceholdError, OutcomeUnknown, OutOfPlace, Sealed, Unavailable
from fencehold.types import BEGINNING, Epoch, Position

_EPOCH, _PREVIOUS = 0, 1
"""The place in the transaction of what asks for the epoch, and for the entry before."""


class Entries:
    """What is written at the end of one journal."""

    def __init__(self, asker: Asker, layout: Layout, epochs: Epochs) -> None:
        self._asker = asker
        self._layout = layout
        self._epochs = epochs

    async def append(self, entry: bytes, epoch: Epoch, position: Position, deadline_at: float) -> None:
        """See the port."""
        await self._epochs.require(epoch, deadline_at)
        if position <= BEGINNING:
            raise OutOfPlace(f"entries are at positions from 1 on, never at {position}")
        value = entry_value(epoch, entry)
        written = await self._asker.write("append", self._operations(value, epoch, position), deadline_at)
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

    def _refusal(self, failed: Failed, epoch: Epoch, position: Position) -> FenceholdError:
        """What a failed transaction says of an entry that is certainly absent."""
        if failed.is_a(BadVersionError, _EPOCH):
            return Sealed(f"epoch {epoch} was sealed by a newer one")
        if failed.is_a(NoNodeError, _PREVIOUS):
            return OutOfPlace(f"there is no entry at {position - 1} for {position} to come after")
        if failed.is_a(NodeExistsError):
            return OutOfPlace(f"position {position} is taken")
        return self._asker.link.refusal(failed.error)

    async def _settle(
        self, failed: Failed, value: bytes, epoch: Epoch, position: Position, deadline_at: float
    ) -> None:
        """Say what became of an entry when one attempt was not answered, and the next one failed."""
        try:
            found, covered = await self._found(position, deadline_at)
        except (Unavailable, Damaged) as error:
            raise OutcomeUnknown(f"position {position} could not be read after a lost answer") from error
        if found == value:
            return
        if found is None and (covered or not failed.is_a(BadVersionError, _EPOCH)):
            raise OutcomeUnknown(f"nothing tells any more whether the entry at {position} was written")
        raise self._refusal(failed, epoch, position)

    async def _found(self, position: Position, deadline_at: float) -> tuple[bytes | None, bool]:
        # The entry first: a snapshot that does not cover it later did not cover it before, either.
        entry, pointer = await self._asker.read(
            lambda client: client.get_async(self._layout.entry(position)),
            lambda client: client.get_async(self._layout.pointer),
            deadline_at=deadline_at,
        )
        covered = pointed(pointer).position >= position
        return None if entry.is_missing else entry.unwrap()[0], covered
