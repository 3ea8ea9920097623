"""The outbox: one write for all that is said in a turn, and none that waits for another turn without need."""

import asyncio
import socket
from typing import cast

from fencehold.doors.resp.outbox import Outbox, Turn


class _Transport:
    """Notes what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_broken = self.is_aborted = self.is_closed = False

    def write(self, data: bytes) -> None:
        if self.is_broken:
            raise RuntimeError("the handle is closed")
        self.written.append(data)

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return 0


def _made(turn: Turn) -> tuple[Outbox, _Transport]:
    transport = _Transport()
    return Outbox(cast(asyncio.Transport, transport), turn), transport


async def test_what_an_entry_says_is_sent_when_all_of_it_is_said() -> None:
    """One write for each client, in the same turn of the loop; nothing is left for the next."""
    turn = Turn()
    (one, to_one), (other, to_other) = _made(turn), _made(turn)
    turn.hold()
    for part in (b"a", b"b", b"c"):
        one.send(part)
    other.send(b"x")
    assert one.unsent_bytes() == 3
    assert to_one.written == to_other.written == []
    turn.end()
    assert (to_one.written, to_other.written) == ([b"abc"], [b"x"])
    await asyncio.sleep(0)
    assert (to_one.written, to_other.written) == ([b"abc"], [b"x"])


async def test_what_is_said_outside_of_an_entry_is_sent_at_the_end_of_the_turn() -> None:
    """Also after an entry was told of, and behind what was said before one in the same turn."""
    turn = Turn()
    outbox, transport = _made(turn)
    outbox.send(b"before ")
    turn.hold()
    outbox.send(b"entry")
    turn.end()
    assert transport.written == [b"before entry"]
    outbox.send(b"after")
    outbox.send(b"wards")
    assert transport.written == [b"before entry"]
    await asyncio.sleep(0)
    assert transport.written == [b"before entry", b"afterwards"]


async def test_much_is_sent_at_once() -> None:
    """So that the transport can say that it has become too much."""
    turn = Turn()
    outbox, transport = _made(turn)
    turn.hold()
    for _ in range(3):
        outbox.send(40_000 * b"x")
    assert sum(map(len, transport.written)) == 120_000
    turn.end()
    assert len(transport.written) == 1


async def test_a_connection_that_cannot_be_written_to_harms_nobody_else() -> None:
    """It is dropped, and the others are told what they were to be told."""
    turn = Turn()
    (one, to_one), (other, to_other) = _made(turn), _made(turn)
    to_one.is_broken = True
    turn.hold()
    one.send(b"a")
    other.send(b"b")
    turn.end()
    assert (to_one.is_aborted, to_other.is_aborted) == (True, False)
    assert to_other.written == [b"b"]


async def test_what_is_said_over_a_plain_socket_is_written_without_the_transport() -> None:
    """At once, when the turn ends."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        turn, transport = Turn(), _Transport()
        outbox = Outbox(cast(asyncio.Transport, transport), turn, ours.fileno())
        turn.hold()
        outbox.send(b"a")
        outbox.send(b"b")
        turn.end()
        assert (theirs.recv(10), transport.written) == (b"ab", [])


async def test_what_a_full_socket_does_not_take_is_the_transports_and_nothing_overtakes_it() -> None:
    """The rest of what was cut, and all that follows: together they are what was said, in its order."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        turn, transport = Turn(), _Transport()
        outbox = Outbox(cast(asyncio.Transport, transport), turn, ours.fileno())
        said = b"".join(b"%08d" % number for number in range(200_000))
        outbox.send(said)
        outbox.flush()
        assert 0 < len(transport.written[0]) < len(said)
        read = theirs.recv(len(said))
        while True:
            try:
                read += theirs.recv(len(said))
            except BlockingIOError:
                break
        # There is room again, and still it is not the socket that is written to: the transport has more to send.
        outbox.send(b"later")
        outbox.flush()
        assert read + b"".join(transport.written) == said + b"later"


async def test_a_closing_transports_socket_is_not_written_to() -> None:
    """Its number may be that of another connection by now."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        turn, transport = Turn(), _Transport()
        outbox = Outbox(cast(asyncio.Transport, transport), turn, ours.fileno())
        outbox.send(b"late")
        transport.is_closed = True
        outbox.flush()
        try:
            heard = theirs.recv(10)
        except BlockingIOError:
            heard = b""
        assert (heard, transport.written) == (b"", [])


async def test_a_broken_socket_is_for_the_transport_to_find() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        turn, transport = Turn(), _Transport()
        outbox = Outbox(cast(asyncio.Transport, transport), turn, ours.fileno())
        outbox.send(b"to nobody")
        outbox.flush()
        assert transport.written == [b"to nobody"]
