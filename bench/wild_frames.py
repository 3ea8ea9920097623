"""Wild clients that do not speak the protocol: heads that promise too much, frames with mistakes, noise.

What is sent is drawn from a seed, so that two runs send the same; see `rig.frames`.
"""

import random

from bench.wild_floods import Bite
from bench.wild_wire import Rough, again_and_again, many
from rig.frames import heads, mutated, noise

SEED = 12
_CONNECTIONS = 8
_PATIENCE_S = 0.05


async def promising_heads(port: int, bite: Bite, scale: float) -> None:
    """8 and 64 KB of heads of arrays, nested or huge, each over a fresh connection, four at once."""
    loads = list(heads())

    async def make(number: int) -> None:
        rng = random.Random(SEED + number)

        async def use(rough: Rough) -> None:
            await rough.send(rng.choice(loads))
            bite()
            await rough.closed(_PATIENCE_S)

        await again_and_again(port, use)

    await many(4, make)


async def mutated_frames(port: int, bite: Bite, scale: float) -> None:
    """Commands with mistakes in them."""

    async def make(number: int) -> None:
        rng = random.Random(SEED + number)

        async def use(rough: Rough) -> None:
            for _ in range(64):
                await rough.send(mutated(rng))
            bite()
            # Half a frame may keep the server waiting for the rest; a wild client does not wait with it.
            await rough.closed(_PATIENCE_S)

        await again_and_again(port, use)

    await many(_CONNECTIONS, make)


async def random_bytes(port: int, bite: Bite, scale: float) -> None:
    """Noise."""

    async def make(number: int) -> None:
        rng = random.Random(SEED + number)

        async def use(rough: Rough) -> None:
            await rough.send(noise(rng))
            bite()
            await rough.closed(_PATIENCE_S)

        await again_and_again(port, use)

    await many(_CONNECTIONS, make)
