"""What errors are called in every protocol: one table, which the whole tree of errors is in."""

import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, PreconditionFailure, QuotaFailure, RetryInfo

from fencehold import errors
from fencehold.doors.grpc.statuses import DOMAIN, status_of
from fencehold.drivers.http2.codes import Code
from fencehold.gateway.problems import PROBLEMS, AlreadyReleased, Unauthenticated, Withdrawn, facts_of, problem_of
from fencehold.types import Link

CIRCLE = (Link(session=1, owner="a", name="x", fence=3, since_ms_ago=5),)

TABLE = [
    (errors.UsageError("wrong"), "INVALID_ARGUMENT", "USAGE", {BadRequest}),
    (errors.Unsupported("cannot"), "UNIMPLEMENTED", "UNSUPPORTED", set()),
    (errors.QueueFull("full"), "RESOURCE_EXHAUSTED", "QUEUE_FULL", {RetryInfo, QuotaFailure}),
    (errors.LimitExceeded("limit"), "RESOURCE_EXHAUSTED", "LIMIT", {RetryInfo, QuotaFailure}),
    (errors.Deadlock("circle", circle=CIRCLE), "ABORTED", "DEADLOCK", set()),
    (Unauthenticated("who"), "UNAUTHENTICATED", "UNAUTHENTICATED", set()),
    (errors.PermissionDenied("no"), "PERMISSION_DENIED", "DENIED", set()),
    (errors.SessionExpired("over"), "NOT_FOUND", "NO_SESSION", set()),
    (Withdrawn("withdrawn"), "CANCELLED", "WITHDRAWN", set()),
    (errors.NotOwner("another's"), "FAILED_PRECONDITION", "NOT_OWNER", {PreconditionFailure}),
    (AlreadyReleased("before"), "FAILED_PRECONDITION", "ALREADY_RELEASED", {PreconditionFailure}),
    (errors.HoldLost("lost", names=["a"]), "FAILED_PRECONDITION", "EXPIRED", {PreconditionFailure}),
    (errors.NotLeader("not me", leader="b:7420"), "UNAVAILABLE", "NOT_LEADER", {RetryInfo}),
    (errors.Overloaded("busy", retry_after_s=0.25), "UNAVAILABLE", "BUSY", {RetryInfo}),
    (errors.Unavailable("away"), "UNAVAILABLE", "UNAVAILABLE", {RetryInfo}),
    (errors.OutcomeUnknown("perhaps"), "UNKNOWN", "OUTCOME_UNKNOWN", set()),
    (errors.InvariantViolated("bug"), "INTERNAL", "INTERNAL", set()),
    (KeyError("bug"), "INTERNAL", "INTERNAL", set()),
]


@pytest.mark.parametrize(("error", "code", "reason", "more"), TABLE, ids=[row[2] for row in TABLE])
def test_every_error_has_a_code_and_a_reason(error: Exception, code: str, reason: str, more: set[type]) -> None:
    """The code says what a client's library does with it; the reason is the word that programs decide by."""
    told, status = status_of(error)
    assert (told, status.code) == (Code[code], Code[code].value)
    info = ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.domain, info.reason) == (DOMAIN, reason)
    kinds = {kind for kind in (BadRequest, QuotaFailure, PreconditionFailure, RetryInfo) if _has(status, kind)}
    assert kinds == more


def _has(status: object, kind: type) -> bool:
    return any(detail.Is(kind.DESCRIPTOR) for detail in status.details)  # type: ignore[attr-defined]


def test_only_what_certainly_did_not_happen_is_unavailable() -> None:
    """Libraries repeat UNAVAILABLE by themselves: nothing that may have happened is called so."""
    kinds = {kind for kind, problem in PROBLEMS if problem.grpc == "UNAVAILABLE"}
    assert all(issubclass(kind, errors.Unavailable) for kind in kinds)
    assert problem_of(errors.OutcomeUnknown("")).grpc == "UNKNOWN"


def test_when_to_come_back_is_what_the_service_said() -> None:
    """A service that is busy knows better than a table."""
    assert problem_of(errors.Overloaded("busy", retry_after_s=0.25)).retry_after_s == 0.25
    assert problem_of(errors.Overloaded("busy")).retry_after_s == 0.5


def test_programs_are_told_what_an_error_knows() -> None:
    """Who leads, and who waits for whom."""
    assert facts_of(errors.NotLeader("", leader="b:7420")) == {"leader": "b:7420"}
    assert facts_of(errors.Deadlock("", circle=CIRCLE)) == {"circle_0": "1/a waits for x (fence 3)"}


def test_bugs_are_not_told_to_clients() -> None:
    """What went wrong inside is for the log."""
    assert "secret" not in status_of(ValueError("secret"))[1].message
