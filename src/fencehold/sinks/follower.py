"""The follower: events of the service, from a place on, over as many connections as it takes.

1. It opens no session, and reads by `LOCK.WATCH`: from a standby if one is found, else from the leader. A slow
   reader is not waited for: the connection fills up, and what the ring loses is sent as a gap.
2. Events of a shard come in the order of their places, each once, whatever the connections do. Each shard is read
   over a connection of its own, from its own leader or a standby.
3. A place that is ahead of the leader is of another journal: that is an error, never ignored.
"""

import asyncio
import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from fencehold import __version__
from fencehold.client.login import login_of, words_of
from fencehold.drivers.address import Endpoint, ServiceAddress, endpoint, service_address
from fencehold.drivers.tls import client_context, files_of_environment
from fencehold.errors import FenceholdError, PermissionDenied, Unavailable, UsageError
from fencehold.gateway.lines import Line
from fencehold.locks.views import WHOLE, Event, event
from fencehold.sinks.port import Cursor

_CONNECT_S = 5.0
_AGAIN_S_FIRST, _AGAIN_S_MAX = 0.05, 2.0
_BEGINNING: Cursor = (0, WHOLE)


class Seen(NamedTuple):
    """A node, as it describes itself."""

    line: Line
    role: str
    position: int
    standbys: tuple[Endpoint, ...]
    leader: Endpoint | None


class Follower:
    """Reads the events of a service."""

    def __init__(self, url: str, *, prefix: str = "", prefers_standby: bool = True) -> None:
        self._address: ServiceAddress = service_address(url)
        self._login = login_of(self._address.user, self._address.secret)
        self._tls = _tls_of(self._address)
        self._prefix = prefix
        self._prefers_standby = prefers_standby
        self._reads: dict[int, tuple[str, str]] = {}
        """Where it reads each shard at the moment, and the role of that node."""
        self._away: dict[int, str] = {}
        """Why a shard is not read at the moment."""

    @property
    def node(self) -> str:
        """Where it reads at the moment; empty if nowhere."""
        return ", ".join(sorted({node for node, _ in self._reads.values()}))

    @property
    def role(self) -> str:
        """The role of the nodes that it reads from."""
        return ", ".join(sorted({role for _, role in self._reads.values()}))

    @property
    def trouble(self) -> str:
        """Why it does not read all shards at the moment; empty: it does, or has not tried yet."""
        return next(iter(self._away.values()), "")

    async def shards(self) -> int:
        """How many the service has.

        Raises:
            Unavailable: no node was reached.
            PermissionDenied: it may not ask.
        """
        why = "no node"
        for each in self._address.endpoints:
            try:
                seen = await self._greeted(each, None)
            except (Unavailable, OSError, TimeoutError) as away:
                why = f"{each}: {away}"
                continue
            seen.line.close()
            self._away.clear()
            return int(seen.line.hello.get(b"shards", 1))
        self._away[0] = f"cannot reach the service: {why}"
        raise Unavailable(self._away[0])

    async def events(self, after: Cursor | None, shard: int = 0) -> AsyncIterator[Event]:
        """What happens in a shard after a place, for ever; None: from now on.

        Raises:
            UsageError: the place is of another journal.
            PermissionDenied: it may not watch.
        """
        place, pause_s = after, _AGAIN_S_FIRST
        while True:
            try:
                async with self._watching(place, shard) as (line, begun):
                    place, pause_s = place or begun, _AGAIN_S_FIRST
                    self._away.pop(shard, None)
                    while True:
                        push = await line.push()
                        if push[0] != b"event":
                            continue
                        seen = event(push[1])
                        if seen.place > place:
                            place = seen.place
                            yield seen
            except (Unavailable, OSError) as away:
                self._away[shard] = str(away) or type(away).__name__
            self._reads.pop(shard, None)
            await asyncio.sleep(pause_s * (1 + random.random()))
            pause_s = min(2 * pause_s, _AGAIN_S_MAX)

    async def head(self, shard: int = 0) -> int:
        """The position of the newest entry of a shard that a node of the URL knows.

        Raises:
            Unavailable: none was reached.
        """
        best = -1
        for each in self._address.endpoints:
            with suppress(Unavailable, OSError, TimeoutError):
                seen = await self._greeted(each, shard)
                seen.line.close()
                best = max(best, seen.position)
        if best < 0:
            raise Unavailable("no node of the service was reached")
        return best

    @asynccontextmanager
    async def _watching(self, place: Cursor | None, shard: int) -> AsyncIterator[tuple[Line, Cursor]]:
        seen, where = await self._found(shard)
        try:
            if place is not None and seen.role == "leader" and place[0] > seen.position:
                raise UsageError(
                    f"the target has events up to position {place[0]}, and the service is at {seen.position}: "
                    "they are not of the same journal. Name another target for this one"
                )
            since: tuple[str | int, ...] = () if place is None else ("FROM", place[0], "INDEX", place[1])
            reply = await seen.line.call("LOCK.WATCH", self._prefix, *since, "STALE")
            self._reads[shard] = str(where), seen.role
            yield seen.line, (reply[b"position"], reply[b"index"])
        finally:
            seen.line.close()

    async def _found(self, shard: int) -> tuple[Seen, Endpoint]:
        """A node to read a shard from: a standby that is known to be one, or else the leader.

        Raises:
            Unavailable: none was found.
        """
        to_try, tried, leader = list(self._address.endpoints), set[Endpoint](), None
        why = "no node leads, and none stands by"
        while to_try:
            each = to_try.pop(0)
            if each in tried:
                continue
            tried.add(each)
            try:
                seen = await self._greeted(each, shard)
            except (Unavailable, OSError, TimeoutError) as away:
                why = f"{each}: {away}"
                continue
            if seen.role == "standby" and self._prefers_standby:
                if leader is not None:
                    leader[0].line.close()
                return seen, each
            if seen.role == "leader" and leader is None:
                leader = seen, each
                to_try += seen.standbys if self._prefers_standby else ()
                continue
            seen.line.close()
            to_try += [seen.leader] if seen.leader is not None else []
        if leader is None:
            raise Unavailable(f"cannot reach the service: {why}")
        return leader

    async def _greeted(self, where: Endpoint, shard: int | None) -> Seen:
        """Connect to a node, for a shard; None: for none in particular."""
        async with asyncio.timeout(_CONNECT_S):
            reader, writer = await asyncio.open_connection(where.host, where.port, ssl=self._tls)
            line = Line(reader, writer)
            try:
                words: tuple[str | int, ...] = (
                    "HELLO",
                    3,
                    *words_of(self._login),
                    *(("SHARD", shard) if shard is not None else ()),
                    "SETNAME",
                    f"fencehold-sink/{__version__}",
                )
                line.hello = await line.call(*words)
                facts, standbys = await _facts(line), await _standbys(line)
            except PermissionDenied:
                line.close()
                raise
            except FenceholdError as error:
                line.close()
                raise Unavailable(str(error)) from error
            except BaseException:
                line.close()
                raise
        leader = facts["leader_address"]
        return Seen(line, facts["role"], int(facts["position"]), standbys, endpoint(leader) if leader else None)


async def _facts(line: Line) -> dict[str, str]:
    """What a node shows of itself to every client."""
    told: bytes = await line.call("INFO")
    facts = (fact.partition(":") for fact in told.decode().splitlines())
    return {key: value for key, _, value in facts}


async def _standbys(line: Line) -> tuple[Endpoint, ...]:
    """The addresses of standbys: those are for administrators. Other users read from nodes that their URL
    names."""
    if not (await line.call("WHOAMI"))[b"admin"]:
        return ()
    told: dict[bytes, Any] = await line.call("NODE.LIST")
    return tuple(endpoint(each[b"address"].decode()) for each in told[b"standbys"])


def _tls_of(address: ServiceAddress) -> ssl.SSLContext | None:
    return None if address.tls is None else client_context(address.tls.over(files_of_environment()))
