"""What redis-py's arguments mean to Fencehold: the same for threads and for event loops.

1. `timeout` is the ttl. Without one, or with 0, a lock is kept alive for as long as its client lives.
2. `blocking_timeout` is the wait; a negative one is 0.
3. The tier is CORRECTNESS where the client can give that, and EFFICIENCY elsewhere: redis-py has no option for it.
"""

import time
from typing import Any, Generic, Protocol, TypeVar

from fencehold.compat.redis.errors import Misused, NotHonoured
from fencehold.errors import UsageError
from fencehold.guarantees import Guarantees
from fencehold.locks.hold import Claiming, Holding
from fencehold.types import CORRECTNESS, EFFICIENCY, Tier

TTL_S_MIN = 0.001

Held = TypeVar("Held", bound=Claiming)


class Guaranteeing(Protocol):
    """A client of either kind."""

    @property
    def guarantees(self) -> Guarantees: ...


class HeldLock(Generic[Held]):
    """A hold, and its end as redis-py counts it, as far as that is certain here: never later than it ends."""

    __slots__ = ("ends_at", "hold")

    def __init__(self, hold: Held, ttl: float | None, asked_at: float) -> None:
        self.hold = hold
        # After a wait it was granted later than requested. Then the trust in it counts, which is a little less.
        self.ends_at = max(asked_at + (ttl or 0), time.monotonic() + hold.safe_for())

    def set_ttl(self, ttl: float, asked_at: float) -> None:
        """Its ttl was set to this, not before that time."""
        self.ends_at = asked_at + ttl

    def longer(self, additional_time: float, name: str) -> float:
        """Its remaining ttl, plus so many seconds.

        Raises:
            Misused: nothing would be left.
        """
        left_s = max(0.0, self.ends_at - time.monotonic())
        return ttl_left(left_s + additional_time, name)

    @property
    def fence(self) -> int | None:
        """The fence, if there is one."""
        return self.hold.fence if isinstance(self.hold, Holding) else None


def name_of(name: object) -> str:
    """A name as text; redis-py takes bytes, too."""
    if isinstance(name, memoryview):
        name = bytes(name)
    if isinstance(name, bytes):
        try:
            name = name.decode()
        except UnicodeDecodeError:
            raise UsageError(f"lock name must be str, or bytes in UTF-8, got {name!r}") from None
    if not isinstance(name, str) or not name:
        raise UsageError(f"lock name must be a non-empty str, got {name!r}")
    return name


def ttl_of(timeout: float | None) -> float | None:
    """The ttl for redis-py's `timeout`."""
    if not timeout:
        return None
    if timeout < TTL_S_MIN:
        raise UsageError(f"timeout is None, or {TTL_S_MIN} seconds or more, not {timeout}")
    return float(timeout)


def ttl_left(ttl: float, name: str) -> float:
    """A ttl to be set, if any is left."""
    if ttl < TTL_S_MIN:
        raise Misused(f"Cannot shorten a lock to {ttl:g} seconds: release it", name)
    return ttl


def wait_of(blocking: bool, blocking_timeout: float | None) -> float | None:
    """Seconds to wait; None for ever."""
    if not blocking:
        return 0.0
    return None if blocking_timeout is None else max(0.0, float(blocking_timeout))


def tier_of(client: Guaranteeing) -> Tier:
    """The best tier that a client gives."""
    return CORRECTNESS if client.guarantees.gives(CORRECTNESS) else EFFICIENCY


def refuse_token(token: Any, name: str) -> None:
    """redis-py's locks are passed on between processes by a token; a hold belongs to its session.

    Raises:
        NotHonoured: there is one.
    """
    if token is not None:
        raise NotHonoured(
            "Cannot take a lock by a token of yours: a hold belongs to the client that has it. "
            "Pass its fence on, to what must refuse late writes",
            name,
        )
