"""The route from a lock to what grants it: in the blocking client, the portal of the process it is used in.

A lock outlives a fork, a portal does not; so a lock has a route, which finds the portal whenever it is used.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

from fencehold.client.blocking.portal import Portal
from fencehold.errors import UsageError
from fencehold.guarantees import Guarantees
from fencehold.locks.identity import this_thread
from fencehold.locks.trust import Grant

__all__ = ["Carrier", "Route", "Routed", "pause", "release_soon", "this_thread"]

Carrier: TypeAlias = Portal


class Route:
    """To one source of a client."""

    __slots__ = ("guarantees", "portal")

    def __init__(self, portal: Callable[[], Portal], guarantees: Guarantees) -> None:
        self.portal = portal
        """The portal of this process, started if need be."""
        self.guarantees = guarantees


class Routed:
    """Something that sends requests by a route."""

    __slots__ = ("_route",)

    def __init__(self, route: Route) -> None:
        self._route = route

    @property
    def guarantees(self) -> Guarantees:
        """What is guaranteed by what grants the names."""
        return self._route.guarantees

    @property
    def _carrier(self) -> Portal:
        return self._route.portal()


def release_soon(carrier: Portal, grant: Grant) -> None:
    """Release a grant that no caller received, without waiting."""
    carrier.release_soon(grant)


def pause(carrier: Portal, seconds: float) -> None:
    """Wait, but only while the client is open."""
    with suppress(UsageError):
        carrier.run(asyncio.sleep(seconds))
