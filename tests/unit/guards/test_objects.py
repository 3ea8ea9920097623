"""The guard in front of an object store: moto's, in a process of its own.

Moto keeps `If-Match` and `If-None-Match` of a PUT, as S3 does, but looks first and writes then, and is interrupted
by its other threads. Here a lock around it makes each request one step, as it is in a store.
"""

import gzip
import random
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import boto3  # type: ignore[import-untyped]
import pytest
from botocore.config import Config  # type: ignore[import-untyped]
from botocore.exceptions import ClientError, ReadTimeoutError  # type: ignore[import-untyped]

import fencehold
from fencehold.errors import (
    Damaged,
    LimitExceeded,
    OutcomeUnknown,
    PermissionDenied,
    StaleFence,
    Unavailable,
    Unsupported,
    UsageError,
)
from fencehold.guards import Offer
from fencehold.guards.objects import Guard, unwrap
from fencehold.guards.objects_forms import FORMS, Form, Stamp, wrap
from fencehold.locks.hold import Claiming
from fencehold.locks.terms import Terms
from fencehold.locks.trust import Grant, Trust
from rig.processes import Process, accepts, free_port
from tests.threads import at_once
from tests.unit.guards import amounts

NAME, BUCKET, KEY = "manifest/ü", "bucket", "folder/manifest.json"
VERSIONED = "versioned"
WRITERS, WRITES = 32, amounts.writes(240)
"""Few, as the store of these tests is slow."""
STORE = """
import sys, threading
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

app, turn = DomainDispatcherApplication(create_backend_app), threading.Lock()

def alone(environ, start_response):
    with turn:
        return [b"".join(app(environ, start_response))]

make_server("127.0.0.1", int(sys.argv[1]), alone, threaded=True).serve_forever()
"""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    process = Process("moto", [sys.executable, "-c", STORE, str(port)], tmp_path_factory.mktemp("moto"))
    process.start()
    try:
        process.await_ready(lambda: accepts(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.stop()


def client_at(endpoint: str, **options: Any) -> Any:
    options = {"max_pool_connections": WRITERS, "s3": {"addressing_style": "path"}, **options}
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        config=Config(**options),
    )


@pytest.fixture(scope="module")
def client(endpoint: str) -> Iterator[Any]:
    made = client_at(endpoint)
    yield made
    made.close()


@pytest.fixture
def store(client: Any) -> Any:
    """With an empty bucket."""
    client.create_bucket(Bucket=BUCKET)
    for found in client.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        client.delete_object(Bucket=BUCKET, Key=found["Key"])
    return client


@pytest.fixture
def guard(store: Any) -> Guard:
    return Guard(store)


class Between:
    """A client of which one call is done by somebody else's hand."""

    def __init__(self, client: Any, **calls: Callable[..., Any]) -> None:
        self._client = client
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._client, name)
        call = self._calls.get(name)
        return real if call is None else lambda **words: call(real, **words)


def once(action: Callable[[], object]) -> Callable[..., Any]:
    """A call before which something happens, the first time."""
    left = [action]

    def call(real: Callable[..., Any], **words: Any) -> Any:
        if left:
            left.pop()()
        return real(**words)

    return call


def offer(fence: int) -> Offer:
    return Offer(NAME, fence)


def body(client: Any) -> bytes:
    data: bytes = client.get_object(Bucket=BUCKET, Key=KEY)["Body"].read()
    return unwrap(data)


def mark(client: Any) -> str:
    said: str = client.head_object(Bucket=BUCKET, Key=KEY)["Metadata"]["fence"]
    return said


def test_objects_are_put_and_read(guard: Guard, store: Any) -> None:
    """With what the caller says of them."""
    guard.put(BUCKET, KEY, b"one", offer(5), ContentType="text/csv", Metadata={"mine": "yes"})
    assert guard.get(BUCKET, KEY, offer(6)) == b"one"
    seen = store.head_object(Bucket=BUCKET, Key=KEY)
    assert (seen["ContentType"], seen["Metadata"]["mine"], seen["Metadata"]["fence"]) == ("text/csv", "yes", "6")
    guard.put(BUCKET, KEY, b"", offer(6))
    assert (guard.get(BUCKET, KEY, offer(6)), body(store)) == (b"", b"")


def test_a_holder_writes_twice_and_a_stale_one_never(guard: Guard, store: Any) -> None:
    """An equal fence is the same holder's; a smaller one is refused with all that is known, and writes nothing."""
    guard.put(BUCKET, KEY, b"one", offer(34))
    guard.put(BUCKET, KEY, b"two", offer(34))
    for call in (
        partial(guard.put, BUCKET, KEY, b"late"),
        partial(guard.enter, BUCKET, KEY),
        partial(guard.check, BUCKET, KEY),
    ):
        with pytest.raises(StaleFence) as refused:
            call(offer(33))
        assert (refused.value.name, refused.value.fence, refused.value.mark) == (NAME, 33, 34)
    guard.check(BUCKET, KEY, offer(34))
    assert body(store) == b"two"


def test_without_enter_an_old_write_slips_in_between(guard: Guard, store: Any) -> None:
    """The gap: 34 has read already, and 33's write, on its way since before, is still accepted."""
    guard.put(BUCKET, KEY, b"old", offer(32))
    seen = body(store)
    guard.put(BUCKET, KEY, b"late", offer(33))
    assert body(store) != seen


def test_after_enter_what_was_read_stays_true(guard: Guard, store: Any) -> None:
    """34 raises the mark before it reads: 33's late write is refused. So it is where nothing was put yet."""
    for known in (False, True):
        if known:
            guard.put(BUCKET, KEY, b"old", offer(32))
        seen = guard.get(BUCKET, KEY, offer(34))
        assert seen == (b"old" if known else None)
        with pytest.raises(StaleFence):
            guard.put(BUCKET, KEY, b"late", offer(33))
        assert guard.get(BUCKET, KEY, offer(34)) == seen
        store.delete_object(Bucket=BUCKET, Key=KEY)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("said", [b"same", b"other"])
def test_a_put_that_was_on_its_way_finds_its_condition_false(store: Any, form: Form, said: bytes) -> None:
    """33 has looked already when 34 enters, or writes just what was there: the ETag is another all the same."""
    guard = Guard(store, form=form)
    for meanwhile in (
        lambda: guard.enter(BUCKET, KEY, offer(34)),
        lambda: guard.put(BUCKET, KEY, b"same", offer(34)),
    ):
        store.delete_object(Bucket=BUCKET, Key=KEY)
        guard.put(BUCKET, KEY, b"same", offer(33))
        late = Guard(Between(store, put_object=once(meanwhile)), form=form)
        with pytest.raises(StaleFence):
            late.put(BUCKET, KEY, said, offer(33))
        assert (mark(store), body(store)) == ("34", b"same")


def test_with_the_mark_in_metadata_alone_the_store_would_let_it_pass(store: Any) -> None:
    """Why the bytes carry a stamp: metadata does not change an ETag."""
    store.put_object(Bucket=BUCKET, Key=KEY, Body=b"same", Metadata={"fence": "33"})
    seen = store.head_object(Bucket=BUCKET, Key=KEY)["ETag"]
    store.put_object(Bucket=BUCKET, Key=KEY, Body=b"same", Metadata={"fence": "34"}, IfMatch=seen)
    store.put_object(Bucket=BUCKET, Key=KEY, Body=b"late", Metadata={"fence": "33"}, IfMatch=seen)
    assert mark(store) == "33"


def test_of_two_who_write_the_first_object_one_looks_again(store: Any) -> None:
    """`If-None-Match: *`: 33 sees 34's, and is refused; 35 sees it, and goes on."""
    for fence, is_refused in ((33, True), (35, False)):
        store.delete_object(Bucket=BUCKET, Key=KEY)
        first = once(lambda: Guard(store).put(BUCKET, KEY, b"first", offer(34)))
        late = Guard(Between(store, put_object=first))
        if is_refused:
            with pytest.raises(StaleFence):
                late.put(BUCKET, KEY, b"second", offer(fence))
        else:
            late.put(BUCKET, KEY, b"second", offer(fence))
        assert body(store) == (b"first" if is_refused else b"second")


def test_an_object_that_vanishes_meanwhile_is_written_anew(guard: Guard, store: Any) -> None:
    """`If-Match` of what is gone is a 404, and an answer like any other."""
    guard.put(BUCKET, KEY, b"one", offer(5))
    gone = once(lambda: store.delete_object(Bucket=BUCKET, Key=KEY))
    Guard(Between(store, put_object=gone)).put(BUCKET, KEY, b"two", offer(5))
    assert body(store) == b"two"


def test_trying_is_bounded(guard: Guard, store: Any) -> None:
    """Whoever is overtaken each time gives up, and has written nothing."""
    guard.put(BUCKET, KEY, b"one", offer(5))

    def overtaken(real: Callable[..., Any], **words: Any) -> Any:
        guard.put(BUCKET, KEY, b"quick", offer(5))
        return real(**words)

    slow = Guard(Between(store, put_object=overtaken), attempts=3)
    with pytest.raises(Unavailable, match="3 times"):
        slow.put(BUCKET, KEY, b"slow", offer(5))
    with pytest.raises(Unavailable, match="3 times"):
        slow.enter(BUCKET, KEY, offer(6))
    assert (body(store), mark(store)) == (b"quick", "5")


def test_a_strict_guard_knows_its_objects(store: Any) -> None:
    """An object without a mark is an error until it is registered; to register it again changes nothing."""
    strict = Guard(store, strict=True)
    for _ in range(2):
        with pytest.raises(UsageError, match="has no mark"):
            strict.put(BUCKET, KEY, b"one", offer(5))
        store.put_object(Bucket=BUCKET, Key=KEY, Body=b"of others", ContentType="text/plain")
    strict.register(BUCKET, KEY, NAME)
    assert (mark(store), strict.get(BUCKET, KEY, offer(5))) == ("0", b"of others")
    strict.put(BUCKET, KEY, b"one", offer(5))
    strict.register(BUCKET, KEY, NAME)
    assert mark(store) == "5"
    with pytest.raises(UsageError, match="not of 'other'"):
        strict.register(BUCKET, KEY, "other")


def test_an_object_of_others_is_taken_over(guard: Guard, store: Any) -> None:
    """Its bytes are its body, whatever they look like."""
    store.put_object(Bucket=BUCKET, Key=KEY, Body=b"fencehold fence 1 \nof others")
    assert guard.get(BUCKET, KEY, offer(5)) == b"fencehold fence 1 \nof others"
    assert (mark(store), body(store)) == ("5", b"fencehold fence 1 \nof others")


def test_what_is_no_fence_of_the_name_is_refused(guard: Guard, store: Any) -> None:
    """Never silently, and nothing is written."""
    guard.put(BUCKET, KEY, b"one", offer(5))
    with pytest.raises(UsageError, match="not of 'other'"):
        guard.put(BUCKET, KEY, b"two", Offer("other", 99))
    grant = Grant(Terms((NAME,)), 0, Trust(1, 1))
    grant.lose("over")
    for wrong in (Offer(NAME, 0), Offer("", 5), None, 5, Claiming(grant)):
        with pytest.raises(UsageError):
            guard.put(BUCKET, KEY, b"two", wrong)  # type: ignore[arg-type]
    for extra in ({"IfMatch": "x"}, {"Metadata": {"fence": "99"}}, {"ContentEncoding": "br"}):
        with pytest.raises(UsageError):
            guard.put(BUCKET, KEY, b"two", offer(5), None, **extra)
    with pytest.raises(UsageError):
        Guard(store, form="json")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="bucket"):
        guard.put("nowhere", KEY, b"two", offer(5))
    assert body(store) == b"one"


def test_real_holds_are_taken(guard: Guard, store: Any) -> None:
    """The next holder has a greater fence."""
    with fencehold.connect("memory://") as locks:
        with locks.lock(NAME) as first:
            guard.put(BUCKET, KEY, b"first", first)
        with locks.lock(NAME) as second:
            assert guard.get(BUCKET, KEY, second) == b"first"
        with pytest.raises(StaleFence):
            guard.put(BUCKET, KEY, b"late", first)


@pytest.mark.parametrize("said", [{"fence": "x"}, {"fence": "-1", "fence-name": "n"}, {"fence": "5"}])
def test_a_mark_that_is_none_is_never_taken_for_0(guard: Guard, store: Any, said: dict[str, str]) -> None:
    """Somebody has written over it."""
    store.put_object(Bucket=BUCKET, Key=KEY, Body=b"one", Metadata=said)
    with pytest.raises(Damaged):
        guard.put(BUCKET, KEY, b"two", offer(99))
    with pytest.raises(Damaged):
        guard.get(BUCKET, KEY, offer(99))


def test_sizes_are_bounded(store: Any) -> None:
    """Of what is put, and of what is read."""
    small = Guard(store, size_max=4)
    small.put(BUCKET, KEY, b"1234", offer(5))
    with pytest.raises(LimitExceeded):
        small.put(BUCKET, KEY, b"12345", offer(5))
    store.put_object(Bucket=BUCKET, Key=KEY, Body=b"x" * 1_000)
    with pytest.raises(LimitExceeded):
        small.get(BUCKET, KEY, offer(5))


def test_a_write_that_was_not_answered_is_left_open(store: Any) -> None:
    """It may be done: `OutcomeUnknown`. A read that was not answered did nothing."""

    def unanswered(real: Callable[..., Any], **words: Any) -> Any:
        real(**words)
        raise ReadTimeoutError(endpoint_url="x")

    with pytest.raises(OutcomeUnknown):
        Guard(Between(store, put_object=unanswered)).put(BUCKET, KEY, b"one", offer(5))
    assert body(store) == b"one"
    with pytest.raises(Unavailable):
        Guard(Between(store, head_object=unanswered)).put(BUCKET, KEY, b"two", offer(5))


def refusal(status: int, code: str, repeated: int = 0) -> ClientError:
    said = {"HTTPStatusCode": status, "RetryAttempts": repeated}
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": said}, "PutObject")


def test_a_write_that_botocore_has_repeated_is_known_by_its_stamp(guard: Guard, store: Any) -> None:
    """The first was done, the second found its condition false. If that cannot be told any more, it is open."""

    def repeated(real: Callable[..., Any], **words: Any) -> Any:
        real(**words)
        raise refusal(412, "PreconditionFailed", 1)

    def overtaken(real: Callable[..., Any], **words: Any) -> Any:
        real(**words)
        guard.put(BUCKET, KEY, b"over it", offer(5))
        raise refusal(412, "PreconditionFailed", 1)

    Guard(Between(store, put_object=repeated)).put(BUCKET, KEY, b"one", offer(5))
    assert body(store) == b"one"
    with pytest.raises(OutcomeUnknown):
        Guard(Between(store, put_object=overtaken)).put(BUCKET, KEY, b"two", offer(5))
    assert body(store) == b"over it"


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (500, "InternalError", OutcomeUnknown),
        (503, "SlowDown", OutcomeUnknown),
        (501, "NotImplemented", Unsupported),
        (403, "AccessDenied", PermissionDenied),
        (400, "InvalidRequest", ClientError),
    ],
)
def test_each_refusal_says_what_it_means(store: Any, status: int, code: str, error: type[Exception]) -> None:
    """What a store answers to a PUT."""

    def refused(real: Callable[..., Any], **words: Any) -> Any:
        raise refusal(status, code)

    with pytest.raises(error):
        Guard(Between(store, put_object=refused)).put(BUCKET, KEY, b"one", offer(5))


def test_a_conflict_is_tried_again(store: Any) -> None:
    """409: two wrote at the same moment, and neither was to be."""
    left = [refusal(409, "ConditionalRequestConflict")]

    def conflict(real: Callable[..., Any], **words: Any) -> Any:
        if left:
            raise left.pop()
        return real(**words)

    Guard(Between(store, put_object=conflict)).put(BUCKET, KEY, b"one", offer(5))
    assert body(store) == b"one"


def test_a_store_that_ignores_conditions_is_found_out(store: Any) -> None:
    """In front of such a one, a guard would guard nothing."""
    Guard(store).probe(BUCKET)

    def ignoring(real: Callable[..., Any], **words: Any) -> Any:
        words.pop("IfMatch", None)
        words.pop("IfNoneMatch", None)
        return real(**words)

    with pytest.raises(Unsupported, match="IfNoneMatch"):
        Guard(Between(store, put_object=ignoring)).probe(BUCKET)
    assert "Contents" not in store.list_objects_v2(Bucket=BUCKET)


def test_a_store_that_is_not_there_was_not_written() -> None:
    """Nothing was sent that writes."""
    gone = client_at(f"http://127.0.0.1:{free_port()}", retries={"total_max_attempts": 1})
    with pytest.raises(Unavailable):
        Guard(gone).put(BUCKET, KEY, b"one", offer(5))
    gone.close()


def test_whoever_reads_gzip_by_http_sees_what_was_put(store: Any, endpoint: str) -> None:
    """And after `enter`, and in another form, too."""
    guard = Guard(store, form="gzip")
    guard.put(BUCKET, KEY, b"text " * 100, offer(5), ContentType="text/plain")
    guard.enter(BUCKET, KEY, offer(6))
    url = store.generate_presigned_url("get_object", Params={"Bucket": BUCKET, "Key": KEY})
    with urllib.request.urlopen(url) as answer:
        assert answer.headers["Content-Encoding"] == "gzip"
        data = answer.read()
    assert gzip.decompress(data) == unwrap(data) == b"text " * 100
    assert len(data) < 200
    assert Guard(store).get(BUCKET, KEY, offer(7)) == b"text " * 100
    assert "ContentEncoding" not in store.head_object(Bucket=BUCKET, Key=KEY)


@pytest.mark.parametrize("form", FORMS)
def test_what_is_wrapped_comes_out_the_same(form: Form) -> None:
    """And no two are the same."""
    for what in (b"", b"\n", b"text\n", bytes(range(256)) * 40):
        made = [wrap(form, what, Stamp(2**63 - 1, draw)) for draw in ("a" * 32, "b" * 32)]
        assert [unwrap(each) for each in made] == [what, what]
        assert made[0] != made[1]


def test_what_is_not_whole_is_not_unwrapped() -> None:
    """Rather an error than a part."""
    for broken in (b"", b"plain", wrap("gzip", b"text", Stamp(1, "a"))[:-3]):
        with pytest.raises(Damaged):
            unwrap(broken)


def versions(client: Any) -> list[int]:
    """The fences of all that was ever written, in its order."""
    pages = client.get_paginator("list_object_versions").paginate(Bucket=VERSIONED, Prefix=KEY)
    found = [version for page in pages for version in page["Versions"]]
    return [
        int(client.head_object(Bucket=VERSIONED, Key=KEY, VersionId=version["VersionId"])["Metadata"]["fence"])
        for version in reversed(found)
    ]


@pytest.mark.slow
def test_of_many_writers_the_accepted_never_go_back_and_none_is_lost(client: Any) -> None:
    """32 writers: the versions that the bucket has kept are in order, and just those that were accepted."""
    client.create_bucket(Bucket=VERSIONED)
    client.put_bucket_versioning(Bucket=VERSIONED, VersioningConfiguration={"Status": "Enabled"})
    chance = random.Random(7)
    fences = iter(sorted((n // 6 + 1 for n in range(WRITES)), key=lambda fence: fence + chance.uniform(0, 3)))
    turn, accepted, failed = threading.Lock(), list[int](), list[Exception]()

    def write() -> None:
        guard = Guard(client, attempts=100)
        while True:
            with turn:
                fence = next(fences, None)
            if fence is None:
                return
            try:
                guard.put(VERSIONED, KEY, b"the same from all", offer(fence))
            except StaleFence:
                continue
            except Exception as error:
                failed.append(error)
            else:
                accepted.append(fence)

    at_once(WRITERS, write)
    written = versions(client)
    assert failed == []
    assert written == sorted(accepted)
    assert 10 < len(written) < WRITES
