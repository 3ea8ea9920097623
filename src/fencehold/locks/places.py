"""Places in one text: up to where a watcher has received the events of each shard.

Shards have positions of their own, and no order between them: a watcher that resumes has to give a place for each.
These are written in the order of the shards, with commas between them: `17-0,9-2,,40`. Each is written as that of
a service with one shard: `position-index` is after that event, a position alone is after all of it. An empty one
is of a shard of which nothing is known: there, it resumes from now on.
"""

from collections.abc import Mapping

from fencehold.errors import UsageError
from fencehold.locks.views import WHOLE

Place = tuple[int, int]
Places = Mapping[int, Place]
"""By shard; in one that is missing, it resumes from now on."""

_DIGITS_MAX = 20


def places_text(places: Places, shards: int) -> str:
    """Places of all shards, as `read_places` reads them."""
    return ",".join(_text(places.get(shard)) for shard in range(shards))


def read_places(said: str, shards: int) -> Places:
    """Places of all shards of a service that has so many. Position 0 is before all that happened.

    Raises:
        UsageError: that is no text of places, or of another number of shards.
    """
    parts = said.split(",") if said else []
    if parts and len(parts) != shards:
        raise UsageError(f"{said[:80]!r} has the places of {len(parts)} shards, and this service has {shards}")
    return {shard: _place(part) for shard, part in enumerate(parts) if part}


def _text(place: Place | None) -> str:
    if place is None:
        return ""
    position, index = place
    return str(position) if index == WHOLE else f"{position}-{index}"


def _place(part: str) -> Place:
    position, dash, index = part.partition("-")
    if not _is_number(position) or (dash and not _is_number(index)):
        raise UsageError(f"{part[:80]!r} is not a place of an event: such are 17-0, or of several shards 17-0,9-2")
    return int(position), int(index) if dash else WHOLE


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX
