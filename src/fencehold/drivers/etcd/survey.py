"""A survey of the members of an etcd: who there is, who answers, who leads.

It has connections of its own, made for it and closed after it: no call of a journal or a lock waits for it. Asked
are the members that the URL names, and those that they name in turn. What only administrators may know stays out.
"""

import asyncio
from contextlib import suppress
from typing import Any, NamedTuple

from fencehold.drivers.etcd.address import EtcdAddress
from fencehold.drivers.etcd.http2.channel import Channel
from fencehold.drivers.etcd.http2.status import CallFailed
from fencehold.drivers.etcd.member import Connect, Member, Standing, context_of

_MEMBERS_MAX = 32


class Seen(NamedTuple):
    """One member."""

    endpoint: str
    standing: Standing
    trouble: str
    is_learner: bool = False
    """It has no vote: whether it is up decides nothing."""


async def survey(address: EtcdAddress, within_s: float, connect: Connect = Channel) -> list[Seen]:
    """All members that can be found, in the order of the URL, then by address."""
    context = context_of(address.tls)
    made: list[Member] = []

    def member(endpoint: str) -> Member:
        made.append(Member(endpoint, context, connect))
        return made[-1]

    try:
        named = [member(endpoint) for endpoint in address.endpoints]
        seen = await _greeted(named, within_s / 3)
        known = await _known(seen, within_s / 3)
        others = [member(endpoint) for endpoint in _not_named(known, seen)]
        seen |= await _greeted(others, within_s / 3)
        learners = {fellow.ID for fellow in known if fellow.isLearner}
        found = [Seen(one.endpoint, standing, one.trouble, one.id in learners) for one, standing in seen.items()]
        return found + [
            Seen(f"member {fellow.ID:x}", Standing.GONE, "it was added, and has not started", fellow.isLearner)
            for fellow in known
            if not fellow.clientURLs
        ]
    finally:
        await asyncio.gather(*(one.close() for one in made), return_exceptions=True)


async def _greeted(members: list[Member], timeout_s: float) -> dict[Member, Standing]:
    standings = await asyncio.gather(*(member.greet(timeout_s, ()) for member in members))
    return dict(zip(members, standings, strict=True))


async def _known(seen: dict[Member, Standing], timeout_s: float) -> list[Any]:
    """Who there is, as the first member says that answers; nobody, if none does."""
    for member, standing in seen.items():
        if standing > Standing.SILENT:
            with suppress(CallFailed):
                return (await member.fellows(timeout_s, ()))[:_MEMBERS_MAX]
    return []


def _not_named(known: list[Any], seen: dict[Member, Standing]) -> list[str]:
    """Where the members are that the URL does not name: each has said its number, or has another address."""
    ids = {member.id for member in seen if member.id}
    places = {member.endpoint for member in seen}
    found = []
    for fellow in known:
        endpoints = [url.partition("://")[2].rstrip("/") for url in fellow.clientURLs]
        if fellow.ID not in ids and endpoints and not places.intersection(endpoints):
            found.append(endpoints[0])
    return sorted(found)
