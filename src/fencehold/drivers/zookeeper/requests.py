"""Requests to ZooKeeper, and what an error means that is no answer.

kazoo's own forms of them, and the one it lacks. They are passed to it as they are: its public calls have no
containers, and make three promises for each request, where one answer on the loop is all that is needed.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from kazoo.exceptions import NoAuthError, SessionExpiredError, SessionMovedError, UnimplementedError
from kazoo.protocol.serialization import Create, Create2, Delete, Exists, GetChildren, GetData, Sync

from fencehold.drivers.zookeeper import kazoo_client
from fencehold.drivers.zookeeper.kazoo_client import DENIALS
from fencehold.errors import FenceholdError, OutcomeUnknown, PermissionDenied, Unavailable, Unsupported

Request: TypeAlias = Any
"""One of kazoo's requests; they are not typed."""

REFUSALS = (*kazoo_client.REFUSALS, UnimplementedError)
"""Errors that are answers, too, but to a question that should not have been asked."""
ELSEWHERE = (SessionExpiredError, SessionMovedError)
"""The errors of a server whose connection carries no session any more: it has ended, or goes on at another one."""
_EPHEMERAL_SEQUENTIAL = 1 | 2
_CONTAINER = 4
_ANY_VERSION = -1


class CreateContainer(Create2):  # type: ignore[misc]
    """Makes a node that is removed by the servers some time after its last child has gone (since 3.5)."""

    type = 19


class AnswerLost(OutcomeUnknown):
    """The connection was lost before the answer came, or it did not come in time: it happened, or did not, or
    will."""


def is_write(request: Request) -> bool:
    """Whether a quorum has to agree before it is answered."""
    return isinstance(request, Create | Create2 | Delete)


def create(path: str, acl: Any) -> Request:
    return Create(path, b"", acl, 0)


def create_container(path: str, acl: Any) -> Request:
    return CreateContainer(path, b"", acl, _CONTAINER)


def create_place(path: str, data: bytes, acl: Any) -> Request:
    """Its answer has the path it got, and its stat."""
    return Create2(path, data, acl, _EPHEMERAL_SEQUENTIAL)


def delete(path: str) -> Request:
    return Delete(path, _ANY_VERSION)


def exists(path: str) -> Request:
    return Exists(path, None)


def get(path: str, watcher: Callable[[Any], None] | None = None) -> Request:
    """With a watch for its deletion. By `exists` that would be kept, also for nodes that never come again."""
    return GetData(path, watcher)


def children(path: str) -> Request:
    return GetChildren(path, None)


def sync(path: str) -> Request:
    return Sync(path)


def proof(root: str) -> Request:
    """A write that changes nothing: to remove what is never there. A quorum agrees on that as on anything else, so
    what is read after it on the same connection is as new as that."""
    # That its parent is missing is reported before any rights are checked.
    return Delete(f"{root}/-/-", _ANY_VERSION)


def meaning(where: str, error: Exception | None) -> FenceholdError:
    """What an error of kazoo's means, if it is no answer."""
    if isinstance(error, NoAuthError):
        return PermissionDenied(f"{where}: ZooKeeper refused, NoAuthError: use the login the root was made with")
    if isinstance(error, DENIALS):
        return PermissionDenied(
            f"{where}: ZooKeeper does not let us in, {type(error).__name__}: its servers ask for a login "
            "(user:password@ in the URL) or a certificate that they know; SASL is not spoken here"
        )
    if isinstance(error, UnimplementedError):
        return Unsupported(f"{where}: ZooKeeper 3.5 or newer is needed, as it has containers")
    if isinstance(error, REFUSALS):
        return Unavailable(f"{where}: ZooKeeper refused, {type(error).__name__}: see its server")
    return AnswerLost(f"{where}: the connection was lost before the answer came ({type(error).__name__})")
