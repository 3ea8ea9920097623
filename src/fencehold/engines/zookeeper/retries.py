"""Retries: what may be concluded for each kind of request when its reply was lost.

ZooKeeper does everything in one order, and all of a transaction or nothing. A transaction that fails has a place
in that order as well, agreed upon by a majority. So:

1. A transaction that was answered has happened whole, or failed whole and can be tried again.
2. After the answer, also after the answer *no*, this client reads a state in which that transaction is decided.
   So a transaction that changes nothing makes reads current; `sync` would not, since a leader that was replaced
   and does not know it yet answers it too.
3. A transaction that was not answered may be done at any later time, by a connection that is abandoned here and is
   slow elsewhere. Nothing is concluded from the order in which connections were made. It is tried again, under the
   same conditions; what its failing then means is for the caller to decide, which gets it as `doubtful`.
4. Only what was never sent is `Unavailable`. All else that was not answered in time is `OutcomeUnknown`.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from kazoo.exceptions import NodeExistsError, RolledBackError

from fencehold.drivers.zookeeper.client import REFUSALS, AnswerLost, Request, ZookeeperClient
from fencehold.drivers.zookeeper.kazoo_client import ZookeeperAnswer
from fencehold.errors import OutcomeUnknown, Unavailable
from fencehold.runtime.faults import NO_FAULTS, Faults

STEP_S = 3.0
"""How long one step of a long work may take: of reading, of a snapshot, of a trim."""
_REST_S = 0.02
"""Before something is tried again: a server that refuses quickly is not to be asked in a tight loop."""

Operations = Callable[[Any], None]
"""Fills a kazoo transaction."""


class AnswerLate(Unavailable):
    """There was no answer in time."""


class FailedTransaction(NamedTuple):
    """Why a transaction did nothing: which of its operations could not be done, and what was wrong."""

    operation: int
    error: Exception

    def is_a(self, kind: type[Exception] | tuple[type[Exception], ...], *operations: int) -> bool:
        return isinstance(self.error, kind) and (not operations or self.operation in operations)


class Written(NamedTuple):
    """The answer to a transaction."""

    results: Sequence[Any]
    failed: FailedTransaction | None
    doubtful: bool
    """An attempt before this one was not answered."""


class RetryingClient:
    """Asks a client until there is an answer, or no time left."""

    def __init__(self, client: ZookeeperClient, faults: Faults = NO_FAULTS) -> None:
        self.client = client
        self._faults = faults

    async def read(self, *requests: Request, deadline_at: float | None = None) -> list[ZookeeperAnswer]:
        """Ask for what may be asked any number of times; by default for as long as a step may take.

        Raises:
            AnswerLate: there was no answer in time.
        """
        if deadline_at is None:
            deadline_at = self.client.deadline_at(STEP_S)
        while True:
            try:
                await self.client.ready(deadline_at)
                return await self.client.ask(requests, deadline_at)
            except AnswerLost:
                await asyncio.sleep(_REST_S)
            except TimeoutError as error:
                raise AnswerLate(
                    f"{self.client.address}: no server answered in time: is it running, and in reach?"
                ) from error

    async def read_one(self, request: Request, deadline_at: float | None = None) -> ZookeeperAnswer:
        answers = await self.read(request, deadline_at=deadline_at)
        return answers[0]

    async def make(self, path: str, value: bytes, deadline_at: float | None = None) -> None:
        """Create a node, if it is not there already."""
        answer = await self.read_one(lambda client: client.create_async(path, value), deadline_at)
        if answer.is_missing:
            raise Unavailable(f"{path}: what it belongs to was removed from ZooKeeper")
        if not isinstance(answer.error, NodeExistsError):
            answer.unwrap()

    async def write(self, point: str, operations: Operations, deadline_at: float) -> Written:
        """Have a transaction done, whose repetition does nothing if it was done before.

        Raises:
            Unavailable: it is not done, and will not be.
            OutcomeUnknown: it is done, or not, or will be.
        """
        self._faults.reach(f"{point}.before")
        doubtful = False
        while True:
            await self._reach(deadline_at, doubtful)
            try:
                results = await self._attempt(operations, deadline_at)
                self._faults.reach(f"{point}.stored")
            except AnswerLost:
                doubtful = True
                await asyncio.sleep(_REST_S)
            except Unavailable as error:
                self._give_up(error, doubtful)
            else:
                return Written(results, failed(results), doubtful)

    async def _reach(self, deadline_at: float, doubtful: bool) -> None:
        try:
            await self.client.ready(deadline_at)
        except TimeoutError:
            self._give_up(Unavailable(f"{self.client.address}: there is no connection to any server"), doubtful)
        except Unavailable as error:
            self._give_up(error, doubtful)

    async def _attempt(self, operations: Operations, deadline_at: float) -> Sequence[Any]:
        try:
            answers = await self.client.ask([transaction(operations)], deadline_at)
        except TimeoutError as error:
            raise OutcomeUnknown(f"{self.client.address}: the answer did not come in time") from error
        problem = failed(answers[0].value)
        if problem is not None and isinstance(problem.error, REFUSALS):
            raise self.client.refusal(problem.error)
        results: Sequence[Any] = answers[0].value
        return results

    def _give_up(self, error: Unavailable, doubtful: bool) -> NoReturn:
        """This attempt did nothing. That says nothing of one before it that was not answered."""
        if doubtful:
            raise OutcomeUnknown(f"{self.client.address}: a connection was lost before the answer came") from error
        raise error


def transaction(operations: Operations) -> Request:
    """The request that does all the operations, or none."""

    def hand_over(client: Any) -> Any:
        request = client.transaction()
        operations(request)
        return request.commit_async()

    return hand_over


def failed(results: Sequence[Any]) -> FailedTransaction | None:
    """What failed, if anything did."""
    for operation, result in enumerate(results):
        if isinstance(result, Exception) and not isinstance(result, RolledBackError):
            return FailedTransaction(operation, result)
    return None
