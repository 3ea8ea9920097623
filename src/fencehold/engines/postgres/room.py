"""Room in Postgres: how large the database may get, where somebody has said so.

1. What its disk has left, no server tells. That it is full, it tells by refusing; so without `room_bytes=` in the
   URL nothing is known here.
2. Tables never shrink by themselves, but what is deleted from them is room that is used again. So of our own
   tables what they hold counts, and of all others how large they are.
"""

import asyncio

from fencehold.engines.postgres.address import Address
from fencehold.engines.postgres.aside import Aside
from fencehold.errors import FenceholdError
from fencehold.journal.room import Room

_WHAT = "the database"
_UNKNOWN = Room(_WHAT, note="what its disk has left, no server tells: see room_bytes=")
_BLOAT = 1.25
"""What our tables hold takes so much more room in them: heads of rows and pages, indexes, what is not swept."""


async def read(aside: Aside, address: Address, within_s: float) -> Room:
    """As the port says."""
    if address.room_bytes is None:
        return _UNKNOWN
    try:
        async with asyncio.timeout(within_s):
            ((others, ours),) = await aside.ask(aside.statements.room)
    except (FenceholdError, TimeoutError):
        return Room(_WHAT, note="the server does not say how large the database is")
    return Room(_WHAT, int(others) + int(ours * _BLOAT), address.room_bytes)
