"""A host of several addresses: whichever answers first is used, and the others cost a moment."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from typing import Any

import pytest

from fencehold.drivers.etcd.http2 import connection as dial
from fencehold.drivers.etcd.http2.connection import HostAddress, interleaved
from tests.unit.drivers.etcd.http2.server import Server, call, serving

LIVE, DEAD, GONE = "127.0.0.1", "127.0.0.2", "127.0.0.3"


@contextmanager
def swallowing(port: int) -> Iterator[None]:
    """An address that answers nobody: its backlog is full, and the kernel drops what more comes."""
    with ExitStack() as open_ones:
        listening = open_ones.enter_context(closing(socket.socket()))
        listening.bind((DEAD, port))
        listening.listen(0)
        for _ in range(4):
            waiting = open_ones.enter_context(closing(socket.socket()))
            waiting.setblocking(False)
            waiting.connect_ex((DEAD, port))
        yield


def at(host: str, port: int) -> HostAddress:
    return HostAddress(socket.AF_INET, (host, port))


@pytest.fixture
def addresses(monkeypatch: pytest.MonkeyPatch) -> list[HostAddress]:
    """What every name stands for."""
    found: list[HostAddress] = []

    async def resolve(host: str, port: int) -> list[HostAddress]:
        return found

    monkeypatch.setattr(dial, "resolve", resolve)
    return found


@asynccontextmanager
async def serving_beside_a_dead_one() -> AsyncIterator[tuple[Server, Any, int]]:
    async with serving() as (server, channel):
        port = int(server.endpoint.rpartition(":")[2])
        with swallowing(port):
            yield server, channel, port


async def none_tries() -> None:
    """Until no attempt is under way: those that are given up need a turn of the loop to end."""
    async with asyncio.timeout(20):
        while any("_attempt" in repr(task.get_coro()) for task in asyncio.all_tasks()):  # noqa: ASYNC110 - they have no event
            await asyncio.sleep(0)


def test_a_name_with_one_dead_address_is_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """The dead one comes first, and swallows all that is sent to it."""
    real = socket.getaddrinfo

    def both(host: str, port: int, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> list[Any]:
        if host != "headless.test":
            return real(host, port, family, type, proto, flags)
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "not an address")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in (DEAD, LIVE)]

    monkeypatch.setattr(socket, "getaddrinfo", both)

    async def main() -> None:
        async with serving_beside_a_dead_one() as (_, channel, _):
            channel._host = "headless.test"
            assert await call(channel, timeout=20) == b"hello"

    asyncio.run(main())


def test_the_first_to_answer_wins_and_nothing_is_left(run: Any, addresses: list[HostAddress]) -> None:
    """Neither a task nor a socket; a warning of one would fail this test."""

    async def main() -> None:
        async with serving_beside_a_dead_one() as (_, _, port):
            addresses[:] = [at(DEAD, port), at(DEAD, port), at(LIVE, port)]
            with closing(await dial.connect("any", port)) as sock:
                assert sock.getpeername() == (LIVE, port)
            await none_tries()

    run(main())


def test_an_address_that_refuses_is_passed_over_at_once(
    run: Any, addresses: list[HostAddress], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has failed: there is nothing to wait for."""
    monkeypatch.setattr(dial, "_HEAD_START_S", 3_600.0)

    async def main() -> None:
        async with serving() as (server, _):
            port = int(server.endpoint.rpartition(":")[2])
            addresses[:] = [at(GONE, port), at(LIVE, port)]
            (await asyncio.wait_for(dial.connect("any", port), 20)).close()

    run(main())


def test_when_none_answers_it_says_where_and_why(run: Any, addresses: list[HostAddress]) -> None:
    """In the same words on every event loop."""

    async def main() -> None:
        async with serving() as (server, _):
            port = int(server.endpoint.rpartition(":")[2])
            addresses[:] = [at(GONE, port), at(DEAD, port)]
            expected = rf"^{GONE}:{port}: Connection refused; {DEAD}:{port}: Connection refused$"
            with pytest.raises(OSError, match=expected):
                await dial.connect("any", port)
            del addresses[1]
            with pytest.raises(OSError, match=r"^Connection refused$"):
                await dial.connect("any", port)

    run(main())


def test_giving_up_leaves_nothing(run: Any, addresses: list[HostAddress]) -> None:
    """Whoever waits sets the bound; attempts under way end with it."""

    async def main() -> None:
        async with serving_beside_a_dead_one() as (_, _, port):
            addresses[:] = [at(DEAD, port)]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(dial.connect("any", port), 0.05)
            await none_tries()

    run(main())


def test_families_take_turns() -> None:
    """RFC 8305, 4: the first of the resolver's is the first, and after it the other family has its try."""
    six, four = [(socket.AF_INET6, number) for number in range(3)], [(socket.AF_INET, 0)]
    mixed = interleaved([HostAddress(*each) for each in [*six, *four]])
    assert mixed == [six[0], four[0], six[1], six[2]]
    assert interleaved([]) == []


def test_an_address_needs_no_resolver(run: Any) -> None:
    """Nor a thread to wait in, which a child of this process would not have."""

    async def main() -> None:
        assert await dial.resolve("127.0.0.1", 1) == [at("127.0.0.1", 1)]
        found = await dial.resolve("::1", 1)
        assert [str(each) for each in found] == ["[::1]:1"]
        assert getattr(asyncio.get_running_loop(), "_default_executor", None) is None

    run(main())
