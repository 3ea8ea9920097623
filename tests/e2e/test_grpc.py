"""The gRPC listener: a real server, a listener in a process of its own, clients made of the description."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
import pytest

from tests.e2e.grpc_client import Client, Compiled, Talk, door, reason_of
from tests.e2e.served import Served, until

Connect = Callable[..., Client]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="module")
def port(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with door(tmp_path_factory.mktemp("door"), "grpc", server.url) as chosen:
        yield chosen


@pytest.fixture
def connect(compiled: Compiled, port: int) -> Iterator[Connect]:
    """Makes clients; with `session=False` one without a session."""
    clients: list[Client] = []

    def make(*, session: bool = True, retries: bool = True, **said: Any) -> Client:
        client = Client(compiled, port, retries=retries)
        clients.append(client)
        return client.open(**said) if session else client

    yield make
    for client in clients:
        try:
            client.close()
        except (grpc.RpcError, ValueError):
            # Its session has ended, or its channel is closed.
            client.channel.close()


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def refused(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as error:
        call()
    return error.value.code(), reason_of(error.value)


def waiting(client: Client, name: str, count: int = 1) -> None:
    until(lambda: client.explain(name).waiter_count == count)


def test_a_name_is_held_by_one_and_its_fences_grow(connect: Connect, name: str) -> None:
    """Each hold has a greater fence than every one before it."""
    ann, bob = connect(client="ann"), connect(client="bob")
    fences = []
    for client in (ann, bob, ann, bob):
        hold = client.lock(name)
        fences.append(hold.fence)
        assert 0 < hold.safe_for_ms <= 30_000
        client.unlock(hold)
    assert fences == sorted(set(fences))


def test_a_try_that_fails_is_an_answer_that_says_who_has_it(connect: Connect, name: str) -> None:
    """Not acquired in time is no error; who has it is told where that was asked for."""
    ann, bob = connect(client="ann"), connect(client="bob")
    held = ann.lock(name, meta={"job": "nightly"})
    request = bob.m.LockRequest(session=bob.session, name=name, wait_ms=0, explain=True)
    seen = bob.locks.Lock(request).not_acquired.explanation
    assert (seen.holders[0].party.client, seen.holders[0].fence) == ("ann", held.fence)
    assert "nightly" in seen.holders[0].meta_json
    assert bob.lock(name, wait_ms=50) is None


def test_those_who_wait_are_granted_in_the_order_they_came(
    connect: Connect, pool: ThreadPoolExecutor, name: str
) -> None:
    """First come, first served, over several clients."""
    clients = [connect() for _ in range(3)]
    held = clients[0].lock(name)
    order: list[int] = []

    def take(at: int) -> None:
        hold = clients[at].lock(name)
        order.append(at)
        clients[at].unlock(hold)

    waits = []
    for place, at in enumerate((1, 2)):
        waits.append(pool.submit(take, at))
        waiting(clients[0], name, place + 1)
    clients[0].unlock(held)
    for wait in waits:
        wait.result(10)
    assert order == [1, 2]


def test_shared_holds_and_permits(connect: Connect, name: str) -> None:
    """Readers share; of two permits there are two."""
    ann, bob = connect(), connect()
    shared = ann.m.MODE_SHARED
    assert ann.lock(name, mode=shared)
    assert bob.lock(name, mode=shared)
    assert ann.lock(name, wait_ms=0) is None
    permit = {"mode": ann.m.MODE_PERMIT, "permits": 2}
    assert ann.lock(name + "-permits", **permit)
    assert bob.lock(name + "-permits", **permit)
    assert bob.lock(name + "-permits", wait_ms=0, **permit) is None


def test_several_names_are_held_all_or_none(connect: Connect, name: str) -> None:
    """With one fence; released together."""
    ann, bob = connect(), connect()
    one, two = f"{name}-1", f"{name}-2"
    request = ann.m.MultiLockRequest(session=ann.session, names=[two, one])
    hold = ann.locks.MultiLock(request).hold
    assert list(hold.names) == [one, two]
    assert bob.lock(two, wait_ms=0) is None
    request = bob.m.MultiLockRequest(session=bob.session, names=[one, f"{name}-3"], wait_ms=0)
    assert bob.locks.MultiLock(request).HasField("not_acquired")
    assert bob.lock(f"{name}-3", wait_ms=0)
    ann.unlock(hold)
    assert bob.lock(one, wait_ms=0)


def test_the_efficiency_tier_has_no_fence(connect: Connect, name: str) -> None:
    """A name of one tier is not that of the other."""
    ann = connect()
    claim = ann.lock(name, tier=ann.m.TIER_EFFICIENCY)
    assert (claim.fence, claim.tier) == (0, ann.m.TIER_EFFICIENCY)
    assert ann.lock(name, wait_ms=0)
    ann.unlock(claim)
    assert ann.lock(name, wait_ms=0, tier=ann.m.TIER_EFFICIENCY)


def test_a_release_is_told_why_it_cannot_be(connect: Connect, name: str) -> None:
    """Released before, run out, or never held: three answers."""
    ann, bob = connect(), connect()
    hold = ann.lock(name)
    by_fence = ann.m.UnlockRequest(session=bob.session, name=name, fence=hold.fence)
    failed = grpc.StatusCode.FAILED_PRECONDITION
    assert refused(lambda: bob.locks.Unlock(by_fence)) == (failed, "NOT_OWNER")
    by_fence.session = ann.session
    ann.locks.Unlock(by_fence)
    assert refused(lambda: ann.unlock(hold)) == (failed, "ALREADY_RELEASED")
    short = ann.lock(name, ttl_ms=100)
    bob.unlock(bob.lock(name))
    until(lambda: refused(lambda: ann.unlock(short)) == (failed, "EXPIRED"))


def test_a_hold_is_extended(connect: Connect, name: str) -> None:
    """From now on, by its own time; or to the end of its session."""
    ann = connect()
    hold = ann.lock(name, ttl_ms=5_000)
    request = ann.m.ExtendRequest(session=ann.session, hold_id=hold.hold_id, ttl_ms=20_000)
    longer = ann.locks.Extend(request).hold
    assert hold.safe_for_ms <= 5_000 < longer.safe_for_ms <= 20_000
    request.ttl_ms = 0
    assert ann.locks.Extend(request).hold.ttl_ms == 0


def test_a_call_that_is_cancelled_is_withdrawn(connect: Connect, name: str) -> None:
    """A waiter that went away is never granted later, and blocks nobody."""
    ann, bob = connect(), connect()
    held = ann.lock(name)
    call = bob.locks.Lock.future(bob.m.LockRequest(session=bob.session, name=name))
    waiting(ann, name)
    call.cancel()
    waiting(ann, name, 0)
    ann.unlock(held)
    assert ann.lock(name, wait_ms=0)


def test_a_call_whose_deadline_passes_is_withdrawn(connect: Connect, name: str) -> None:
    """The deadline is the client's own; behind it, nothing waits."""
    ann, bob = connect(), connect()
    held = ann.lock(name)
    with pytest.raises(grpc.RpcError) as error:
        bob.lock(name, timeout=0.2)
    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    waiting(ann, name, 0)
    ann.unlock(held)
    assert ann.lock(name, wait_ms=0)


def test_the_waiter_of_a_client_that_is_gone_is_withdrawn(connect: Connect, name: str) -> None:
    """Its channel closes, and its place in the queue with it."""
    ann, bob = connect(), connect()
    ann.lock(name)
    call = bob.locks.Lock.future(bob.m.LockRequest(session=bob.session, name=name))
    waiting(ann, name)
    bob.channel.close()
    waiting(ann, name, 0)
    assert call.done()


def test_a_request_is_acted_upon_once(connect: Connect, pool: ThreadPoolExecutor, name: str) -> None:
    """Repeated under its id it has the same answer, while it waits and afterwards."""
    ann, bob = connect(), connect()
    held = ann.lock(name)
    calls = [pool.submit(bob.lock, name, request_id="once") for _ in range(2)]
    waiting(ann, name)
    ann.unlock(held)
    first, second = (call.result(10) for call in calls)
    assert first.hold_id == second.hold_id == bob.lock(name, request_id="once").hold_id
    assert refused(lambda: bob.lock("other", request_id="once"))[1] == "USAGE"


def test_a_request_can_be_withdrawn_whatever_became_of_it(connect: Connect, name: str) -> None:
    """For a call whose answer was lost: afterwards it holds nothing."""
    ann, bob = connect(), connect()
    ann.lock(name, request_id="lost")
    withdraw = ann.m.WithdrawRequest(session=ann.session, request_id="lost")
    assert ann.locks.Withdraw(withdraw).was_held
    assert not ann.locks.Withdraw(withdraw).was_held
    assert bob.lock(name, wait_ms=0)


def test_a_request_that_waits_is_withdrawn_by_another_call(
    connect: Connect, pool: ThreadPoolExecutor, name: str
) -> None:
    """The call that waits is told so; nothing stays in the queue."""
    ann, bob = connect(), connect()
    held = ann.lock(name)
    for owner in ("", "thread"):
        call = pool.submit(refused, partial(bob.lock, name, request_id="r", owner=owner))
        waiting(ann, name)
        bob.locks.Withdraw(bob.m.WithdrawRequest(session=bob.session, request_id="r"))
        assert call.result(10) == (grpc.StatusCode.CANCELLED, "WITHDRAWN")
        waiting(ann, name, 0)
    ann.unlock(held)
    assert bob.lock(name, wait_ms=0, request_id="r")


def test_what_waits_is_told_when_its_session_is_closed(
    connect: Connect, pool: ThreadPoolExecutor, name: str
) -> None:
    """As a session that has ended, no matter which owner asked."""
    ann, bob = connect(), connect()
    ann.lock(name)
    calls = [
        pool.submit(refused, partial(bob.lock, name, owner=owner, request_id=request_id))
        for owner, request_id in (("", ""), ("thread", ""), ("", "r"))
    ]
    waiting(ann, name, 3)
    bob.sessions.Close(bob.m.CloseRequest(session=bob.session))
    assert {call.result(10) for call in calls} == {(grpc.StatusCode.NOT_FOUND, "NO_SESSION")}
    waiting(ann, name, 0)


def test_a_retry_without_a_request_id_is_not_taken_for_a_new_request(connect: Connect, name: str) -> None:
    """It might wait for what its first attempt was granted."""
    # What gRPC's own retries say is said by hand here, which these would take out.
    ann = connect(retries=False)
    again = (("grpc-previous-rpc-attempts", "1"),)
    request = ann.m.LockRequest(session=ann.session, name=name, wait_ms=0)
    unknown = refused(lambda: ann.locks.Lock(request, metadata=again))
    assert unknown == (grpc.StatusCode.UNKNOWN, "OUTCOME_UNKNOWN")
    hold = ann.lock(name)
    request = ann.m.UnlockRequest(session=ann.session, hold_id=hold.hold_id)
    ann.locks.Unlock(request)
    ann.locks.Unlock(request, metadata=again)


def test_a_circle_of_owners_is_refused(connect: Connect, pool: ThreadPoolExecutor, name: str) -> None:
    """Two sessions whose owners would wait for one another: the second is told."""
    ann, bob = connect(), connect()
    one, two = f"{name}-1", f"{name}-2"
    ann.lock(one, owner="a")
    held = bob.lock(two, owner="b")
    wait: Future[Any] = pool.submit(ann.lock, two, owner="a")
    waiting(ann, two)
    assert refused(lambda: bob.lock(one, owner="b")) == (grpc.StatusCode.ABORTED, "DEADLOCK")
    bob.unlock(held)
    assert wait.result(10).fence


def test_without_a_session_a_hold_has_a_time_to_live(connect: Connect, name: str) -> None:
    """For those who ask once, by a tool; it is found again by its name and fence."""
    ann = connect(session=False)
    assert refused(lambda: ann.lock(name)) == (grpc.StatusCode.INVALID_ARGUMENT, "USAGE")
    hold = ann.lock(name, ttl_ms=20_000)
    assert ann.lock(name, ttl_ms=1_000, wait_ms=0) is None
    ann.locks.Unlock(ann.m.UnlockRequest(name=name, fence=hold.fence))
    assert ann.explain(name).holder_count == 0


def test_names_are_listed_in_pages(connect: Connect, name: str) -> None:
    """By name, each once."""
    ann = connect()
    names = [f"{name}:{at}" for at in range(5)]
    for each in names:
        ann.lock(each)
    told, token = [], ""
    while True:
        page = ann.locks.List(ann.m.ListRequest(prefix=f"{name}:", page_size=2, page_token=token))
        told += [lock.name for lock in page.locks]
        token = page.next_page_token
        if not token:
            break
    assert told == names


def test_a_break_is_told_to_the_holder(connect: Connect, name: str) -> None:
    """On its stream, with what was lost and why."""
    ann, bob = connect(), connect()
    talk = Talk(ann)
    hold = ann.lock(name)
    assert talk.wait("granted").hold.hold_id == hold.hold_id
    fence = bob.locks.Break(bob.m.BreakRequest(name=name, fence=hold.fence)).fence
    lost = talk.wait("lost")
    assert (lost.hold.fence, lost.reason) == (hold.fence, ann.m.END_REASON_BROKEN)
    assert fence > hold.fence


def test_keep_alives_are_answered_with_how_long_a_hold_is_safe(connect: Connect, name: str) -> None:
    """Counted from when the keep-alive was sent, so never too long."""
    ann = connect(ttl_ms=8_000)
    talk = Talk(ann)
    ann.lock(name)
    talk.send(sequence=7)
    answer = talk.wait("kept_alive")
    assert answer.sequence == 7
    assert 0 < answer.safe_for_ms <= 8_000


def test_a_broken_stream_starts_the_grace(connect: Connect, name: str) -> None:
    """Afterwards the session is over, and what it held is free, long before its ttl."""
    ann, bob = connect(ttl_ms=60_000, grace_ms=100), connect()
    talk = Talk(ann)
    ann.lock(name)
    talk.call.cancel()
    assert bob.lock(name, timeout=10)
    assert refused(lambda: ann.lock(name)) == (grpc.StatusCode.NOT_FOUND, "NO_SESSION")


def test_a_session_is_resumed_within_its_grace(connect: Connect, name: str) -> None:
    """What it held is still held, and told."""
    ann = connect(ttl_ms=60_000, grace_ms=30_000)
    talk = Talk(ann)
    hold = ann.lock(name)
    talk.call.cancel()
    resumed = ann.sessions.Resume(ann.m.ResumeRequest(session=ann.session))
    assert [each.hold_id for each in resumed.holds] == [hold.hold_id]
    assert [each.fence for each in Talk(ann).wait("attached").holds] == [hold.fence]


def test_a_session_that_is_not_kept_alive_ends(connect: Connect, name: str) -> None:
    """Its stream stands, but nothing is heard on it: the client hangs."""
    ann, bob = connect(ttl_ms=300), connect()
    talk = Talk(ann)
    ann.lock(name)
    assert bob.lock(name, timeout=10)
    assert talk.wait("ended").reason == ann.m.END_REASON_EXPIRED


def test_closing_a_session_frees_all_it_holds(connect: Connect, name: str) -> None:
    """At once, and its stream ends with a last word."""
    ann, bob = connect(), connect()
    talk = Talk(ann)
    ann.lock(name)
    ann.sessions.Close(ann.m.CloseRequest(session=ann.session))
    assert bob.lock(name, wait_ms=0)
    assert talk.wait("ended").reason == ann.m.END_REASON_CLOSED


def test_events_are_watched_and_resumed(connect: Connect, name: str) -> None:
    """From a position and an index on, each once, over two watches."""
    ann = connect()
    watch = ann.watches.Watch(ann.m.WatchRequest(prefix=name), timeout=10)
    assert next(watch).HasField("watching")
    ann.unlock(ann.lock(name))
    first = next(watch).event
    assert (first.kind, list(first.names)) == (ann.m.EVENT_KIND_ACQUIRED, [name])
    watch.cancel()
    again = ann.m.WatchRequest(prefix=name, from_position=first.position, from_index=first.index)
    told = ann.watches.Watch(again, timeout=10)
    assert next(told).HasField("watching")
    assert next(told).event.kind_text == "released"
    told.cancel()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"name": ""}, "USAGE"),
        ({"name": "x" * 300}, "LIMIT"),
        ({"name": "a", "mode": 77}, "USAGE"),
        ({"name": "a", "permits": 2}, "USAGE"),
        ({"name": "a", "request_id": "r" * 65}, "USAGE"),
        ({"name": "a", "meta": {"k": "v" * 2_000}}, "USAGE"),
    ],
)
def test_what_is_wrong_is_refused_by_its_reason(connect: Connect, said: dict[str, Any], reason: str) -> None:
    """Nothing happened, and the message says what is wrong."""
    ann = connect()
    assert refused(lambda: ann.lock(**said))[1] == reason


def test_sessions_have_bounds(connect: Connect) -> None:
    """Times out of range, and the name of a stranger's session."""
    ann = connect(session=False)
    assert refused(lambda: ann.open(ttl_ms=10))[1] == "USAGE"
    assert refused(lambda: ann.open(ttl_ms=1_000, grace_ms=2_000))[1] == "USAGE"
    assert refused(lambda: ann.open(client="x" * 200))[1] == "USAGE"
    ann.session = "guessed"
    assert refused(lambda: ann.lock("a")) == (grpc.StatusCode.NOT_FOUND, "NO_SESSION")


def test_credentials_are_passed_on(connect: Connect) -> None:
    """The server has no users here, and says so; the listener adds nothing to that."""
    ann = connect(session=False)
    request, login = ann.m.OpenRequest(), (("authorization", "Bearer abc"),)
    assert refused(lambda: ann.sessions.Open(request, metadata=login))[1] in ("USAGE", "UNAUTHENTICATED")
    odd = (("authorization", "Digest abc"),)
    assert refused(lambda: ann.sessions.Open(request, metadata=odd))[1] == "USAGE"


def test_messages_and_metadata_have_bounds(connect: Connect) -> None:
    """What is too large is refused by its call, and the next one is answered."""
    ann = connect()
    exhausted = grpc.StatusCode.RESOURCE_EXHAUSTED
    with pytest.raises(grpc.RpcError) as error:
        ann.lock("x" * 100_000)
    assert error.value.code() is exhausted
    with pytest.raises(grpc.RpcError) as error:
        ann.locks.List(ann.m.ListRequest(), metadata=(("x-large", "x" * 40_000),))
    assert error.value.code() is exhausted
    assert ann.lock("small enough")


def test_unknown_methods_and_broken_messages_are_refused(connect: Connect) -> None:
    """Each by the code that gRPC has for it."""
    ann = connect(session=False)
    call = ann.channel.unary_unary("/fencehold.v1.LockService/Nothing")
    with pytest.raises(grpc.RpcError) as error:
        call(b"", timeout=5)
    assert error.value.code() is grpc.StatusCode.UNIMPLEMENTED
    call = ann.channel.unary_unary("/fencehold.v1.LockService/Lock")
    for broken in (b"\xff" * 20, b"\x12\x02\xff\xfe"):
        with pytest.raises(grpc.RpcError) as error:
            call(broken, timeout=5)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_health_and_reflection(connect: Connect) -> None:
    """The listener serves, and so do locks where the node leads; tools find the services in both versions."""
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: PLC0415
    from grpc_reflection.v1alpha import reflection_pb2  # noqa: PLC0415

    channel = connect(session=False).channel
    health = health_pb2_grpc.HealthStub(channel)
    for service in (
        "",
        "fencehold.v1.LockService",
        "v3lockpb.Lock",
        "v3electionpb.Election",
        "etcdserverpb.Lease",
    ):
        assert health.Check(health_pb2.HealthCheckRequest(service=service)).status == 1
    with pytest.raises(grpc.RpcError) as error:
        health.Check(health_pb2.HealthCheckRequest(service="other"))
    assert error.value.code() is grpc.StatusCode.NOT_FOUND
    for version, service in (("v1", "fencehold.v1.LockService"), ("v1alpha", "v3lockpb.Lock")):
        asked = reflection_pb2.ServerReflectionRequest(file_containing_symbol=service)
        call = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
            response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
        )
        told = next(iter(call(iter([asked]), timeout=5)))
        assert service.rpartition(".")[2].encode() in told.file_descriptor_response.file_descriptor_proto[0]


def test_a_service_that_hangs_is_told_as_jeopardy(server: Served, connect: Connect, name: str) -> None:
    """The holder hears of it on its stream, and again when it is over."""
    ann = connect(ttl_ms=3_000)
    talk = Talk(ann)
    ann.lock(name)
    server.pause()
    try:
        assert 0 < talk.wait("jeopardy").safe_for_ms < 3_000
    finally:
        server.go_on()
    talk.send(sequence=1)
    assert talk.wait("recovered")
    assert not [one for one in talk.told if one.WhichOneof("message") == "lost"]


def test_two_listeners_on_one_port_are_refused(server: Served, port: int) -> None:
    """Each would get some of the calls of one session."""
    from tests.e2e.served import ended, start  # noqa: PLC0415

    said = ended(start("listener", "grpc", "--url", server.url, "--port", str(port)))
    assert (said.code, "choose another --port" in said.err) == (69, True)
