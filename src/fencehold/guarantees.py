"""What a backend guarantees, as it declares itself; and what each tier requires of it.

A guarantee that is not declared is not given, however often it may happen to hold.
"""

from typing import NamedTuple

from fencehold.types import Tier


class Guarantees(NamedTuple):
    """What one backend gives."""

    backend: str
    """The scheme of its URL."""
    linearizable: bool
    """Every later request sees a grant, even while servers fail: there are never two holders who both may trust
    their hold."""
    fenced: bool
    """A grant carries a fence greater than that of every earlier grant on its name."""
    fence_survives_failover: bool
    """…also after a failover to another server."""
    fair: bool
    """Waiters are granted first come, first served."""
    survives_failover: bool
    """Holds survive a failover to another server."""
    frees_on_crash: float
    """Seconds after which the holds of a crashed client are released."""
    clocks: str
    """Which clocks are trusted, and for what."""
    shared: bool = False
    """Readers may share a name: `shared=True`, `rwlock`."""
    semaphores: bool = False
    """A name may have several permits: `semaphore`."""
    multi: bool = False
    """Several names are granted in one step: `multi`."""
    delays: bool = False
    """A name can stay ungranted for a while after an unclean end: `delay=`."""
    at_least: bool = False
    """A name can stay taken for a least time from its grant, even if its holder's process has ended:
    `once(at_least=…)`."""
    watches: bool = False
    """Events of names can be watched: `watch`."""

    def gives(self, tier: Tier) -> bool:
        """Whether it is enough for a tier: protecting state needs a single holder, and a fence that only grows."""
        return tier is Tier.EFFICIENCY or (self.linearizable and self.fenced and self.fence_survives_failover)
