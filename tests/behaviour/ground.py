"""A ground: servers, or none, and the URL under which clients lock there."""

import re
from pathlib import Path

from fencehold import CORRECTNESS, EFFICIENCY, Guarantees, Tier
from tests.depth import deep


class Ground:
    """Started once for all tests on it, by whoever stops it."""

    expected: Guarantees
    """What it must declare, for a client with a ttl of 30 s."""
    settle_s = 1.0
    """What freeing the names of a crashed client may take beyond what is declared, on a machine that is busy."""
    ttl_min = 1.0
    """The shortest ttl of a client that its servers can keep."""
    names_at_once = deep(1_000, 10_000)
    """So many names can be held at once by one client."""

    def start(self, folder: Path) -> None:
        """Start its servers, with their data in a folder."""

    def stop(self) -> None:
        """Stop them."""

    @property
    def url(self) -> str:
        raise NotImplementedError

    @property
    def ports(self) -> list[int]:
        """Where its servers listen on loopback, for other libraries."""
        return [int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", self.url)]

    @property
    def dead_url(self) -> str:
        """A URL of the same kind, where nobody is."""
        raise NotImplementedError

    @property
    def tier(self) -> Tier:
        """The best tier to be had."""
        return CORRECTNESS if self.expected.gives(CORRECTNESS) else EFFICIENCY
