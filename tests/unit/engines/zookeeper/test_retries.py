"""Writes: what each course of attempts lets one say, with a link that plays it."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from kazoo.exceptions import (
    BadVersionError,
    NoAuthError,
    QuotaExceededError,
    RolledBackError,
    RuntimeInconsistency,
)

from fencehold.drivers.zookeeper.client import AnswerLost, ZookeeperClient
from fencehold.drivers.zookeeper.kazoo_client import ZookeeperAnswer
from fencehold.engines.zookeeper.retries import AnswerLate, FailedTransaction, RetryingClient, Written, failed
from fencehold.errors import FenceholdError, NotAdmitted, OutcomeUnknown, Unavailable

DONE = ZookeeperAnswer([True, "path"])
SEALED = ZookeeperAnswer([BadVersionError(), RuntimeInconsistency()])
DENIED = ZookeeperAnswer([RolledBackError(), NoAuthError()])
FULL = ZookeeperAnswer([QuotaExceededError(), RuntimeInconsistency()])
UNREACHED = "no connection in time"


class Played:
    """A link on which what happens is written down beforehand."""

    address = "zookeeper://played"

    def __init__(self, *course: Any) -> None:
        self._course = list(course)

    def deadline_at(self, seconds: float) -> float:
        return seconds

    async def ready(self, deadline_at: float) -> None:
        if self._course[0] is UNREACHED:
            raise TimeoutError

    async def ask(self, requests: Sequence[Any], deadline_at: float) -> list[ZookeeperAnswer]:
        what = self._course.pop(0)
        if isinstance(what, Exception):
            raise what
        return [what]

    def refusal(self, error: Exception) -> Unavailable:
        return ZookeeperClient.refusal(cast(ZookeeperClient, self), error)


def write(*course: Any) -> Written:
    asker = RetryingClient(cast(ZookeeperClient, Played(*course)))
    return asyncio.run(asker.write("append", lambda request: None, deadline_at=1))


@pytest.mark.parametrize(
    ("course", "problem", "doubtful"),
    [
        ([DONE], None, False),
        ([AnswerLost(), DONE], None, True),
        ([SEALED], BadVersionError, False),
        ([AnswerLost(), AnswerLost(), SEALED], BadVersionError, True),
    ],
)
def test_an_answer_is_told_with_what_came_before(course: list[Any], problem: Any, doubtful: bool) -> None:
    """A transaction that is answered was done or failed whole; an attempt without an answer is not forgotten."""
    written = write(*course)
    assert written.doubtful == doubtful
    assert (written.failed is None) if problem is None else written.failed is not None
    assert problem is None or (written.failed is not None and written.failed.is_a(problem, 0))


@pytest.mark.parametrize(
    ("course", "said"),
    [
        ([UNREACHED], Unavailable),
        ([DENIED], NotAdmitted),
        ([FULL], Unavailable),
        ([TimeoutError()], OutcomeUnknown),
        ([AnswerLost(), UNREACHED], OutcomeUnknown),
        ([AnswerLost(), DENIED], OutcomeUnknown),
        ([AnswerLost(), FULL], OutcomeUnknown),
        ([AnswerLost(), TimeoutError()], OutcomeUnknown),
    ],
)
def test_only_what_was_never_handed_over_or_was_refused_is_certainly_absent(
    course: list[Any], said: type[FenceholdError]
) -> None:
    """After one attempt without an answer, no later failure makes a no of it."""
    with pytest.raises(said) as error:
        write(*course)
    assert type(error.value) is said


def test_what_may_be_asked_again_is_asked_until_there_is_no_time() -> None:
    """Reads outlast lost connections; without an answer in time they are `Unavailable`."""

    async def work() -> None:
        asker = RetryingClient(cast(ZookeeperClient, Played(AnswerLost(), AnswerLost(), DONE)))
        assert await asker.read_one(lambda client: None) == DONE
        asker = RetryingClient(cast(ZookeeperClient, Played(AnswerLost(), UNREACHED)))
        with pytest.raises(AnswerLate):
            await asker.read_one(lambda client: None)

    asyncio.run(work())


def test_the_operation_that_failed_is_the_first_that_was_not_merely_undone() -> None:
    """Those before it were undone, those after it were never tried."""
    wrong = BadVersionError()
    assert failed([RolledBackError(), wrong, RuntimeInconsistency()]) == FailedTransaction(1, wrong)
    assert failed([True, "path"]) is None
    assert FailedTransaction(1, wrong).is_a(BadVersionError)
    assert FailedTransaction(1, wrong).is_a(BadVersionError, 0, 1)
    assert not FailedTransaction(1, wrong).is_a(BadVersionError, 0)
