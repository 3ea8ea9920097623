"""What a failed call to etcd means about the world: certainly nothing happened, or don't know.

etcd sends most of its refusals before it proposes anything to its members, or refuses when it applies; those are
certain, and named here one by one as etcd 3.4 to 3.6 word them. Everything else may have happened: a broken
connection, a deadline, a member that stopped, a leader that changed. When in doubt, it is in doubt.

etcd answers in gRPC. An answer by HTTP alone comes from something in front of it, such as a proxy. With 401, 403,
404 and 429 it says that it has not forwarded the request (RFC 9110, 15.5; RFC 6585, 4); 502, 503 and 504 it also
sends for one that it has forwarded, and whose answer it did not get.
"""

from enum import Enum
from typing import NamedTuple

from fencehold.drivers.etcd.http2.status import CallFailed
from fencehold.errors import FenceholdError, PermissionDenied, Unavailable, UsageError


class Meaning(Enum):
    """What to do after it."""

    REFUSED = "certainly nothing happened, and asking again gives the same answer"
    FULL = "it may have happened, and asking again is refused until an operator makes room"
    NOT_NOW = "certainly nothing happened; another member, or this one a little later, may do it"
    UNREACHABLE = "certainly nothing happened: no member can be connected to"
    LOGIN = "certainly nothing happened; the token has run out"
    NO_LEASE = "certainly nothing happened: the lease it names is not there"
    COMPACTED = "certainly nothing happened; what it asked for was compacted before"
    TOO_MUCH = "the answer is larger than this side takes"
    DOUBT = "it may have happened, or may yet"


class Failed(Exception):
    """A try that failed."""

    def __init__(self, failure: "Failure") -> None:
        super().__init__(failure.text)
        self.failure = failure


class LeaseExists(FenceholdError):
    """The lease is there already: an earlier try has made it."""


class Failure(NamedTuple):
    """A failed call, understood."""

    meaning: Meaning
    text: str
    kind: type[FenceholdError] = Unavailable
    """What to raise if it is a refusal."""

    @property
    def leaves_doubt(self) -> bool:
        """Whether what was asked may have been done."""
        return self.meaning in (Meaning.DOUBT, Meaning.FULL, Meaning.TOO_MUCH)

    @property
    def is_final(self) -> bool:
        """Whether asking again is no use."""
        return self.meaning in (Meaning.REFUSED, Meaning.FULL)


_KNOWN = {
    "etcdserver: request is too large": Failure(
        Meaning.REFUSED,
        "etcd takes no request of this size: start its members with --max-request-bytes=1572864 or more",
        UsageError,
    ),
    "grpc: received message larger than max": Failure(
        Meaning.REFUSED,
        "etcd takes no request of this size: start its members with --max-request-bytes=1572864 or more",
        UsageError,
    ),
    # The request that fills the database is applied, and then answered like those that are refused after it.
    "etcdserver: mvcc: database space exceeded": Failure(
        Meaning.FULL,
        "etcd's database is full: compact and defragment it or raise --quota-backend-bytes, "
        "then run `etcdctl alarm disarm`",
    ),
    "etcdserver: corrupt cluster": Failure(
        Meaning.REFUSED, "etcd found that its members' data differ and takes no requests: see its log"
    ),
    "etcdserver: permission denied": Failure(
        Meaning.REFUSED,
        "etcd denies it: grant the user's role readwrite on the prefix of the URL "
        "(and add ?compact=false to the URL if only compacting is denied)",
        PermissionDenied,
    ),
    "etcdserver: user name is empty": Failure(
        Meaning.REFUSED, "etcd asks who this is: put user:password@ before the host in the URL", PermissionDenied
    ),
    "etcdserver: authentication failed": Failure(
        Meaning.REFUSED,
        "etcd knows no such user with this password: correct user:password@ in the URL",
        PermissionDenied,
    ),
    "etcdserver: authentication is not enabled": Failure(
        Meaning.REFUSED,
        "etcd has its users turned off: remove user:password@ from the URL, or run `etcdctl auth enable`",
        PermissionDenied,
    ),
    "etcdserver: invalid auth token": Failure(Meaning.LOGIN, "the token has run out"),
    "etcdserver: revision of auth store is old": Failure(Meaning.LOGIN, "users or roles changed"),
    "auth: revision in header is old": Failure(Meaning.LOGIN, "users or roles changed"),
    "etcdserver: no leader": Failure(Meaning.NOT_NOW, "its members have no leader: a majority is needed"),
    "etcdserver: too many requests": Failure(Meaning.NOT_NOW, "it is overloaded"),
    "etcdserver: not capable": Failure(Meaning.NOT_NOW, "a member is starting"),
    "etcdserver: rpc not supported for learner": Failure(Meaning.NOT_NOW, "a member is a learner"),
    "etcdserver: requested lease not found": Failure(Meaning.NO_LEASE, "the lease is gone"),
    "etcdserver: lease already exists": Failure(Meaning.REFUSED, "the lease is there already", LeaseExists),
    "etcdserver: mvcc: required revision has been compacted": Failure(Meaning.COMPACTED, "compacted"),
    "HTTP 401": Failure(
        Meaning.REFUSED, "a proxy before etcd asks who this is (HTTP 401): see what it asks for", PermissionDenied
    ),
    "HTTP 403": Failure(
        Meaning.REFUSED, "a proxy before etcd refuses this client (HTTP 403): see its rules", PermissionDenied
    ),
    "HTTP 404": Failure(
        Meaning.REFUSED, "the server there is not etcd (HTTP 404): correct host and port in the URL"
    ),
    "HTTP 429": Failure(Meaning.NOT_NOW, "a proxy before etcd takes no more requests for now (HTTP 429)"),
}


_TLS_SIGNS = ("TLS", "SSL", "hung up", "does not speak", "Connection reset")


def why_not_connected(details: str) -> str:
    """The reason for a connection that could not be made, and what to look at."""
    if any(sign in details for sign in _TLS_SIGNS):
        details += " (does it speak TLS, and are certificates trusted? see etcd:// or etcds://, ca=, cert=, key=)"
    return details


def understand(error: CallFailed) -> Failure:
    """What a failed call means."""
    details = error.details
    if not error.is_sent:
        return Failure(Meaning.NOT_NOW, why_not_connected(details))
    for words, failure in _KNOWN.items():
        if details.startswith(words):
            return failure
    if "Received message larger than max" in details:
        return Failure(Meaning.TOO_MUCH, details)
    return Failure(Meaning.DOUBT, f"{error.code.name.lower().replace('_', ' ')}: {details}")
