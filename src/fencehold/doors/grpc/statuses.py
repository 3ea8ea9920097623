"""Statuses: errors as gRPC sends them, with details of `google.rpc` that programs can read.

Every error carries an `ErrorInfo`. When to retry is a `RetryInfo`, and also the push-back that gRPC's own retries
obey; a lost hold is a `PreconditionFailure`; what is too much is a `QuotaFailure`; what is wrong with a request is
a `BadRequest`.
"""

import base64
import logging

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, PreconditionFailure, QuotaFailure, RetryInfo
from google.rpc.status_pb2 import Status

from fencehold.drivers.http2.codes import Code
from fencehold.errors import FenceholdError, Refused
from fencehold.gateway.problems import Problem, facts_of, problem_of

DOMAIN = "fencehold"
_LOG = logging.getLogger("fencehold.grpc")
_DETAILS_BYTES_MAX = 4_096
"""Clients take about 8 KiB of headers; the message of an error is sent beside its details."""


class Uncoded(Refused):
    """A refusal that etcd sends without a code: its clients know it by its text."""

    grpc_code = Code.UNKNOWN


class Unknown(Refused):
    """What was asked about is not there."""

    grpc_code = Code.NOT_FOUND


def status_of(error: BaseException) -> tuple[Code, Status]:
    """The code of an error, and the status with its details."""
    problem = problem_of(error)
    code = error.grpc_code if isinstance(error, Uncoded | Unknown) else Code[problem.grpc]
    message = (
        str(error) if isinstance(error, FenceholdError) else "an error of the listener itself; its log says more"
    )
    return code, Status(
        code=code.value, message=message, details=[_packed(one) for one in _details(error, problem)]
    )


def _details(error: BaseException, problem: Problem) -> list[Message]:
    facts = facts_of(error)
    details: list[Message] = [ErrorInfo(reason=problem.reason, domain=DOMAIN, metadata=facts)]
    if problem.retry_after_s:
        retry = RetryInfo()
        retry.retry_delay.FromMilliseconds(int(1000 * problem.retry_after_s))
        details.append(retry)
    match problem.grpc:
        case "FAILED_PRECONDITION":
            subject = facts.get("names", "")
            violation = PreconditionFailure.Violation(type="FENCE", subject=subject, description=str(error))
            details.append(PreconditionFailure(violations=[violation]))
        case "RESOURCE_EXHAUSTED":
            quota = QuotaFailure.Violation(subject=problem.reason, description=str(error))
            details.append(QuotaFailure(violations=[quota]))
        case "INVALID_ARGUMENT":
            wrong = BadRequest.FieldViolation(description=str(error))
            details.append(BadRequest(field_violations=[wrong]))
    return details


def _packed(message: Message) -> AnyMessage:
    packed = AnyMessage()
    packed.Pack(message)
    return packed


def refusal_of(error: BaseException) -> tuple[Code, str, tuple[tuple[str, str], ...]]:
    """How a call ends that failed with this: its code, its message, and its other trailers."""
    if not isinstance(error, FenceholdError):
        _LOG.error("a call failed by a bug", exc_info=error)
    code, status = status_of(error)
    trailing: tuple[tuple[str, str], ...] = ()
    details = status.SerializeToString()
    if len(details) <= _DETAILS_BYTES_MAX:
        trailing = (("grpc-status-details-bin", base64.b64encode(details).decode().rstrip("=")),)
    if code is Code.UNAVAILABLE:
        trailing += (("grpc-retry-pushback-ms", str(int(1000 * problem_of(error).retry_after_s))),)
    return code, status.message, trailing
