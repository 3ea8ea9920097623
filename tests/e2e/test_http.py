"""The HTTP listener: a real server, a listener in a process of its own, and requests as scripts send them."""

import contextlib
import json
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from fencehold.doors.http.table import OPERATIONS
from rig.processes import accepts, free_port
from tests.e2e.grpc_client import door
from tests.e2e.served import Served, ended, start, until


@pytest.fixture(scope="module")
def port(server: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with door(tmp_path_factory.mktemp("door"), "http", server.url) as chosen:
        yield chosen


@pytest.fixture(scope="module")
def http(port: int) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
        yield client


@pytest.fixture
def lock(request: pytest.FixtureRequest) -> str:
    return f"/v1/locks/{request.node.name}"


def acquired(http: httpx.Client, lock: str, **said: Any) -> dict[str, Any]:
    answer = http.post(lock, json={"ttl_ms": 20_000, **said})
    assert answer.status_code == 200, answer.text
    hold: dict[str, Any] = answer.json()["hold"]
    return hold


def reason(answer: httpx.Response) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["reason"]


def test_a_script_holds_a_lock_over_several_calls(port: int, lock: str) -> None:
    """By nothing but curl: acquire, extend and release by the fence."""

    def curl(*words: str) -> Any:
        command = ["curl", "--silent", "--show-error", "--fail-with-body", *words]
        ended = subprocess.run(command, capture_output=True, text=True, check=True)
        return json.loads(ended.stdout) if ended.stdout else None

    url = f"http://127.0.0.1:{port}{lock}"
    fence = curl(url, "--json", '{"ttl_ms": 20000, "meta": {"job": "nightly"}}')["hold"]["fence"]
    assert curl(url)["holders"][0]["meta"] == {"job": "nightly"}
    curl(url, "--json", f'{{"fence": {fence}, "ttl_ms": 9000}}', "--request", "PATCH")
    assert curl(f"{url}?fence={fence}", "--request", "DELETE") is None
    assert curl(url)["is_taken"] is False


def test_a_name_may_have_slashes_and_line_ends(http: httpx.Client) -> None:
    """All of it is the name."""
    path = "/v1/locks/a%2Fb%0D%0Ac%0A"
    hold = acquired(http, path)
    assert hold["names"] == ["a/b\r\nc\n"]
    assert http.get(path).json()["is_taken"]
    assert http.delete(path, params={"fence": hold["fence"]}).status_code == 204


def test_not_acquired_in_time_says_who_has_it(http: httpx.Client, lock: str) -> None:
    """As a conflict, with a reason; nothing waits behind it."""
    acquired(http, lock)
    answer = http.post(lock, json={"ttl_ms": 1_000, "wait_ms": 20})
    assert reason(answer) == (409, "NOT_ACQUIRED")
    assert "is held by" in answer.json()["detail"]
    assert http.get(lock).json()["waiter_count"] == 0


def test_fences_grow_and_a_release_is_told_why_it_cannot_be(http: httpx.Client, lock: str) -> None:
    """Released before, another's, or run out."""
    first = acquired(http, lock)
    assert http.delete(lock, params={"fence": first["fence"]}).status_code == 204
    assert reason(http.delete(lock, params={"fence": first["fence"]})) == (409, "ALREADY_RELEASED")
    second = acquired(http, lock, ttl_ms=60)
    assert second["fence"] > first["fence"]
    until(lambda: not http.get(lock).json()["is_taken"])
    assert reason(http.delete(lock, params={"fence": second["fence"]})) == (409, "EXPIRED")
    assert reason(http.delete(lock, params={"fence": second["fence"] + 1000})) == (409, "NOT_OWNER")
    assert reason(http.delete(lock)) == (400, "USAGE")


def test_a_request_that_is_given_up_is_withdrawn(http: httpx.Client, lock: str) -> None:
    """The client goes while it waits: its place in the queue goes with it."""
    acquired(http, lock)
    with ThreadPoolExecutor(1) as pool, httpx.Client(base_url=http.base_url, timeout=0.5) as other:
        waiting = pool.submit(other.post, lock, json={"ttl_ms": 1_000, "wait_ms": 60_000})
        until(lambda: http.get(lock).json()["waiter_count"] == 1)
        with pytest.raises(httpx.TimeoutException):
            waiting.result()
        until(lambda: http.get(lock).json()["waiter_count"] == 0)


def test_a_request_is_acted_upon_once(http: httpx.Client, lock: str) -> None:
    """Repeated under its id it has the same answer."""
    assert acquired(http, lock, request_id="r")["fence"] == acquired(http, lock, request_id="r")["fence"]


def test_shared_permits_several_and_the_other_tier(http: httpx.Client, lock: str) -> None:
    """All that a lock can be."""
    name = lock.rpartition("/")[2]
    for _ in range(2):
        acquired(http, lock, mode="shared")
        acquired(http, f"{lock}-permits", permits=2)
    assert http.post(f"{lock}-permits", json={"ttl_ms": 1_000, "permits": 2}).status_code == 409
    claim = acquired(http, f"{lock}-claim", tier="efficiency")
    assert claim["fence"] is None
    assert http.delete(f"{lock}-claim", params={"hold_id": claim["hold_id"]}).status_code == 204
    several = {"names": [f"{name}-a", f"{name}/b"], "ttl_ms": 9_000}
    hold = http.post("/v1/multi", json=several).json()["hold"]
    assert hold["names"] == [f"{name}-a", f"{name}/b"]
    assert http.delete(f"{lock}/b", params={"fence": hold["fence"]}).status_code == 204


def test_an_operator_breaks_a_hold(http: httpx.Client, lock: str) -> None:
    """The answer is above every fence it was held with."""
    hold = acquired(http, lock)
    broken = http.post(lock.replace("locks", "break", 1), json={"fence": hold["fence"]})
    assert broken.json()["fence"] > hold["fence"]
    assert http.get(lock).json()["is_taken"] is False


def test_names_and_sessions_are_listed(http: httpx.Client, lock: str) -> None:
    """In pages, as they are in the service."""
    name = lock.rpartition("/")[2]
    for at in range(3):
        acquired(http, f"{lock}:{at}")
    first = http.get("/v1/locks", params={"prefix": f"{name}:", "page_size": 2}).json()
    more = {"prefix": f"{name}:", "page_token": first["next_page_token"]}
    told = first["locks"] + http.get("/v1/locks", params=more).json()["locks"]
    assert [each["name"] for each in told] == [f"{name}:{at}" for at in range(3)]
    assert any("fencehold-http" in each["meta"] for each in http.get("/v1/sessions").json()["sessions"])
    assert http.get("/v1/cluster").json()["role"] == "leader"


def test_events_are_streamed_and_resumed(http: httpx.Client, lock: str) -> None:
    """After the event that the client read last, as browsers do by themselves."""
    prefix = {"prefix": lock.rpartition("/")[2]}
    # Something has happened: there is a place to go on from.
    acquired(http, "/v1/locks/before")
    with http.stream("GET", "/v1/events", params=prefix) as stream:
        lines = stream.iter_lines()
        assert next(lines).startswith(": from")
        # One that nothing was told on can be resumed as well.
        key, _, begun = next(lines).partition(": ")
        assert key == "id"
        hold = acquired(http, lock)
        told = _event(lines)
    with http.stream("GET", "/v1/events", params=prefix, headers={"last-event-id": begun}) as stream:
        assert _event(stream.iter_lines()) == told
    assert told["event"] == "acquired"
    assert json.loads(told["data"])["fence"] == hold["fence"]
    http.delete(lock, params={"fence": hold["fence"]})
    with http.stream("GET", "/v1/events", params=prefix, headers={"last-event-id": told["id"]}) as stream:
        assert _event(stream.iter_lines())["event"] == "released"
    assert reason(http.get("/v1/events", headers={"last-event-id": "x"})) == (400, "USAGE")


def _event(lines: Iterator[str]) -> dict[str, str]:
    told: dict[str, str] = {}
    for line in lines:
        if not line and "data" in told:
            return told
        key, _, value = line.partition(": ")
        told[key] = value
    raise AssertionError("the stream ended")


def test_health_and_figures(http: httpx.Client) -> None:
    """For whom looks after it."""
    assert http.get("/healthz").json() == {"status": "ok"}
    ready = http.get("/readyz")
    assert (ready.status_code, ready.json()["role"]) == (200, "leader")
    figures = http.get("/metrics").text
    assert "\nfencehold_up 1.0\n" in figures
    assert 'fencehold_http_requests_total{operation="healthz",status="200"} 1.0' in figures
    assert '\nfencehold_position{shard="0"} ' in figures


def test_the_interface_describes_itself(http: httpx.Client) -> None:
    """The document and the page name every operation, and nothing is fetched from elsewhere."""
    described = http.get("/openapi.json").json()
    told = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert told == {(operation.method, operation.path) for operation in OPERATIONS}
    page = http.get("/").text
    assert all(f"{operation.method} {operation.path}" in page for operation in OPERATIONS)
    assert "http://" not in page
    assert "https://" not in page


@pytest.mark.parametrize(
    ("method", "path", "said", "expected"),
    [
        ("POST", "/v1/locks/a", {"json": {}}, (400, "USAGE")),
        ("POST", "/v1/locks/a", {"json": {"ttl_ms": 0}}, (400, "USAGE")),
        ("POST", "/v1/locks/a", {"json": {"ttl_ms": "1"}}, (400, "USAGE")),
        ("POST", "/v1/locks/a", {"json": {"ttl_ms": 1_000, "ttl": 1}}, (400, "USAGE")),
        ("POST", "/v1/locks/a", {"json": {"ttl_ms": 1_000, "mode": "odd"}}, (400, "USAGE")),
        ("POST", "/v1/locks/a", {"json": {"ttl_ms": 1_000, "meta": {"a": 1}}}, (400, "USAGE")),
        ("POST", "/v1/locks/a", {"json": [1]}, (400, "USAGE")),
        ("POST", "/v1/locks/a", {"content": b"\xff{"}, (400, "USAGE")),
        # What is no UTF-8 would all be read as one name.
        ("POST", "/v1/locks/%ff", {"json": {"ttl_ms": 9_000}}, (400, "USAGE")),
        ("GET", "/v1/locks?prefix=%fe", {}, (400, "USAGE")),
        ("POST", "/v1/locks/a", {"content": b'{"ttl_ms": 9000, "owner": "\\uD800"}'}, (400, "USAGE")),
        ("POST", "/v1/multi", {"content": b'{"names": ["\\ud800"], "ttl_ms": 9000}'}, (400, "USAGE")),
        ("POST", "/v1/locks/a", {"content": b"x" * 100_000}, (400, "USAGE")),
        ("POST", "/v1/multi", {"json": {"names": "a", "ttl_ms": 1_000}}, (400, "USAGE")),
        ("POST", "/v1/locks/" + "x" * 300, {"json": {"ttl_ms": 1_000}}, (429, "LIMIT")),
        ("GET", "/v1/locks", {"params": {"page_size": "many"}}, (400, "USAGE")),
        ("GET", "/v1/locks", {"headers": {"authorization": "Digest x"}}, (400, "USAGE")),
        ("GET", "/nothing", {}, (404, "NOT_FOUND")),
        ("PUT", "/v1/locks/a", {}, (405, "METHOD_NOT_ALLOWED")),
    ],
)
def test_what_is_wrong_is_a_problem_with_a_reason(
    http: httpx.Client, method: str, path: str, said: dict[str, Any], expected: tuple[int, str]
) -> None:
    """Nothing happened, and the detail says what is wrong."""
    assert reason(http.request(method, path, **said)) == expected


def test_a_method_that_is_not_here_is_answered_with_those_that_are(http: httpx.Client) -> None:
    """In the header that HTTP has for it, and in words."""
    answer = http.put("/healthz")
    assert set(answer.headers["allow"].split(", ")) == {"GET", "HEAD"}
    assert "GET" in answer.json()["detail"]


def test_headers_have_a_bound(http: httpx.Client, port: int) -> None:
    """A client that sends on and on is cut off, and others are answered."""
    with socket.create_connection(("127.0.0.1", port), 5) as endless:
        endless.sendall(b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * 50_000)
        assert endless.recv(100).startswith(b"HTTP/1.1 4")
    assert http.get("/healthz").status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost:7422"}, 200),
        ({"host": "[::1]"}, 200),
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example:7422"}, 421),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "localhost:1", "origin": "http://localhost:1"}, 200),
        ({"host": "localhost:1", "origin": "http://localhost:2"}, 403),
    ],
)
def test_web_pages_of_others_cannot_use_it(http: httpx.Client, headers: dict[str, str], status: int) -> None:
    """By their origin, or by the name they made to mean this machine."""
    assert http.get("/v1/locks", headers=headers).status_code == status


def test_a_server_goes_on_without_http_if_its_port_is_taken(tmp_path: Path) -> None:
    """And says so; who asked for it is told of an error instead."""
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", 7422)):
        # Another server of this machine may have it: that is taken, too.
        _serves_without_http(tmp_path)
        return
    _serves_without_http(tmp_path)


def _serves_without_http(place: Path) -> None:
    port = free_port()
    process = start("serve", "--memory", "--port", str(port))
    try:
        until(lambda: accepts(port))
    finally:
        process.terminate()
    said = ended(process)
    assert (said.code, "event=listener_left_out kind=http port=7422" in said.err) == (0, True), said
