"""The handler: kazoo's thread talks to the loop, and can always be hung up on."""

import asyncio
import socket
import ssl
import threading
from functools import partial

import pytest
import trustme

from fencehold.drivers.zookeeper.handler import PollHandler
from tests.unit.engines.zookeeper.valve import until


def test_what_kazoo_posts_is_called_on_the_loop_in_order() -> None:
    """Answers and watches come on the loop's thread, in the order in which they were posted."""

    async def work() -> None:
        handler = PollHandler("test", None)
        done = asyncio.Event()
        handler.on_end = done.set
        thread = handler.spawn(post, handler)
        await done.wait()
        thread.join()
        assert heard == [(number, threading.get_ident()) for number in range(100)]

    def post(handler: PollHandler) -> None:
        for number in range(100):
            queue = handler.completion_queue if number % 2 else handler.callback_queue
            queue.put(partial(hear, number))

    def hear(number: int) -> None:
        heard.append((number, threading.get_ident()))

    heard: list[tuple[int, int]] = []
    asyncio.run(work())


def test_a_loop_that_is_closed_is_told_nothing() -> None:
    """kazoo's thread may be the last to leave: it must not fail for that."""

    async def made() -> PollHandler:
        return PollHandler("test", None)

    handler = asyncio.run(made())
    handler.completion_queue.put(lambda: None)


def test_hanging_up_ends_a_connect_that_nobody_answers() -> None:
    """A connect to a host that drops everything is ended from another thread, and no other one is made."""

    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
            address = full.getsockname()
            # Fill the queue of those who wait to be accepted: what comes after is not even refused.
            waiting = [socket.socket() for _ in range(4)]
            for client in waiting:
                client.setblocking(False)
                client.connect_ex(address)
            handler = PollHandler("test", None)

            async def is_begun() -> bool:
                return handler._socket is not None

            connecting = asyncio.ensure_future(asyncio.to_thread(handler.create_connection, address, timeout=30))
            await until(is_begun)
            handler.hang_up()
            with pytest.raises(OSError):
                await connecting
            for client in waiting:
                client.close()
        with socket.create_server(("127.0.0.1", 0)) as free, pytest.raises(OSError, match="hung up"):
            handler.create_connection(free.getsockname())

    asyncio.run(work())


def test_select_tells_who_is_ready() -> None:
    """Readers with something to read and writers with room to write; nobody in time is nobody."""

    async def work() -> None:
        handler = PollHandler("test", None)
        one, other = socket.socketpair()
        with one, other:
            assert handler.select([one], [], [], 0.01) == ([], [], [])
            other.send(b"x")
            assert handler.select([one, other], [other], [], 1) == ([one], [other], [])
            other.close()
            one.recv(1)
            assert handler.select([one], [], [], 1)[0] == [one]

    asyncio.run(work())


def test_select_tells_what_tls_has_read_ahead() -> None:
    """Bytes that came in one piece with others, and are in no socket any more, are there to be read."""
    authority = trustme.CA()
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("server").configure_cert(server_side)
    client_side = ssl.create_default_context()
    authority.configure_trust(client_side)

    async def work() -> None:
        handler = PollHandler("test", None)
        one, other = socket.socketpair()
        serving = asyncio.ensure_future(asyncio.to_thread(server_side.wrap_socket, other, server_side=True))
        reader = await asyncio.to_thread(client_side.wrap_socket, one, server_hostname="server")
        with reader, await serving as writer:
            writer.send(b"two answers")
            assert reader.recv(3) == b"two"
            assert handler.select([reader], [], [], 30) == ([reader], [], [])

    asyncio.run(work())
