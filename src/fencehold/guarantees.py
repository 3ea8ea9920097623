"""What a backend guarantees, said by itself, so that nobody has to guess; and what each tier needs of it.

A guarantee that is not declared is not given, however often it may happen to hold.
"""

from typing import NamedTuple

from fencehold.types import Tier


class Guarantees(NamedTuple):
    """What one backend gives."""

    backend: str
    """The scheme of its URL."""
    linearizable: bool
    """A grant is seen by all who ask after it, also while servers fail: at no moment are there two holders who
    may both trust their hold."""
    fenced: bool
    """A grant carries a fence greater than that of every earlier grant on its name."""
    fence_survives_failover: bool
    """…also after a server was lost and another has taken its place."""
    fair: bool
    """Those who wait are granted in the order in which they came."""
    survives_failover: bool
    """What is held stays held when a server is lost and another takes its place."""
    frees_on_crash: float
    """Seconds after which what a crashed client held is free again."""
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
    """A name can stay taken for a least time from its grant, though its holder's process has ended:
    `once(at_least=…)`."""
    watches: bool = False
    """What happens to names can be watched: `watch`."""

    def gives(self, tier: Tier) -> bool:
        """Whether it is good enough for a tier: to protect state takes one holder, and a fence that only grows."""
        return tier is Tier.EFFICIENCY or (self.linearizable and self.fenced and self.fence_survives_failover)
