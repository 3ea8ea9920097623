"""The guard at the door: what passes, what is refused and how; under each framework that speaks ASGI."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from fencehold import StaleFence
from fencehold.errors import OutcomeUnknown, Unavailable
from fencehold.guards import Offer
from fencehold.guards.http import App, FenceMiddleware, GuardMarks, Message, Receive, Scope, Send
from fencehold.guards.http_problems import CONTENT_TYPE
from fencehold.guards.marks import MarkStore, MemoryMarks

URN = "urn:fencehold:problem:"


class Wallet:
    """An application that writes down what reached it."""

    def __init__(self, fails: Exception | None = None, *, late: bool = False) -> None:
        self.offers: list[object] = []
        self._fails = fails
        self._late = late

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.offers.append(scope.get("fencehold.offer"))
        if self._fails and not self._late:
            raise self._fails
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if self._fails:
            raise self._fails
        await send({"type": "http.response.body", "body": b"done"})


def headers(name: str | bytes | None = "wallet:7", fence: int | str | bytes | None = 7) -> list[tuple[Any, Any]]:
    said = [("Fencehold-Name", name), ("Fencehold-Fence", str(fence) if isinstance(fence, int) else fence)]
    return [(key, value) for key, value in said if value is not None]


def ask(app: App, sent: list[tuple[Any, Any]], method: str = "POST", path: str = "/") -> httpx.Response:
    async def once() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            return await client.request(method, f"http://door{path}", headers=sent)

    return asyncio.run(once())


def refused(answer: httpx.Response) -> tuple[int, str]:
    """The status and the type of a refusal, which must look like one."""
    assert answer.headers["content-type"] == CONTENT_TYPE
    assert answer.headers["cache-control"] == "no-store"
    said = answer.json()
    assert said["status"] == answer.status_code
    assert said["title"]
    assert said["detail"]
    return answer.status_code, said["type"].removeprefix(URN)


# What passes, and what is stale.


def test_equal_and_greater_fences_pass_and_a_smaller_one_is_refused() -> None:
    """The same holder passes as often as it likes; the next one raises the mark; the first is stale then."""
    wallet = Wallet()
    door = FenceMiddleware(wallet, MemoryMarks())
    assert [ask(door, headers(fence=fence)).status_code for fence in (7, 7, 9, 8, 9)] == [200, 200, 200, 412, 200]
    assert wallet.offers == [Offer("wallet:7", fence) for fence in (7, 7, 9, 9)]


def test_a_stale_request_is_told_name_fence_and_mark() -> None:
    """The problem says all that a client needs to know that it must stop."""
    door = FenceMiddleware(Wallet(), MemoryMarks())
    ask(door, headers(fence=9))
    answer = ask(door, headers(fence=7))
    assert refused(answer) == (412, "stale-fence")
    assert answer.json() == {
        "type": f"{URN}stale-fence",
        "title": "The fence is stale",
        "status": 412,
        "detail": "'wallet:7': fence 7 is stale, the resource has seen 9",
        "name": "wallet:7",
        "fence": 7,
        "mark": 9,
    }


def test_names_have_marks_of_their_own() -> None:
    """A greater fence of one name says nothing of another."""
    door = FenceMiddleware(Wallet(), MemoryMarks())
    assert ask(door, headers("a", 9)).status_code == 200
    assert ask(door, headers("b", 3)).status_code == 200


def test_a_read_with_a_fence_raises_the_mark() -> None:
    """A new holder that reads first has entered: a late write of the old one is refused."""
    door = FenceMiddleware(Wallet(), MemoryMarks(), safe_methods_pass=True)
    assert ask(door, headers(fence=8), "GET").status_code == 200
    assert refused(ask(door, headers(fence=7))) == (412, "stale-fence")


@pytest.mark.parametrize("fence", [1, 2**53 + 1, 2**63 - 1])
def test_fences_are_exact_up_to_the_greatest(fence: int) -> None:
    """No number is rounded on its way to the application."""
    wallet = Wallet()
    assert ask(FenceMiddleware(wallet, MemoryMarks()), headers(fence=fence)).status_code == 200
    assert wallet.offers == [Offer("wallet:7", fence)]


# Without a fence.


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_request_without_a_fence_is_refused(method: str) -> None:
    """Required is the default, for every method."""
    wallet = Wallet()
    answer = ask(FenceMiddleware(wallet, MemoryMarks()), [], method)
    assert refused(answer) == (428, "no-fence")
    assert wallet.offers == []


@pytest.mark.parametrize(("method", "status"), [("GET", 200), ("HEAD", 200), ("OPTIONS", 200), ("DELETE", 428)])
def test_safe_methods_pass_without_a_fence_if_asked_to(method: str, status: int) -> None:
    """What only reads may do without; what writes may not."""
    door = FenceMiddleware(Wallet(), MemoryMarks(), safe_methods_pass=True)
    assert ask(door, [], method).status_code == status


def test_where_no_fence_is_required_one_that_is_sent_counts() -> None:
    """A request without passes with no offer; a stale one does not pass."""
    wallet = Wallet()
    door = FenceMiddleware(wallet, MemoryMarks(), required=False)
    assert ask(door, headers(fence=9)).status_code == 200
    assert ask(door, []).status_code == 200
    assert ask(door, headers(fence=8)).status_code == 412
    assert wallet.offers == [Offer("wallet:7", 9), None]


# Malformed.


@pytest.mark.parametrize(
    "sent",
    [
        headers(fence=None),
        headers(name=None),
        headers() + headers(),
        headers() + headers(name=None),
        headers(fence=0),
        headers(fence="-7"),
        headers(fence="+7"),
        headers(fence="07"),
        headers(fence="7.0"),
        headers(fence="7,8"),
        headers(fence="0x7"),
        headers(fence="1e3"),
        headers(fence="7_000"),
        headers(fence=2**63),
        headers(fence="9" * 5_000),
        headers(fence="٧".encode()),
        headers(fence=""),
        headers(name=""),
        headers(name="a b"),
        headers(name="é".encode()),
        headers(name="a%"),
        headers(name="a%zz"),
        headers(name="%ff"),
        headers(name="x" * 513),
        headers(name="%C3%A9" * 257),
        headers(name="%41" * 600),
    ],
)
def test_what_cannot_be_read_is_refused(sent: list[tuple[Any, Any]]) -> None:
    """Nothing is guessed, and nothing of it reaches the application, required or not."""
    for required in (True, False):
        wallet = Wallet()
        answer = ask(FenceMiddleware(wallet, MemoryMarks(), required=required), sent)
        assert refused(answer) == (400, "malformed-fence")
        assert wallet.offers == []


def test_the_longest_name_passes() -> None:
    """The bound is on the name, not on how it is written."""
    wallet = Wallet()
    assert ask(FenceMiddleware(wallet, MemoryMarks()), headers("%C3%A9" * 256)).status_code == 200
    assert wallet.offers == [Offer("é" * 256, 7)]


def test_a_fence_of_another_name_is_refused() -> None:
    """Where the application says which name is meant, the fence of another does not open the door."""
    door = FenceMiddleware(Wallet(), MemoryMarks(), expects=lambda scope: f"wallet:{scope['path'][1:]}")
    assert ask(door, headers("wallet:7"), path="/7").status_code == 200
    answer = ask(door, headers("wallet:7", 10**6), path="/8")
    assert refused(answer) == (400, "malformed-fence")
    assert "'wallet:8'" in answer.json()["detail"]


# The marks.


class Failing:
    """Marks that cannot be asked."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def raise_to(self, name: str, fence: int) -> int:
        raise self._error


@pytest.mark.parametrize("error", [Unavailable("secret"), OutcomeUnknown("secret")])
def test_nobody_passes_while_the_marks_cannot_be_asked(error: Exception) -> None:
    """Not known is not fresh. Why is not told to the caller."""
    wallet = Wallet()
    answer = ask(FenceMiddleware(wallet, Failing(error)), headers())
    assert refused(answer) == (503, "no-mark")
    assert "secret" not in answer.text
    assert wallet.offers == []


def test_marks_that_are_full_refuse_new_names_and_keep_the_old() -> None:
    """No mark is ever dropped to make room."""
    door = FenceMiddleware(Wallet(), MemoryMarks(names_max=1))
    assert ask(door, headers("a", 9)).status_code == 200
    assert refused(ask(door, headers("b", 9))) == (503, "no-mark")
    assert refused(ask(door, headers("a", 8))) == (412, "stale-fence")


def test_a_strict_store_refuses_a_name_it_does_not_know() -> None:
    """A name that was misspelt has no mark, and does not pass as if it had."""
    marks = MemoryMarks(strict=True)
    marks.register("wallet:7")
    door = FenceMiddleware(Wallet(), marks)
    assert ask(door, headers("wallet:7")).status_code == 200
    answer = ask(door, headers("wallet:8"))
    assert refused(answer) == (400, "unknown-name")
    assert "has no mark" in answer.json()["detail"]


def test_another_guard_may_keep_the_marks() -> None:
    """What its `enter` refuses is refused at the door."""
    entered = []

    async def enter(offer: Offer) -> None:
        entered.append(offer)
        if offer.fence < 9:
            raise StaleFence(name=offer.name, fence=offer.fence, mark=9)

    marks: MarkStore = GuardMarks(enter)
    door = FenceMiddleware(Wallet(), marks)
    assert ask(door, headers(fence=9)).status_code == 200
    answer = ask(door, headers(fence=8))
    assert (refused(answer), answer.json()["mark"]) == ((412, "stale-fence"), 9)
    assert entered == [Offer("wallet:7", 9), Offer("wallet:7", 8)]


# The application's own guard.


def test_what_the_application_refuses_as_stale_is_a_412() -> None:
    """Overtaken between the door and the write, a request is answered as one that was late at the door."""
    error = StaleFence(name="wallet:7", fence=7, mark=8)
    answer = ask(FenceMiddleware(Wallet(error), MemoryMarks()), headers())
    assert (refused(answer), answer.json()["mark"]) == ((412, "stale-fence"), 8)


def test_a_response_that_has_begun_is_not_answered_again() -> None:
    """Then the error is the server's to handle."""
    error = StaleFence(name="wallet:7", fence=7, mark=8)
    with pytest.raises(StaleFence):
        ask(FenceMiddleware(Wallet(error, late=True), MemoryMarks()), headers())


def test_other_errors_of_the_application_are_not_touched() -> None:
    """The door knows of fences only."""
    with pytest.raises(ZeroDivisionError):
        ask(FenceMiddleware(Wallet(ZeroDivisionError()), MemoryMarks()), headers())


# Not HTTP.


def send_scope(app: App, scope: Scope) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def once() -> None:
        await app(scope, receive, send)

    asyncio.run(once())
    return sent


def test_a_websocket_without_a_fence_is_closed() -> None:
    """A handshake is a GET, but what comes after it may write: it is not safe."""
    door = FenceMiddleware(Wallet(), MemoryMarks(), safe_methods_pass=True)
    sent = send_scope(door, {"type": "websocket", "headers": []})
    assert sent == [{"type": "websocket.close", "code": 1008, "reason": "A fence is required"}]


def test_a_websocket_is_told_the_problem_where_the_server_can() -> None:
    """Servers with the extension answer the handshake."""
    scope = {"type": "websocket", "headers": [], "extensions": {"websocket.http.response": {}}}
    start, body = send_scope(FenceMiddleware(Wallet(), MemoryMarks()), scope)
    assert (start["type"], start["status"]) == ("websocket.http.response.start", 428)
    assert json.loads(body["body"])["type"] == f"{URN}no-fence"


def test_the_start_of_the_server_passes() -> None:
    """Lifespan events are no requests."""
    wallet = Wallet()
    send_scope(FenceMiddleware(wallet, MemoryMarks()), {"type": "lifespan"})
    assert wallet.offers == [None]


# Frameworks.


def starlette_app() -> App:
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.middleware import Middleware  # noqa: PLC0415
    from starlette.requests import Request  # noqa: PLC0415
    from starlette.responses import JSONResponse  # noqa: PLC0415
    from starlette.routing import Route  # noqa: PLC0415

    async def debit(request: Request) -> JSONResponse:
        offer = request.scope["fencehold.offer"]
        if request.url.path == "/overtaken":
            raise StaleFence(name=offer.name, fence=offer.fence, mark=offer.fence + 1)
        return JSONResponse({"name": offer.name, "fence": offer.fence})

    return Starlette(
        routes=[Route("/{rest:path}", debit, methods=["POST"])],
        middleware=[Middleware(FenceMiddleware, marks=MemoryMarks())],
    )


def fastapi_app() -> App:
    from fastapi import FastAPI, Request  # noqa: PLC0415

    app = FastAPI()
    app.add_middleware(FenceMiddleware, marks=MemoryMarks())

    async def debit(request: Request) -> dict[str, object]:
        offer = request.scope["fencehold.offer"]
        return {"name": offer.name, "fence": offer.fence}

    async def overtaken(request: Request) -> None:
        offer = request.scope["fencehold.offer"]
        raise StaleFence(name=offer.name, fence=offer.fence, mark=offer.fence + 1)

    # The annotations are of this function, where FastAPI would not find them as text.
    app.post("/debit")(debit)
    app.post("/overtaken")(overtaken)
    return app


def django_app() -> App:
    import django  # noqa: PLC0415
    from django.conf import settings  # noqa: PLC0415
    from django.core.asgi import get_asgi_application  # noqa: PLC0415

    if not settings.configured:
        settings.configure(
            ROOT_URLCONF="tests.unit.guards.http_django",
            ALLOWED_HOSTS=["door"],
            SECRET_KEY="for tests",
            MIDDLEWARE=["tests.unit.guards.http_django.StaleMiddleware"],
        )
        django.setup()
    return FenceMiddleware(get_asgi_application(), MemoryMarks())


@pytest.fixture(params=[starlette_app, fastapi_app, django_app])
def framework(request: pytest.FixtureRequest) -> App:
    """The same small application, in each of them."""
    app: App = request.param()
    return app


def test_the_door_works_in_a_framework(framework: App) -> None:
    """The handler finds the offer; a stale request, one without a fence and a malformed one do not get there."""
    answer = ask(framework, headers("wallet:é".encode().replace(b"\xc3\xa9", b"%C3%A9"), 9), path="/debit")
    assert (answer.status_code, answer.json()) == (200, {"name": "wallet:é", "fence": 9})
    assert refused(ask(framework, headers("wallet:%C3%A9", 8), path="/debit")) == (412, "stale-fence")
    assert refused(ask(framework, [], path="/debit")) == (428, "no-fence")
    assert refused(ask(framework, headers(fence="x"), path="/debit")) == (400, "malformed-fence")


def test_a_handler_that_finds_itself_overtaken_raises_and_the_client_is_told(framework: App) -> None:
    """The guard at the data raises `StaleFence`; what arrives is the same 412."""
    answer = ask(framework, headers(fence=7), path="/overtaken")
    assert refused(answer) == (412, "stale-fence")
    assert (answer.json()["fence"], answer.json()["mark"]) == (7, 8)
