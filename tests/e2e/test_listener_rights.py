"""Every call of every other listener × every role × every kind of name: allowed is exactly what the policy says.

The cases of the RESP listener are in `tests/unit/doors/test_rights.py`, with the same roles and names. Here they
come over gRPC, etcd's interface and HTTP, each with the token of a user that has the role. What a listener serves
is taken from its own tables: a call that is in none of the lists below fails a test.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import quote

import grpc
import httpx
import pytest

from fencehold.cli.wire import connect
from fencehold.core.policy import token_id
from fencehold.doors.http.table import OPERATIONS
from fencehold.security.tokens import digest_of, new_token
from fencehold.wire import etcd_messages as e
from fencehold.wire import messages as m
from fencehold.wire.etcd_messages import pool as etcd_pool
from fencehold.wire.messages import pool
from fencehold.wire.services import LOCK, PACKAGE, SESSION, WATCH, Stub
from tests.e2e.grpc_client import door
from tests.e2e.served import serving
from tests.unit.doors.test_rights import NAMES, ROLES, allowed, policy

ETCD_LOCK, ETCD_LEASE, ETCD_ELECTION = "v3lockpb.Lock", "etcdserverpb.Lease", "v3electionpb.Election"
PAIRS = (("own:a", "own:b"), ("own:a", "foreign:x"), ("own:b", "own:secret:k"), ("foreign:x", "\u00e9:1"))


class Place(NamedTuple):
    """Where the listeners are, and the token of each role."""

    grpc: int
    http: int
    tokens: dict[str, str]

    def metadata(self, role: str) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self.tokens[role]}"),)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server with the policy, on which all the names are held, and the listeners before it."""
    folder = tmp_path_factory.mktemp("rights")
    tokens = {role: new_token() for role in ROLES}
    with serving(folder, "--memory") as server:
        root = connect(server.url)
        made = {f"u-{role}": _kept(token) for role, token in tokens.items()}
        holder = new_token()
        change = {**policy(), "tokens": {**made, "holder": _kept(holder)}}
        root.call("POLICY.APPLY", 0, _json(change))
        root.close()
        held = connect(server.url.replace("://", f"://token:{holder}@"))
        # The first fence is of none of the names: to break up to it breaks nothing.
        for name in ("first", *NAMES):
            held.call("LOCK.ACQUIRE", name)
        with door(folder, "grpc", server.url) as grpc_port, door(folder, "http", server.url) as http_port:
            yield Place(grpc_port, http_port, tokens)
        held.close()


def _kept(token: str) -> dict[str, Any]:
    digest = digest_of(token)
    return {token_id(digest): {"digest": digest}}


def _json(thing: object) -> str:
    return json.dumps(thing)


# gRPC, and etcd's interface.

Call = Callable[[Any, str], Any]
"""Calls something of a service about a name."""

GRPC_CASES: dict[tuple[str, str], tuple[str, Call]] = {
    (LOCK, "Lock"): ("acquire", lambda s, name: s(m.LockRequest(name=name, ttl_ms=60_000, wait_ms=0))),
    (LOCK, "Explain"): ("observe", lambda s, name: s(m.ExplainRequest(name=name))),
    (LOCK, "Break"): ("break", lambda s, name: s(m.BreakRequest(name=name, fence=1))),
    (WATCH, "History"): ("observe", lambda s, name: s(m.HistoryRequest(name=name))),
    (ETCD_LOCK, "Lock"): ("acquire", lambda s, name: s(e.LockRequest(name=name.encode()), timeout=0.3)),
    (ETCD_ELECTION, "Campaign"): (
        "acquire",
        lambda s, name: s(getattr(e, "CampaignRequest")(name=name.encode()), timeout=0.3),  # noqa: B009
    ),
}
GRPC_OF_THEIR_OWN = {(LOCK, "MultiLock"), (LOCK, "List"), (WATCH, "Watch"), (WATCH, "ShardMap")}
"""They are asked for in tests of their own."""
GRPC_MADE_OF_OTHERS = {(ETCD_ELECTION, "Leader"), (ETCD_ELECTION, "Observe")}
"""They ask the service what Explain and Watch ask it, as the same principal."""
GRPC_OF_ONES_OWN = {
    *((LOCK, name) for name in ("Unlock", "Extend", "Withdraw")),
    *((SESSION, name) for name in ("Open", "Session", "Resume", "Close")),
    *((ETCD_LEASE, name) for name in ("LeaseGrant", "LeaseRevoke", "LeaseKeepAlive", "LeaseTimeToLive")),
    (ETCD_LEASE, "LeaseLeases"),
    (ETCD_LOCK, "Unlock"),
    (ETCD_ELECTION, "Proclaim"),
    (ETCD_ELECTION, "Resign"),
}
"""They are about what the same login has: another's is not found (`test_what_is_anothers_is_not_found`)."""


def served_by_grpc() -> set[tuple[str, str]]:
    served = dict.fromkeys((LOCK, SESSION, WATCH), pool)
    theirs = [service for file in _files(etcd_pool) for service in file.services_by_name.values()]
    return {
        *(
            (service, method.name)
            for service, of in served.items()
            for method in of.FindServiceByName(service).methods
        ),
        *((service.full_name, method.name) for service in theirs for method in service.methods),
    }


def _files(of: Any) -> list[Any]:
    """The files of a pool that describe services; a pool does not list them by itself."""
    found = []
    for service in (ETCD_LOCK, ETCD_LEASE, ETCD_ELECTION):
        with suppress(KeyError):
            found.append(of.FindServiceByName(service).file)
    return found


def test_every_call_has_cases() -> None:
    """A new one is in one of the lists from its first day: say there what right it needs."""
    listed = GRPC_CASES.keys() | GRPC_OF_THEIR_OWN | GRPC_OF_ONES_OWN | GRPC_MADE_OF_OTHERS
    assert served_by_grpc() - listed == set()
    assert {method for method in listed if method[0].startswith(PACKAGE)} <= served_by_grpc()
    known = HTTP_CASES.keys() | HTTP_OF_THEIR_OWN | HTTP_OF_ONES_OWN | HTTP_ABOUT_THE_LISTENER
    assert {(each.method, each.path) for each in OPERATIONS} - known == set()


def code(call: Callable[[], Any]) -> grpc.StatusCode:
    try:
        call()
    except grpc.RpcError as error:
        found: grpc.StatusCode = error.code()
        return found
    return grpc.StatusCode.OK


@pytest.mark.guarantee("G13")
def test_a_grpc_call_is_denied_exactly_if_the_policy_says_so(place: Place) -> None:
    """Each call about a name, or two, by each role."""
    denied, asked = grpc.StatusCode.PERMISSION_DENIED, 0
    with grpc.insecure_channel(f"127.0.0.1:{place.grpc}") as channel:
        stubs = {service: Stub(channel, service) for service in (LOCK, WATCH)}
        stubs |= {each: Stub(channel, each, etcd_pool) for each, _ in served_by_grpc() if "fencehold" not in each}
        for role in ROLES:
            metadata = place.metadata(role)
            for (service, method), (verb, call) in GRPC_CASES.items():
                if (service, method) not in served_by_grpc():
                    continue

                for name in NAMES if service == LOCK else NAMES[:4]:
                    may = allowed(role, verb, name)

                    def said(request: Any, timeout: float = 30, s: str = service, of: str = method) -> Any:
                        # Who may, waits for what is held; a refusal comes at once, but not on a busy machine.
                        bound_s = timeout if may else 30  # noqa: B023
                        return getattr(stubs[s], of)(request, timeout=bound_s, metadata=metadata)  # noqa: B023

                    found = code(lambda: call(said, name))  # noqa: B023
                    assert (found is denied) is not may, (role, method, name, found)
                    asked += 1
            for pair in PAIRS:
                request = m.MultiLockRequest(names=pair, ttl_ms=60_000, wait_ms=0)
                found = code(lambda: stubs[LOCK].MultiLock(request, metadata=metadata, timeout=30))  # noqa: B023
                assert (found is denied) is not all(allowed(role, "acquire", name) for name in pair), (role, pair)
    assert asked > 300


def test_what_grpc_lists_and_watches_is_what_may_be_seen(place: Place) -> None:
    """Names by pages; a watch needs something that may be heard."""
    with grpc.insecure_channel(f"127.0.0.1:{place.grpc}") as channel:
        locks, watches = Stub(channel, LOCK), Stub(channel, WATCH)
        for role in ROLES:
            metadata = place.metadata(role)
            for prefix in ("", "own:", "foreign:"):
                listed = locks.List(m.ListRequest(prefix=prefix), metadata=metadata, timeout=30).locks
                seen = [
                    n for n in sorted((*NAMES, "first")) if n.startswith(prefix) and allowed(role, "observe", n)
                ]
                assert [each.name for each in listed] == seen, (role, prefix)
            watch = watches.Watch(m.WatchRequest(), metadata=metadata, timeout=30)
            found = code(lambda: next(watch))  # noqa: B023
            watch.cancel()
            may = any(allowed(role, "events", name) for name in (*NAMES, "own:z"))
            assert (found is grpc.StatusCode.PERMISSION_DENIED) is not may, (role, found)


def test_what_is_anothers_is_not_found(place: Place) -> None:
    """A session and a lease of one login are nothing to another, whatever its rights are."""
    mine, other = place.metadata("team"), place.metadata("all")
    with grpc.insecure_channel(f"127.0.0.1:{place.grpc}") as channel:
        sessions, locks = Stub(channel, SESSION), Stub(channel, LOCK)
        leases = Stub(channel, ETCD_LEASE, etcd_pool)
        session = sessions.Open(m.OpenRequest(), metadata=mine, timeout=30).session
        lease = leases.LeaseGrant(e.LeaseGrantRequest(TTL=60), metadata=mine, timeout=30).ID
        for call in (
            lambda: sessions.Close(m.CloseRequest(session=session), metadata=other, timeout=30),
            lambda: locks.Lock(m.LockRequest(session=session, name="x"), metadata=other, timeout=30),
            lambda: leases.LeaseRevoke(e.LeaseRevokeRequest(ID=lease), metadata=other, timeout=30),
        ):
            assert code(call) is grpc.StatusCode.NOT_FOUND
        assert code(lambda: sessions.Close(m.CloseRequest(session=session), metadata=mine, timeout=30)) is (
            grpc.StatusCode.OK
        )


# HTTP.

HTTP_CASES: dict[tuple[str, str], tuple[str, dict[str, Any] | None]] = {
    ("GET", "/v1/locks/{name}"): ("observe", None),
    ("POST", "/v1/locks/{name}"): ("acquire", {"ttl_ms": 60_000, "wait_ms": 0}),
    ("POST", "/v1/break/{name}"): ("break", {"fence": 1}),
    ("GET", "/v1/history/{name}"): ("observe", None),
}
HTTP_OF_THEIR_OWN = {
    ("GET", "/v1/locks"),
    ("POST", "/v1/multi"),
    ("GET", "/v1/sessions"),
    ("GET", "/v1/cluster"),
    ("GET", "/v1/shards"),
    ("GET", "/v1/events"),
}
HTTP_OF_ONES_OWN = {("PATCH", "/v1/locks/{name}"), ("DELETE", "/v1/locks/{name}")}
HTTP_ABOUT_THE_LISTENER = {("GET", path) for path in ("/metrics", "/healthz", "/readyz", "/openapi.json", "/")}


@pytest.mark.guarantee("G13")
def test_an_http_request_is_denied_exactly_if_the_policy_says_so(place: Place) -> None:
    """Each operation about a name, or two, or the service, by each role: 403 if and only if a right is missing."""
    served = {(each.method, each.path) for each in OPERATIONS}
    with httpx.Client(base_url=f"http://127.0.0.1:{place.http}", timeout=30) as http:
        for role in ROLES:
            headers = {"authorization": f"Bearer {place.tokens[role]}"}
            for (method, path), (verb, body) in HTTP_CASES.items():
                for name in NAMES if (method, path) in served else ():
                    at = path.replace("{name}", quote(name, safe=""))
                    answer = http.request(method, at, json=body, headers=headers)
                    found = answer.status_code
                    assert (found == 403) is not allowed(role, verb, name), (role, method, at, answer.text)
                    assert found != 401
            for pair in PAIRS:
                said = {"names": list(pair), "ttl_ms": 60_000, "wait_ms": 0}
                found = http.post("/v1/multi", json=said, headers=headers).status_code
                assert (found == 403) is not all(allowed(role, "acquire", name) for name in pair), (role, pair)
            found = http.get("/v1/cluster", headers=headers).status_code
            assert (found == 403) is not allowed(role, "admin", ""), role
            listed = http.get("/v1/locks", headers=headers).json()["locks"]
            seen = [name for name in sorted((*NAMES, "first")) if allowed(role, "observe", name)]
            assert [each["name"] for each in listed] == seen, role
            may = any(allowed(role, "events", name) for name in (*NAMES, "own:z"))
            with http.stream("GET", "/v1/events", headers=headers) as stream:
                assert (stream.status_code == 403) is not may, role


def test_the_map_of_shards_is_for_every_login_and_for_nobody_else(place: Place) -> None:
    """As `SHARD.MAP` is: who has names to lock must know where; it names none of them."""
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{place.http}", timeout=30) as http,
        grpc.insecure_channel(f"127.0.0.1:{place.grpc}") as channel,
    ):
        ask = Stub(channel, WATCH).ShardMap
        for role in ROLES:
            headers = {"authorization": f"Bearer {place.tokens[role]}"}
            told = http.get("/v1/shards", headers=headers).json()
            assert told["ranges"] == [{"first": 0, "last": 16383, "shard": 0}], role
            assert ask(m.ShardMapRequest(), metadata=place.metadata(role), timeout=30).shards == 1, role
        assert http.get("/v1/shards").status_code == 401
        assert code(lambda: ask(m.ShardMapRequest(), timeout=30)) is grpc.StatusCode.UNAUTHENTICATED


def test_http_lists_sessions_to_who_may_see_everything_and_to_their_own(place: Place) -> None:
    """The rest is told of nobody."""
    with httpx.Client(base_url=f"http://127.0.0.1:{place.http}", timeout=30) as http:
        for role in ROLES:
            headers = {"authorization": f"Bearer {place.tokens[role]}"}
            answer = http.get("/v1/sessions", headers=headers)
            owners = {each["principal"] for each in answer.json()["sessions"]}
            assert owners <= {f"u-{role}"} or allowed(role, "observe", "\0"), (role, owners)
