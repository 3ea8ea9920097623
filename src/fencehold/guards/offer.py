"""The offer: a name and the fence under which a client wants to write, checked before any resource is used.

1. A fence is a whole number from 1 to 2^63 - 1: what every database can keep.
2. Only what has a fence can be offered. A claim has none, and is refused as what it is.
3. A hold on several names has one fence for all of them; which one is meant is said, or it is the only one.
"""

from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from fencehold.errors import UsageError
from fencehold.locks.hold import Claiming, Holding

FENCE_MAX = 2**63 - 1
NAME_BYTES_MAX = 512


@runtime_checkable
class Fenced(Protocol):
    """Something with names and a fence: a `Hold` of either client."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def fence(self) -> int: ...


class Offer(NamedTuple):
    """A name and a fence, from wherever: a hold, the headers of a request, the environment of a command."""

    name: str
    fence: int

    def checked(self) -> "Offer":
        """The same, if it can be one.

        Raises:
            UsageError: it cannot; the message says why.
        """
        if not isinstance(self.name, str) or not 0 < len(self.name.encode()) <= NAME_BYTES_MAX:
            raise UsageError(f"a name is text of 1 to {NAME_BYTES_MAX} bytes, not {self.name!r}")
        if isinstance(self.fence, bool) or not isinstance(self.fence, int) or not 0 < self.fence <= FENCE_MAX:
            raise UsageError(f"a fence is a whole number from 1 to 2^63 - 1, not {self.fence!r}")
        return self


Offered: TypeAlias = Holding | Offer
"""What a guard takes."""


def offer_of(offered: Any, name: str | None = None) -> Offer:
    """What is offered, for a name; without one, for the only name there is.

    Raises:
        UsageError: there is no fence in it, or it is that of another name.
    """
    names: tuple[str, ...]
    if isinstance(offered, Holding):
        names, fence = offered.names, offered.fence
    elif isinstance(offered, Offer):
        names, fence = (offered.name,), offered.fence
    elif isinstance(offered, Claiming):
        raise UsageError(
            f"{offered!r} is a claim, which has no fence: to protect state, ask with tier=fencehold.CORRECTNESS"
        )
    elif isinstance(offered, Fenced):
        names, fence = tuple(offered.names), offered.fence
    else:
        raise UsageError(f"a guard takes a hold, or an Offer(name, fence), not {offered!r}")
    if name is None:
        if len(names) != 1:
            raise UsageError(f"a hold on several names is offered for one: give name=, one of {', '.join(names)}")
        return Offer(names[0], fence).checked()
    if name not in names:
        raise UsageError(f"the fence offered is that of {', '.join(map(repr, names))}, not of {name!r}")
    return Offer(name, fence).checked()
