"""What failed calls mean: certain only what etcd's own words make certain."""

import pytest

from fencehold.drivers.etcd.failures import Meaning, understand
from fencehold.drivers.etcd.http2.status import CallFailed
from fencehold.drivers.http2.codes import Code
from fencehold.errors import FenceholdError, PermissionDenied, Unavailable, UsageError


def error(code: str, details: str) -> CallFailed:
    return CallFailed(Code[code], details)


@pytest.mark.parametrize(
    ("code", "details"),
    [
        ("UNAVAILABLE", "it hung up"),
        ("UNAVAILABLE", "Connection reset by peer"),
        ("UNAVAILABLE", "no keep-alive was answered"),
        ("UNAVAILABLE", "etcdserver: request timed out"),
        ("UNAVAILABLE", "etcdserver: request timed out, possibly due to previous leader failure"),
        ("UNAVAILABLE", "etcdserver: request timed out, possibly due to connection lost"),
        ("UNAVAILABLE", "etcdserver: server stopped"),
        ("UNAVAILABLE", "etcdserver: leader changed"),
        ("DEADLINE_EXCEEDED", "no answer in time"),
        ("CANCELLED", "cancelled here"),
        ("UNKNOWN", "context deadline exceeded"),
        ("UNKNOWN", "raft proposal dropped"),
        ("INTERNAL", "anything"),
        ("RESOURCE_EXHAUSTED", "anything"),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded"),
        ("RESOURCE_EXHAUSTED", "Received message larger than max (17 vs. 16)"),
        ("INTERNAL", "HTTP 400 instead of an answer"),
        ("UNKNOWN", "HTTP 500 instead of an answer"),
        ("UNAVAILABLE", "HTTP 502 instead of an answer"),
        ("UNAVAILABLE", "HTTP 503 instead of an answer"),
        ("UNAVAILABLE", "HTTP 504 instead of an answer"),
    ],
)
def test_what_is_not_certain_leaves_doubt(code: str, details: str) -> None:
    """A broken connection, a deadline, a leader that changed: the request may have been acted upon."""
    assert understand(error(code, details)).leaves_doubt


@pytest.mark.parametrize(
    ("code", "details", "meaning"),
    [
        ("INVALID_ARGUMENT", "etcdserver: request is too large", Meaning.REFUSED),
        ("RESOURCE_EXHAUSTED", "grpc: received message larger than max (3 vs. 2)", Meaning.REFUSED),
        ("DATA_LOSS", "etcdserver: corrupt cluster", Meaning.REFUSED),
        ("PERMISSION_DENIED", "etcdserver: permission denied", Meaning.REFUSED),
        ("INVALID_ARGUMENT", "etcdserver: user name is empty", Meaning.REFUSED),
        (
            "INVALID_ARGUMENT",
            "etcdserver: authentication failed, invalid user ID or password",
            Meaning.REFUSED,
        ),
        ("FAILED_PRECONDITION", "etcdserver: authentication is not enabled", Meaning.REFUSED),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", Meaning.LOGIN),
        ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old", Meaning.LOGIN),
        ("UNAVAILABLE", "etcdserver: no leader", Meaning.NOT_NOW),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", Meaning.NOT_NOW),
        (
            "OUT_OF_RANGE",
            "etcdserver: mvcc: required revision has been compacted",
            Meaning.COMPACTED,
        ),
    ],
)
def test_what_etcd_refuses_is_certain(code: str, details: str, meaning: Meaning) -> None:
    """etcd tells these before it proposes anything, or refuses when it applies."""
    failure = understand(error(code, details))
    assert failure.meaning is meaning
    assert not failure.leaves_doubt


@pytest.mark.parametrize(
    ("code", "http", "meaning", "kind"),
    [
        ("UNAUTHENTICATED", 401, Meaning.REFUSED, PermissionDenied),
        ("PERMISSION_DENIED", 403, Meaning.REFUSED, PermissionDenied),
        ("UNIMPLEMENTED", 404, Meaning.REFUSED, Unavailable),
        ("UNAVAILABLE", 429, Meaning.NOT_NOW, Unavailable),
    ],
)
def test_what_a_proxy_refuses_is_certain(
    code: str, http: int, meaning: Meaning, kind: type[FenceholdError]
) -> None:
    """It says that it has not passed the request on; etcd itself never answers like this."""
    failure = understand(error(code, f"HTTP {http} instead of an answer"))
    assert (failure.meaning, failure.kind, failure.leaves_doubt) == (meaning, kind, False)
    assert f"HTTP {http}" in failure.text


@pytest.mark.parametrize("code", ["UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"])
def test_what_was_never_sent_is_certain(code: str) -> None:
    """Whatever kept it from being sent."""
    assert understand(CallFailed(Code[code], "no connection", is_sent=False)).meaning is Meaning.NOT_NOW


def test_only_a_size_is_the_callers_mistake() -> None:
    """An entry too large stays so; what an operator can put right, in etcd or in the URL, may be tried again."""
    assert understand(error("INVALID_ARGUMENT", "etcdserver: request is too large")).kind is UsageError
    assert understand(error("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded")).kind is Unavailable
    assert understand(error("PERMISSION_DENIED", "etcdserver: permission denied")).kind is PermissionDenied
