"""Frames that no good client sends, one connection for each: none of them harms anybody but who sent it.

Each is sent, and its connection read to the end, before the next: so a failure names the bytes that caused it.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable

import pytest

from rig.frames import heads, mutated, noise
from tests.unit.doors.box import Box, serving

EXAMPLES = 150
HEADS_BYTES_MAX = 1_024

Draw = Callable[[random.Random], bytes]
_HEADS = [head[:HEADS_BYTES_MAX] for head in heads()]


def _several(rng: random.Random) -> bytes:
    return b"".join(mutated(rng) for _ in range(rng.randrange(2, 20)))


async def _throw(box: Box, data: bytes) -> None:
    """Send it, say that this is all, and read what the server says until it has closed the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", box.server.port)
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        writer.write_eof()
        await reader.read()
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.parametrize(
    "draw",
    [mutated, _several, noise, lambda rng: rng.choice(_HEADS)],
    ids=["a mutated frame", "several mutated frames", "noise", "heads that promise too much"],
)
async def test_what_is_no_command_ends_at_most_its_own_connection(draw: Draw) -> None:
    """A client that holds a lock keeps it, its session and its connection, and is answered after each of them."""
    rng = random.Random(f"{EXAMPLES} of {draw(random.Random(1))!r}")

    async with serving() as box:
        good = await box.client(3, session=60_000)
        held = await good.call("LOCK.ACQUIRE", "good:held", "WAIT", 0)
        for number in range(EXAMPLES):
            data = draw(rng)
            await _throw(box, data)
            grant = await good.call("LOCK.ACQUIRE", f"good:{number}", "WAIT", 0)
            assert await good.call("LOCK.RELEASE", f"good:{number}", grant["fence"]) == "OK", data
        assert [hold.fence for hold in box.state.holders("good:held")] == [held["fence"]]
        assert len(box.server.door.connections) == 1
        assert box.server.node.leads


def test_a_seed_draws_the_same_frames_again() -> None:
    """What a run sent can be sent again."""
    first, again = ([mutated(rng) + noise(rng) for _ in range(50)] for rng in (random.Random(7), random.Random(7)))
    assert first == again
