"""Many requests at once: what the door keeps by itself, what it cannot, and what door and guard keep together."""

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable

from fencehold import StaleFence
from fencehold.guards import Offer
from fencehold.guards.http import App, FenceMiddleware, Message, Receive, Scope, Send
from fencehold.guards.http_headers import written
from fencehold.guards.marks import MemoryMarks
from fencehold.guards.sqlite import Guard

WRITERS, EACH = 32, 313
NAME = "wallet:7"

Write = Callable[[Offer], Awaitable[None]]


def application(write: Write) -> App:
    """Writes what it is asked to, under the offer that passed the door."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await write(scope["fencehold.offer"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return app


async def post(door: App, fence: int) -> int:
    """The status of one request."""
    statuses = []

    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    said = written(Offer(NAME, fence))
    headers = [(key.lower().encode(), value.encode()) for key, value in said.items()]
    await door({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive, send)
    (status,) = statuses
    return int(status)


async def test_a_request_that_passed_the_door_may_be_overtaken_before_it_writes() -> None:
    """Why the handler's own write needs a guard: the door has let the older one in when the newer one comes."""
    written_by: list[int] = []
    goes_on = asyncio.Event()

    async def write(offer: Offer) -> None:
        if offer.fence == 7:
            await goes_on.wait()
        written_by.append(offer.fence)

    door = FenceMiddleware(application(write), MemoryMarks())
    late = asyncio.create_task(post(door, 7))
    await asyncio.sleep(0)
    assert await post(door, 8) == 204
    goes_on.set()
    assert await late == 204
    assert written_by == [8, 7]


async def test_with_a_guard_at_the_data_the_overtaken_request_is_refused() -> None:
    """The same, and the data refuses what the door has let in."""
    goes_on = asyncio.Event()
    marks = {NAME: 0}

    async def write(offer: Offer) -> None:
        if offer.fence == 7:
            await goes_on.wait()
        if offer.fence < marks[NAME]:
            raise StaleFence(name=NAME, fence=offer.fence, mark=marks[NAME])
        marks[NAME] = offer.fence

    door = FenceMiddleware(application(write), MemoryMarks())
    late = asyncio.create_task(post(door, 7))
    await asyncio.sleep(0)
    assert await post(door, 8) == 204
    goes_on.set()
    assert await late == 412
    assert marks == {NAME: 8}


def test_ten_thousand_requests_of_many_writers_never_go_back_and_none_is_lost() -> None:
    """With a guard at the data, too: what is written only grows, and is what was answered."""
    guard = Guard()
    connection = sqlite3.connect(":memory:")
    guard.create(connection)
    connection.execute("CREATE TABLE writes (fence INTEGER)")
    connection.commit()
    lots = random.Random(7)

    async def write(offer: Offer) -> None:
        for _ in range(lots.randrange(3)):
            await asyncio.sleep(0)
        with connection:
            guard.check(connection, offer)
            connection.execute("INSERT INTO writes VALUES (?)", (offer.fence,))

    async def writer(door: App, fences: list[int]) -> list[int]:
        return [fence for fence in fences if await post(door, fence) == 204]

    async def main() -> list[int]:
        fences = list(range(1, WRITERS * EACH + 1))
        # Roughly in order, as locks are granted: wholly shuffled, nearly all would be stale.
        fences.sort(key=lambda fence: fence + lots.uniform(0, 3 * WRITERS))
        door = FenceMiddleware(application(write), MemoryMarks())
        answered = await asyncio.gather(*(writer(door, fences[i::WRITERS]) for i in range(WRITERS)))
        return sorted(fence for each in answered for fence in each)

    answered = asyncio.run(main())
    kept = [fence for (fence,) in connection.execute("SELECT fence FROM writes ORDER BY rowid")]
    connection.close()
    assert kept == sorted(kept)
    assert kept == answered
    assert WRITERS < len(kept) < WRITERS * EACH
