"""How a connection over TLS ends, and what that means for its session: as without TLS."""

import asyncio
import socket
import ssl
import struct
from pathlib import Path

import pytest

from fencehold.core.commands import Suspend
from fencehold.drivers.address import TlsFiles
from fencehold.drivers.tls import client_context
from tests.unit.client.service import until
from tests.unit.doors.box import frame
from tests.unit.security.authority import Authority, tls_of
from tests.unit.security.test_listener import LOOPS, Loop, run, secured


def opened(port: int, authority: Authority) -> ssl.SSLSocket:
    """A client that has a session with a second of grace."""
    raw = socket.create_connection(("127.0.0.1", port))
    secured_ = client_context(TlsFiles(authority.file)).wrap_socket(raw, server_hostname="127.0.0.1")
    secured_.sendall(frame("SESSION.OPEN", "TTL", 60_000, "GRACE", 1_000))
    assert b"session" in secured_.recv(4_096)
    return secured_


@LOOPS
@pytest.mark.parametrize("ending", ["closed", "without a word", "reset", "in the middle"])
def test_a_client_that_is_gone_has_its_grace_and_no_more(tmp_path: Path, loop_factory: Loop, ending: str) -> None:
    """However its end closed the connection: with TLS's goodbye, without it as when it is killed, by a reset."""
    authority = Authority(tmp_path)

    async def scenario() -> None:
        async with secured(tls_of(authority)) as box:
            suspended: list[int] = []
            submit = box.server.node.submit

            def spy(command, answer, lane=None):  # type: ignore[no-untyped-def]
                if isinstance(command, Suspend):
                    suspended.append(command.session)
                submit(command, answer, lane)

            box.server.node.submit = spy  # type: ignore[method-assign]
            client = await asyncio.to_thread(opened, box.port, authority)
            raw = client.detach() if ending != "closed" else -1
            if ending == "closed":
                await asyncio.to_thread(client.unwrap)
                client.close()
            else:
                with socket.socket(fileno=raw) as bare:
                    if ending == "reset":
                        bare.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    if ending == "in the middle":
                        bare.sendall(b"\x17\x03\x03\x00\x50half a record")
            await box.until(lambda: not box.server.door.connections)
            assert suspended == [1]

    run(loop_factory, scenario)


@LOOPS
def test_a_server_that_stops_waits_for_nobody_who_says_nothing(tmp_path: Path, loop_factory: Loop) -> None:
    """A client that does not answer TLS's goodbye holds it up no longer than one without TLS."""
    authority = Authority(tmp_path)

    async def scenario() -> None:
        async with secured(tls_of(authority)) as box:
            client = await asyncio.to_thread(opened, box.port, authority)
            async with asyncio.timeout(8):
                await box.server.stop()
            client.close()

    run(loop_factory, scenario)


@LOOPS
def test_a_last_word_arrives(tmp_path: Path, loop_factory: Loop) -> None:
    """Who sends what is no command is told so before the connection is closed, over TLS, too."""
    authority = Authority(tmp_path)

    async def scenario() -> None:
        async with secured(tls_of(authority)) as box:
            context = client_context(TlsFiles(authority.file))
            reader, writer = await asyncio.open_connection("127.0.0.1", box.port, ssl=context)
            writer.write(b"*1\r\n*1\r\n$4\r\nPING\r\n" + b"x" * 10_000)
            assert (await reader.read()).startswith(b"-ERR protocol error")
            writer.close()
            await until(lambda: not box.server.door.connections)

    run(loop_factory, scenario)
