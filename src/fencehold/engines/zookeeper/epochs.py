"""Epochs: the version of one znode. Taking the next is setting it, on condition that nobody else did.

1. A version only grows, and no two callers are answered with the same one.
2. An attempt that was not answered is not asked after: the next epoch is taken instead. Should the first arrive
   yet, its condition fails.
3. An epoch this handle has not seen taken is looked up before anything is written under it.
"""

from kazoo.exceptions import BadVersionError, NoNodeError

from fencehold.engines.zookeeper.layout import Layout
from fencehold.engines.zookeeper.writes import Asker, Written, failed, transaction
from fencehold.errors import OutcomeUnknown, Sealed, Unavailable, UsageError
from fencehold.types import Epoch


class Epochs:
    """The epochs of one journal, as far as this handle has seen."""

    def __init__(self, asker: Asker, layout: Layout) -> None:
        self._asker = asker
        self._path = layout.epoch
        self._newest = Epoch(0)

    async def newest(self, deadline_at: float | None = None) -> Epoch:
        """The newest epoch taken, unless one was taken just now elsewhere."""
        answer = await self._asker.read_one(lambda client: client.exists_async(self._path), deadline_at)
        if answer.value is None:
            raise self._gone()
        self._newest = max(self._newest, Epoch(answer.value.version))
        return self._newest

    async def catch_up(self, deadline_at: float | None = None) -> None:
        """From here on, reads see everything that was done before."""
        nothing = transaction(lambda request: request.check(self._path, -1))
        answer = await self._asker.read_one(nothing, deadline_at)
        problem = failed(answer.value)
        if problem is not None:
            raise self._gone() if problem.is_a(NoNodeError) else self._asker.link.refusal(problem.error)

    async def require(self, epoch: Epoch, deadline_at: float) -> None:
        """Refuse an epoch that nobody took."""
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
        return await self._asker.write(
            "lead", lambda request: request.set_data(self._path, b"", newest), deadline_at
        )

    def _gone(self) -> Unavailable:
        return Unavailable(f"{self._path} is missing: the journal was removed while it was open")
