"""The route from a lock to what grants it: in the async client, the carrier itself."""

import asyncio
from typing import TypeAlias

from fencehold.guarantees import Guarantees
from fencehold.locks.carrier import Carrier, current_task
from fencehold.locks.trust import Grant

__all__ = ["Carrier", "Route", "Routed", "current_task", "pause", "release_soon"]

Route: TypeAlias = Carrier


class Routed:
    """Something that sends requests by a route."""

    __slots__ = ("_carrier", "_route")

    def __init__(self, route: Route) -> None:
        self._route = self._carrier = route

    @property
    def guarantees(self) -> Guarantees:
        """What is guaranteed by what grants the names."""
        return self._route.guarantees


def release_soon(carrier: Carrier, grant: Grant) -> None:
    """Release a grant that no caller received, without waiting."""
    carrier.release(grant)


async def pause(carrier: Carrier, seconds: float) -> None:
    """Wait."""
    await asyncio.sleep(seconds)
