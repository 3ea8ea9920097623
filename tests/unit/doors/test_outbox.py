"""The outbox: one write for all that is said in a turn, and none that waits for another turn without need."""

import asyncio
from typing import cast

from fencehold.doors.resp.outbox import Outbox, Turn


class _Transport:
    """Notes what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_broken = self.is_aborted = False

    def write(self, data: bytes) -> None:
        if self.is_broken:
            raise RuntimeError("the handle is closed")
        self.written.append(data)

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return False

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
