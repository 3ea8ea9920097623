"""The sending side: a fence on every request, none without a hold, and a refusal that is heard."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
import requests

import fencehold
from fencehold import HoldLost, NotOwner, StaleFence, UsageError
from fencehold.guards import Offer
from fencehold.guards.http import FenceMiddleware, Receive, Scope, Send
from fencehold.guards.http_client import FenceAuth, fence_headers, raise_for_stale
from fencehold.guards.http_headers import read, written
from fencehold.guards.http_problems import STALE, malformed, stale
from fencehold.guards.marks import MemoryMarks

PROBLEM = {"content-type": "application/problem+json"}


@pytest.fixture(scope="module")
def client() -> Iterator[fencehold.Client]:
    with fencehold.connect("memory://") as client:
        yield client


class Door:
    """A guarded application, and what reached it."""

    def __init__(self) -> None:
        self.offers: list[Offer] = []
        self.door = FenceMiddleware(self._app, MemoryMarks())

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.offers.append(scope["fencehold.offer"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def post(self, auth: FenceAuth) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(self.door), auth=auth) as http:
            return await http.post("http://door/")


@pytest.fixture
def heard() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A plain HTTP server, and the headers that it was sent."""
    sent: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(dict(self.headers))
            problem = stale(StaleFence(name="wallet:7", fence=7, mark=8))
            self.send_response(problem.status)
            for key, value in problem.headers:
                self.send_header(key.decode(), value.decode())
            self.end_headers()
            self.wfile.write(problem.body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", sent
    server.shutdown()
    thread.join()
    server.server_close()


# What is sent.


async def test_the_fence_of_a_hold_arrives_at_the_application(client: fencehold.Client) -> None:
    """Through httpx and the door, to the letter."""
    door = Door()
    with client.lock("wallet:é %/7") as hold:
        assert (await door.post(FenceAuth(hold))).status_code == 204
        assert door.offers == [Offer("wallet:é %/7", hold.fence)]


def test_without_a_hold_given_it_is_the_current_one(client: fencehold.Client) -> None:
    """One `FenceAuth` for the life of an HTTP client, whichever lock it is used under."""
    door, auth = Door(), FenceAuth()
    with client.lock("a") as first:
        asyncio.run(door.post(auth))
        with client.lock("b") as second:
            asyncio.run(door.post(auth))
    assert door.offers == [Offer("a", first.fence), Offer("b", second.fence)]


async def test_in_an_event_loop_the_current_hold_is_that_of_the_task() -> None:
    """Two tasks with one HTTP client send each its own."""
    door, auth = Door(), FenceAuth()

    async def post(client: fencehold.aio.Client, name: str) -> Offer:
        async with client.lock(name) as hold:
            await door.post(auth)
            return Offer(name, hold.fence)

    async def main() -> list[Offer]:
        async with fencehold.aio.connect("memory://") as client:
            return list(await asyncio.gather(post(client, "a"), post(client, "b")))

    assert sorted(await main()) == sorted(door.offers)


def test_requests_sends_it_and_hears_the_refusal(
    client: fencehold.Client, heard: tuple[str, list[dict[str, str]]]
) -> None:
    """The same object is an auth of requests, for a call and for a session."""
    url, sent = heard
    with client.lock("wallet:7") as hold, requests.Session() as session:
        session.auth = FenceAuth()
        for answer in (session.post(url, timeout=5), requests.post(url, auth=FenceAuth(hold), timeout=5)):
            with pytest.raises(StaleFence, match="fence 7 is stale"):
                raise_for_stale(answer)
    assert [(each["Fencehold-Name"], each["Fencehold-Fence"]) for each in sent] == [
        ("wallet:7", str(hold.fence))
    ] * 2


def test_httpx_without_await_sends_it_and_hears_the_refusal(
    client: fencehold.Client, heard: tuple[str, list[dict[str, str]]]
) -> None:
    """And of httpx's blocking client."""
    url, sent = heard
    with client.lock("wallet:7"), httpx.Client(auth=FenceAuth()) as http:
        answer = http.post(url)
    with pytest.raises(StaleFence) as refused:
        raise_for_stale(answer)
    assert (refused.value.name, refused.value.fence, refused.value.mark) == ("wallet:7", 7, 8)
    assert sent[0]["Fencehold-Name"] == "wallet:7"


def test_of_several_names_one_is_said(client: fencehold.Client) -> None:
    """A hold on two names is sent for the one that is meant, and for none by chance."""
    with client.multi(["a", "b"]) as hold:
        assert fence_headers(hold, name="b") == {"Fencehold-Name": "b", "Fencehold-Fence": str(hold.fence)}
        with pytest.raises(UsageError, match="give name=, one of a, b"):
            fence_headers()
        with pytest.raises(UsageError, match="not of 'c'"):
            fence_headers(name="c")


def test_a_fence_that_came_from_elsewhere_is_sent_as_it_is() -> None:
    """A command that was given its fence by `fencehold run` has no hold to ask."""
    assert fence_headers(Offer("a", 7)) == {"Fencehold-Name": "a", "Fencehold-Fence": "7"}


@pytest.mark.parametrize(
    "name", ["wallet:7", "é", "a b", "100%", "line\nbreak", '"quoted"', "日本" * 80, "\x00", " "]
)
def test_every_name_can_be_sent(name: str) -> None:
    """What is written is ASCII, and is read as what it was."""
    offer = Offer(name, 2**63 - 1)
    said = written(offer)
    assert all(value.isascii() and value.isprintable() for value in said.values())
    assert read([(key.encode(), value.encode()) for key, value in said.items()]) == offer


# What is not sent.


def nothing_is_sent(auth: FenceAuth, error: type[Exception], match: str) -> None:
    door = Door()
    with pytest.raises(error, match=match):
        asyncio.run(door.post(auth))
    assert door.offers == []


def test_without_a_hold_nothing_is_sent() -> None:
    """Outside of any body there is no fence to send."""
    nothing_is_sent(FenceAuth(), UsageError, "there is no hold here")


def test_under_a_claim_nothing_is_sent(client: fencehold.Client) -> None:
    """A claim has no fence."""
    with client.lock("a") as hold:
        claim = fencehold.Claim(hold._portal, hold._grant)
        nothing_is_sent(FenceAuth(claim), UsageError, "has no fence")  # type: ignore[arg-type]


def test_a_hold_that_was_released_is_not_sent(client: fencehold.Client) -> None:
    """It is nobody's any more."""
    hold = client.lock("a").acquire_or_raise()
    hold.release()
    nothing_is_sent(FenceAuth(hold), NotOwner, "released")


def test_a_hold_that_is_lost_is_not_sent(client: fencehold.Client) -> None:
    """The request would be refused, or, worse, not be."""
    hold = client.lock("a", ttl=0.05).acquire_or_raise()
    assert hold.lost.wait(5)
    nothing_is_sent(FenceAuth(hold), HoldLost, "lost")


# What is heard.


def test_the_greatest_mark_is_heard_exactly() -> None:
    """Python's numbers are whole, whatever their size."""
    problem = stale(StaleFence(name="é", fence=2**63 - 2, mark=2**63 - 1))
    with pytest.raises(StaleFence) as refused:
        raise_for_stale(httpx.Response(412, headers=PROBLEM, content=problem.body))
    assert (refused.value.name, refused.value.fence, refused.value.mark) == ("é", 2**63 - 2, 2**63 - 1)


def test_a_refusal_in_other_words_is_heard() -> None:
    """Another server may write its numbers as text, leave some out, and name a charset."""
    said = {"type": STALE, "fence": "7", "mark": "more"}
    headers = {"content-type": "Application/Problem+JSON; charset=utf-8"}
    with pytest.raises(StaleFence) as refused:
        raise_for_stale(httpx.Response(412, headers=headers, json=said))
    assert (refused.value.name, refused.value.fence, refused.value.mark) == ("", 7, 0)


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(200),
        httpx.Response(412),
        httpx.Response(412, headers={"content-type": "application/json"}, json={"type": STALE}),
        httpx.Response(412, headers=PROBLEM, json={"type": "about:blank"}),
        httpx.Response(412, headers=PROBLEM, json=[STALE]),
        httpx.Response(412, headers=PROBLEM, content=b"\xff{"),
        httpx.Response(400, headers=PROBLEM, content=malformed("no").body),
        httpx.Response(500, headers=PROBLEM, json={"type": STALE}),
    ],
)
def test_any_other_answer_is_not_about_the_fence(answer: httpx.Response) -> None:
    """A 412 may be about an ETag; it is left to `raise_for_status`."""
    raise_for_stale(answer)
