"""Statuses: errors as gRPC tells them, with details of `google.rpc` that programs can read.

Every error carries an `ErrorInfo`. When to come back is a `RetryInfo`, and also the push-back that gRPC's own
retries obey; what was held, and is not, is a `PreconditionFailure`; what is too much is a `QuotaFailure`; what
is wrong with a request is a `BadRequest`.
"""

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, PreconditionFailure, QuotaFailure, RetryInfo
from google.rpc.status_pb2 import Status

from fencehold.errors import FenceholdError, Refused, UsageError
from fencehold.gateway.holds import Held
from fencehold.gateway.problems import Problem, Withdrawn, facts_of, problem_of
from fencehold.gateway.served_client import ServedClient

DOMAIN = "fencehold"
_LOG = logging.getLogger("fencehold.grpc")
_CODES = {code.name: code for code in grpc.StatusCode}

Servicer = TypeVar("Servicer")
Request = TypeVar("Request")
Response = TypeVar("Response")


class Uncoded(Refused):
    """A no that etcd tells without a code: its clients know it by its words."""

    grpc_code = grpc.StatusCode.UNKNOWN


def status_of(error: BaseException) -> tuple[grpc.StatusCode, Status]:
    """The code of an error, and the status with its details."""
    problem = problem_of(error)
    code = error.grpc_code if isinstance(error, Uncoded) else _CODES[problem.grpc]
    message = (
        str(error) if isinstance(error, FenceholdError) else "an error of the listener itself; its log says more"
    )
    return code, Status(
        code=code.value[0], message=message, details=[_packed(one) for one in _details(error, problem)]
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


async def refuse(context: Any, error: BaseException) -> NoReturn:
    """End a call with an error."""
    if not isinstance(error, FenceholdError):
        _LOG.error("a call failed by a bug", exc_info=error)
    code, status = status_of(error)
    trailing = [("grpc-status-details-bin", status.SerializeToString())]
    if code is grpc.StatusCode.UNAVAILABLE:
        trailing.append(("grpc-retry-pushback-ms", str(int(1000 * problem_of(error).retry_after_s))))
    await context.abort(code, status.message, tuple(trailing))
    raise AssertionError("abort raises")


def readable(request: Request | None) -> Request:
    """What a client sent, if it is a message.

    Raises:
        UsageError: it is none.
    """
    if request is None:
        raise UsageError("what was sent is not the message that this method takes")
    return request


def answered(
    method: Callable[[Servicer, Request, Any], Awaitable[Response]],
) -> Callable[[Servicer, Request, Any], Awaitable[Response]]:
    """A handler whose errors are told as they should be."""

    @functools.wraps(method)
    async def handle(self: Servicer, request: Request, context: Any) -> Response:
        try:
            return await method(self, readable(request), context)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            await refuse(context, error)

    return handle


def undo_if_unheard(context: Any, client: ServedClient, held: Held) -> None:
    """Release a hold again if its call is cancelled, or its deadline passes, before the answer is sent.

    Raises:
        Withdrawn: the deadline has passed already.
    """
    client.on_answer(held)
    left_s = context.time_remaining()
    if left_s is not None and left_s <= 0:
        # The caller's own deadline is earlier than what is left of it here: it has certainly stopped waiting.
        client.on_unheard(held)
        raise Withdrawn("the deadline of the call passed before it was answered")
    # Not done: no status was sent. (`cancelled()` is about a status of that name, which is not sent then.)
    context.add_done_callback(lambda over: None if over.done() else client.on_unheard(held))


def streamed(
    method: Callable[[Servicer, Request, Any], AsyncIterator[Response]],
) -> Callable[[Servicer, Request, Any], AsyncIterator[Response]]:
    """The same for one that answers with a stream."""

    @functools.wraps(method)
    async def handle(self: Servicer, request: Request, context: Any) -> AsyncIterator[Response]:
        try:
            async for response in method(self, readable(request), context):
                yield response
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except Exception as error:
            await refuse(context, error)

    return handle
