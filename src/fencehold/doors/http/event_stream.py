"""Events as server-sent events. Each has an id from which a client resumes: see `locks.places`.

With several shards the id has the place of each: so nothing is missed or sent twice, from any shard. That a shard
is away is sent as an event `shard_away`, and later `shard_back`, without an id.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from fencehold import Event, Party
from fencehold.errors import FenceholdError
from fencehold.gateway.watch import Begun, ShardAway, Told
from fencehold.locks.places import Place, places_text
from fencehold.locks.views import Missing

_COMMENT_S = 15.0
"""How often an idle stream of events sends a keep-alive: a proxy must not take it for dead."""


async def streamed(begun: Told, told: AsyncGenerator[Told, None]) -> AsyncIterator[str]:
    """A stream, of a watch that has begun."""
    places, shards = (dict(begun.places), begun.shards) if isinstance(begun, Begun) else ({}, 1)
    # With an id: a client that reconnects before the first event misses nothing. Where nothing has happened at
    # all, there is no place to resume from.
    has_place = any(position for position, _ in places.values())
    yield f": from {_from(places, shards)}\n" + (f"id: {places_text(places, shards)}\n\n" if has_place else "\n")
    async with aclosing(told):
        following = asyncio.ensure_future(anext(told))
        try:
            while True:
                done, _ = await asyncio.wait({following}, timeout=_COMMENT_S)
                if not done:
                    yield ": nothing happened\n\n"
                    continue
                seen = following.result()
                following = asyncio.ensure_future(anext(told))
                if isinstance(seen, Event):
                    places[seen.shard] = seen.place
                    yield _event(places_text(places, shards), seen)
                elif isinstance(seen, ShardAway):
                    if seen.place is not None:
                        places.setdefault(seen.shard, seen.place)
                    yield _away(seen)
        except FenceholdError:
            # The client reconnects by itself, with the last id.
            return
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


def _from(places: dict[int, Place], shards: int) -> str:
    return str(places[0][0]) if shards == 1 else places_text(places, shards)


def _away(seen: ShardAway) -> str:
    kind = "shard_away" if seen.why else "shard_back"
    data = {"kind": kind, "shard": seen.shard, "detail": seen.why or None}
    return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"


def _event(id_: str, seen: Event) -> str:
    data = {
        "kind": seen.kind,
        "position": seen.position,
        "index": seen.index,
        "names": seen.names,
        "fence": seen.fence or None,
        "client": None if seen.party is None else party(seen.party),
        "detail": seen.detail or None,
        "time": None if seen.time is None else seen.time.isoformat(),
        "shard": seen.shard,
        "principal": seen.principal or None,
        "by": None if seen.by is None else party(seen.by),
        "missing": None if seen.missing is None else _missing(seen.missing),
    }
    return f"id: {id_}\nevent: {seen.kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"


def _missing(seen: Missing) -> dict[str, int]:
    return {"from": seen.first, "from_index": seen.after, "to": seen.last}


def party(seen: Party) -> dict[str, Any]:
    """A client, as JSON."""
    return {
        "name": seen.client or None,
        "host": seen.host or None,
        "pid": seen.pid or None,
        "session": seen.session,
        "owner": seen.owner or None,
    }
