"""Problems: the name of each error at a gateway, in every protocol. One table.

1. `reason` is the stable word: programs decide by it.
2. What certainly did not happen and may be retried is UNAVAILABLE, and nothing else is.
3. What may have happened is UNKNOWN: no usual retry policy retries that. The client retries it with its request
   id.
"""

from typing import NamedTuple

from fencehold.drivers.resp.wire import NotAuthenticated
from fencehold.errors import (
    Deadlock,
    FenceholdError,
    HoldLost,
    InvariantViolated,
    LimitExceeded,
    LockTimeout,
    NotLeader,
    NotOwner,
    OutcomeUnknown,
    Overloaded,
    PermissionDenied,
    QueueFull,
    Refused,
    SessionExpired,
    StaleFence,
    Unavailable,
    Unsupported,
    UsageError,
)
from fencehold.types import Link


class AlreadyReleased(NotOwner):
    """The hold was released before. Nothing changed."""


class Unauthenticated(NotAuthenticated):
    """The service requires authentication, or it failed."""


class Withdrawn(Refused):
    """The request was withdrawn by its request id while it waited. Nothing is held, nothing waits."""


class Problem(NamedTuple):
    """How an error is named and answered."""

    reason: str
    grpc: str
    http: int
    meaning: str
    retry_after_s: float = 0.0
    """When to retry, unless the error itself says so; 0: it does not help, or is for the client to decide."""


INTERNAL = Problem("INTERNAL", "INTERNAL", 500, "a bug of Fencehold")

PROBLEMS: tuple[tuple[type[FenceholdError], Problem], ...] = (
    (UsageError, Problem("USAGE", "INVALID_ARGUMENT", 400, "the call is wrong; a retry will not help")),
    (Unsupported, Problem("UNSUPPORTED", "UNIMPLEMENTED", 501, "it cannot be given here")),
    (LockTimeout, Problem("NOT_ACQUIRED", "ABORTED", 409, "not acquired within the time given")),
    (QueueFull, Problem("QUEUE_FULL", "RESOURCE_EXHAUSTED", 429, "too many wait for that name", 1.0)),
    (LimitExceeded, Problem("LIMIT", "RESOURCE_EXHAUSTED", 429, "a limit was reached; the message names it", 5.0)),
    (Deadlock, Problem("DEADLOCK", "ABORTED", 409, "waiting would have completed a cycle of owners")),
    (NotAuthenticated, Problem("UNAUTHENTICATED", "UNAUTHENTICATED", 401, "the client is not authenticated")),
    (PermissionDenied, Problem("DENIED", "PERMISSION_DENIED", 403, "not allowed to this client")),
    (SessionExpired, Problem("NO_SESSION", "NOT_FOUND", 404, "the session has ended, or never was")),
    (AlreadyReleased, Problem("ALREADY_RELEASED", "FAILED_PRECONDITION", 409, "it was released before")),
    (NotOwner, Problem("NOT_OWNER", "FAILED_PRECONDITION", 409, "the hold is another's, or never was")),
    (StaleFence, Problem("STALE_FENCE", "FAILED_PRECONDITION", 409, "a resource has seen a greater fence")),
    (Withdrawn, Problem("WITHDRAWN", "CANCELLED", 409, "the request was withdrawn while it waited")),
    (Refused, Problem("REFUSED", "FAILED_PRECONDITION", 409, "the service refused it")),
    (NotLeader, Problem("NOT_LEADER", "UNAVAILABLE", 503, "another node leads; nothing happened", 0.1)),
    (Overloaded, Problem("BUSY", "UNAVAILABLE", 503, "the service is overloaded; nothing happened", 0.5)),
    (
        Unavailable,
        Problem("UNAVAILABLE", "UNAVAILABLE", 503, "the service was not reached; nothing happened", 0.5),
    ),
    (
        OutcomeUnknown,
        Problem("OUTCOME_UNKNOWN", "UNKNOWN", 504, "it may have happened: repeat it by its request id"),
    ),
    (
        HoldLost,
        Problem("EXPIRED", "FAILED_PRECONDITION", 409, "the hold expired, or was force-released, before this"),
    ),
    (InvariantViolated, INTERNAL),
)
"""The first kind that an error is one of."""


def problem_of(error: BaseException) -> Problem:
    """The problem of an error, with its own retry time, if it has one."""
    found = next((problem for kind, problem in PROBLEMS if isinstance(error, kind)), INTERNAL)
    told = getattr(error, "retry_after_s", 0.0)
    return found._replace(retry_after_s=told) if told else found


def _step(link: Link) -> str:
    # Of a long circle the middle is left out, and a link of no session says how many those were.
    if link.owner and not link.session:
        return link.owner
    return f"{link.session}/{link.owner} waits for {link.name} (fence {link.fence})"


def facts_of(error: BaseException) -> dict[str, str]:
    """What else an error knows, for programs."""
    match error:
        case Deadlock(circle=circle):
            steps = (_step(link) for link in circle)
            return {f"circle_{at}": step for at, step in enumerate(steps)}
        case NotLeader(leader=leader) if leader:
            return {"leader": leader}
        case HoldLost(names=names, fence=fence, reason=reason):
            return {"names": ",".join(names), "fence": str(fence), "ending": reason}
        case _:
            return {}
