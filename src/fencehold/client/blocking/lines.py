"""Lines: the way from a blocking lock to the portal of the process it is used in.

A lock outlives a fork, a portal does not; so a lock has a line, which finds the portal whenever it is used.
"""

from collections.abc import Callable

from fencehold.client.blocking.portal import Portal
from fencehold.guarantees import Guarantees


class Line:
    """To one source of a client."""

    __slots__ = ("guarantees", "portal")

    def __init__(self, portal: Callable[[], Portal], guarantees: Guarantees) -> None:
        self.portal = portal
        """The portal of this process, started if need be."""
        self.guarantees = guarantees
