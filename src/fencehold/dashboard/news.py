"""News of a picture: the events that keep it up to date, applied as they arrive, while they are followed.

Where more happens than a user could read, events are not followed, and resume from now on: what was missed is in
the lists that are read then. The same goes for a gap, for the names of its shard.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable

from fencehold.dashboard.picture import Picture
from fencehold.dashboard.shard_facts import event_in
from fencehold.errors import FenceholdError, PermissionDenied, UsageError
from fencehold.gateway.credentials import Credentials
from fencehold.gateway.problems import Unauthenticated
from fencehold.gateway.questions import Questions
from fencehold.gateway.watch import Begun, ShardAway
from fencehold.locks.places import Place
from fencehold.locks.views import WHOLE, Event
from fencehold.types import Tier

BUSY_EVENTS_PER_S = 3_000
_FLOOD_S = 0.2
_PAST_POSITIONS = 2_000
"""How far back events are read at first: for the charts, and to show what happened lately."""
_LOOK_S = 0.25
"""How often it is checked whether events can be followed again."""
_AGAIN_S = 1.0


class News:
    """Made for one picture. `must_list`: shards whose names are to be read again, by the reader."""

    def __init__(
        self,
        questions: Questions,
        credentials: Credentials,
        tier: Tier,
        picture: Picture,
        must_list: set[int],
        time_of_day: Callable[[], float],
    ) -> None:
        self._questions, self._credentials, self._tier = questions, credentials, tier
        self._picture, self._must_list, self._time_of_day = picture, must_list, time_of_day
        self._is_flood = Flood().has
        self.may_hear = True
        """Whether this login may follow events."""

    async def follow(self) -> None:
        """Apply events as they arrive, while they are followed."""
        picture = self._picture
        # Up to there the lists have all: they are begun later.
        past = dict(picture.positions)
        after: dict[int, Place] = {
            shard: (max(0, position - _PAST_POSITIONS), WHOLE) for shard, position in past.items()
        }
        while picture.refused is None:
            if picture.is_sampled:
                after = {}
                await asyncio.sleep(_LOOK_S)
                continue
            try:
                await self._follow_on(after, past)
            except Unauthenticated:
                # The figures are read every second: they find that out, too.
                return
            except PermissionDenied:
                self.may_hear, picture.is_sampled = False, True
                return
            except UsageError:
                # The journal was recreated, as by a restart of a server in memory.
                after = {}
                await asyncio.sleep(_AGAIN_S)
            except FenceholdError:
                await asyncio.sleep(_AGAIN_S)

    async def _follow_on(self, after: dict[int, Place], past: dict[int, int]) -> None:
        """Until events are no longer followed. Then `after` has the places to resume from."""
        picture = self._picture
        if not after:
            self._must_list.update(range(picture.shards))
        told = self._questions.events(self._credentials, self._tier, "", after)
        async with contextlib.aclosing(told):
            async for each in told:
                match each:
                    case Begun(places, _):
                        after |= places
                    case ShardAway(shard, why, place):
                        picture.miss(shard, why)
                        if place is not None and shard not in after:
                            # Its events begin only now: none has what was before.
                            self._must_list.add(shard)
                            after[shard] = place
                    case Event():
                        after[each.shard] = each.place
                        self._hear(each, each.position <= past.get(each.shard, 0))
                if picture.is_sampled:
                    break

    def _hear(self, seen: Event, is_past: bool) -> None:
        picture = self._picture
        picture.hear(seen.index, event_in(seen.shard, seen), self._time_of_day(), is_past=is_past)
        if not is_past and self._is_flood(time.monotonic()):
            picture.is_sampled = True
        if seen.kind == "gap" and not is_past:
            self._must_list.add(seen.shard)


class Flood:
    """Whether more events arrive than a user could read, detected at once and not with the next figures."""

    def __init__(self) -> None:
        self._since, self._count = 0.0, 0

    def has(self, now: float) -> bool:
        """One more event. True: there were too many, in too short a time."""
        if now - self._since > _FLOOD_S:
            self._since, self._count = now, 0
        self._count += 1
        return self._count > _FLOOD_S * BUSY_EVENTS_PER_S
