"""Questions to the service that the SDK has no verb for: lists, nodes, and events from a position.

1. They open no session: a question needs none. Each login has a connection of its own, to each shard that it asks.
2. They go to the leader, which the nodes of the URL may know. A question changes nothing (it is idempotent), so it
   is retried elsewhere when a connection is lost, as long as there is time.
3. Of several shards, each is asked where it is led; what is about no shard is asked of any node. A name is asked
   for where the newest map says, and while its slot moves, wherever it is known.
4. A login is verified by the service again after a minute: a secret that was changed opens nothing here either.
5. Events are sent once each and in order, over as many connections as it takes: see `watch`.
"""

import asyncio
import ssl
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import suppress
from math import inf
from typing import Any, NamedTuple

from fencehold import __version__
from fencehold.drivers.address import Endpoint, endpoint, service_address
from fencehold.drivers.resp.wire import Elsewhere, Moved, Moving, NotAuthenticated
from fencehold.drivers.tls import ClientTls, files_for
from fencehold.errors import FenceholdError, LimitExceeded, PermissionDenied, Unavailable, UsageError
from fencehold.gateway.bounds import GatewayBounds
from fencehold.gateway.credentials import ANONYMOUS, LOGIN_S, Credentials, Voucher, not_let_in, refuse_to_lend
from fencehold.gateway.lines import Line
from fencehold.gateway.problems import Unauthenticated
from fencehold.gateway.watch import AGAIN_S, Told, Watch
from fencehold.locks.places import Places
from fencehold.placement.map import ShardMap, SlotRange, even_map
from fencehold.types import CORRECTNESS, Tier

_GREET_S = 2.5
"""How long one node of several may take to answer the greeting."""


class _Key(NamedTuple):
    """Whose connection it is, and where to."""

    credentials: Credentials | None
    tier: Tier
    shard: int | None


class Questions:
    """The questions of all clients of a gateway."""

    def __init__(
        self,
        url: str,
        tls: ssl.SSLContext | None,
        bounds: GatewayBounds,
        *,
        voucher: Voucher | None = None,
        connect_timeout_s: float = 5.0,
    ) -> None:
        self._voucher = voucher or Voucher()
        address = service_address(url)
        self._endpoints = address.endpoints
        self._own = Credentials(address.user, address.secret)
        self._files = files_for(address)
        # As in a client of the SDK: a context that was given counts, whatever the URL says.
        self._tls = ClientTls(self._files) if tls is None and self._files is not None else tls
        self._bounds = bounds
        self._timeout_s = connect_timeout_s
        self.login_s = LOGIN_S
        self._lines: OrderedDict[_Key, Line] = OrderedDict()
        self._lines_here: OrderedDict[Credentials | None, Line] = OrderedDict()
        self._left: list[Line] = []
        """Connections that were replaced, until they are closed."""
        self._map: ShardMap | None = None
        """The newest map known; None: no node has greeted yet."""
        self._leaders: dict[int, Endpoint] = {}
        """Where each shard of several was led last."""
        self._late: dict[Endpoint, None] = {}
        """Nodes that did not greet in time: others are tried first."""
        self._probes_refused_at = -inf
        """When a node last refused the gateway's own login."""
        self.watching = 0
        """How many clients watch."""

    async def ask(
        self,
        credentials: Credentials | None,
        tier: Tier,
        *words: str | int,
        shard: int | None = None,
        within_s: float | None = None,
    ) -> Any:
        """The reply to a question of a client, or of the gateway itself (None), by the leader.

        Of several shards it is the leader of the one given; without one, any node.

        Raises:
            Unavailable: none was reached in time.
            FenceholdError: the error of the service.
        """
        key, within_s = _Key(credentials, tier, shard), within_s or self._timeout_s
        try:
            async with asyncio.timeout(within_s):
                while True:
                    try:
                        return await (await self._line(key)).call(*words)
                    except Moved:
                        raise
                    except Unavailable:
                        self._drop(key)
                        await asyncio.sleep(AGAIN_S)
        except TimeoutError:
            what = "the service" if shard is None else f"shard {shard}"
            raise Unavailable(f"{what} was not reached within {within_s:g} s") from None
        except PermissionDenied as denied:
            raise _told(denied, credentials) from denied

    async def log_in(self, credentials: Credentials) -> dict[bytes, Any]:
        """Verify a login with the service again (WHOAMI). It opens no session.

        Raises:
            Unauthenticated: it is refused.
            Unavailable: it was not reached in time.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                line = await self._connect(_Key(credentials, CORRECTNESS, None), is_any=True)
                try:
                    told: dict[bytes, Any] = await line.call("WHOAMI")
                    return told
                finally:
                    line.close()
        except TimeoutError:
            raise Unavailable(f"the service was not reached within {self._timeout_s:g} s") from None

    async def shards(self, credentials: Credentials | None) -> int:
        """How many the service has.

        Raises: as `ask`.
        """
        if self._map is None:
            await self.ask(credentials, CORRECTNESS, "PING")
        return 1 if self._map is None else self._map.shards

    def home_of(self, name: str) -> int:
        """The shard of a name, by the newest map that is known."""
        return 0 if self._map is None else self._map.shard_of_name(name)

    async def ask_about(
        self, credentials: Credentials | None, tier: Tier, name: str, *words: str | int
    ) -> tuple[int, Any]:
        """The reply to a question about a name, and the shard that knows it.

        Raises: as `ask`.
        """
        shards = await self.shards(credentials)
        if shards == 1 or self._map is None:
            return 0, await self.ask(credentials, tier, *words)
        home = self._map.shard_of_name(name)
        try:
            return home, await self.ask(credentials, tier, *words, shard=home)
        except (Elsewhere, Moving):
            raise
        except Moved as moved:
            why = moved
            await self._read_map(credentials, tier, home)
        # Where the newest map says; a name whose slot is moving is known where it was.
        home = self._map.shard_of_name(name)
        for shard in (home, *(each for each in range(shards) if each != home)):
            with suppress(Moved):
                return shard, await self.ask(credentials, tier, *words, shard=shard)
        raise why

    async def ask_stale(self, credentials: Credentials | None, tier: Tier, shard: int, *words: str | int) -> Any:
        """What a node has followed of a shard without a leader.

        Raises:
            Unavailable: no node was reached.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                line = await self._connect(_Key(credentials, tier, shard), is_any=True)
                try:
                    return await line.call(*words, "STALE")
                finally:
                    line.close()
        except TimeoutError:
            raise Unavailable(f"no node was reached within {self._timeout_s:g} s") from None
        except PermissionDenied as denied:
            raise _told(denied, credentials) from denied

    def has_line(self, credentials: Credentials, tier: Tier, shard: int | None) -> bool:
        """Whether a question would use a connection that is open."""
        line = self._lines.get(_Key(credentials, tier, shard))
        return line is not None and not line.is_closed

    async def events(
        self, credentials: Credentials, tier: Tier, prefix: str, after: Places | None = None
    ) -> AsyncGenerator[Told, None]:
        """First the places where it begins; then events, after these places, or from now on.

        Raises:
            Unavailable: the service is away for long.
            LimitExceeded: too many clients watch.
            UsageError: there is no such shard.
        """
        if self.watching >= self._bounds.watches_max:
            raise LimitExceeded(f"at most {self._bounds.watches_max} clients watch by this listener")
        self.watching += 1
        try:
            shards, after = await self.shards(credentials), after or {}
            if any(shard >= shards for shard in after):
                raise UsageError(f"shards are 0 to {shards - 1}, not {max(after)}")
            if shards > 1 and self.watching * shards > self._bounds.watch_lines_max:
                most = self._bounds.watch_lines_max // shards
                raise LimitExceeded(f"at most {most} clients watch {shards} shards by this listener")

            async def connect(shard: int | None) -> Line:
                return await self._connect(_Key(credentials, tier, shard))

            watch = Watch(connect, prefix, connect_timeout_s=self._timeout_s)
            told = watch.one(after.get(0)) if shards == 1 else watch.several(after, shards)
            try:
                async for each in told:
                    yield each
            finally:
                await told.aclose()
        except PermissionDenied as denied:
            raise _told(denied, credentials) from denied
        finally:
            self.watching -= 1

    async def ask_here(self, credentials: Credentials | None, *words: str | int) -> Any:
        """The reply of the first node that the URL names, whether it leads or not: about that node itself.

        Raises:
            Unavailable: it was not reached in time.
            FenceholdError: its error.
        """
        here = self._endpoints[0]
        who = None if credentials == ANONYMOUS else credentials
        try:
            async with asyncio.timeout(self._timeout_s):
                known = self._lines_here.get(who)
                if known is not None and not known.is_closed and not self._is_old(known, who):
                    # It may have been lost silently, when the node was restarted.
                    with suppress(Unavailable):
                        return await known.call(*words)
                self._leave(self._lines_here.pop(who, None))
                line = await self._greeted(here, who, None)
                self._leave(self._lines_here.pop(who, None))
                self._lines_here[who] = line
                while len(self._lines_here) > self._bounds.logins_max:
                    self._lines_here.popitem(last=False)[1].close()
                return await line.call(*words)
        except OSError as away:
            raise Unavailable(f"{here} was not reached: {away or 'it took too long'}") from None
        except PermissionDenied as denied:
            raise _told(denied, credentials) from denied

    async def roles(self) -> dict[str, str]:
        """The role of each node that the URL names; empty for one that was not reached."""
        return {str(each): await self._role(each) for each in self._endpoints}

    async def close(self) -> None:
        for line in (*self._lines.values(), *self._lines_here.values(), *self._left):
            line.close()
        self._lines.clear()
        self._lines_here.clear()

    async def _line(self, key: _Key) -> Line:
        line = self._lines.get(key)
        if line is None or line.is_closed or self._is_old(line, key.credentials):
            self._leave(self._lines.pop(key, None))
            line = await self._connect(key)
            self._leave(self._lines.pop(key, None))
            self._lines[key] = line
            while len(self._lines) > self._bounds.logins_max * (1 if self._map is None else self._map.shards):
                self._lines.popitem(last=False)[1].close()
        self._lines.move_to_end(key)
        return line

    def _leave(self, line: Line | None) -> None:
        """Close a connection in a while, if another replaced it: a caller may wait for a reply there.

        Its login may be old; or several callers asked at once, and each has opened one. Nothing else would close
        it.
        """
        left = [*self._left, *([line] if line is not None else [])]
        self._left = [each for each in left if not each.is_closed]
        for each in left:
            if each.is_closed:
                # The node may have closed it: this end is open until it is closed, too.
                each.close()
        if line is not None and not line.is_closed:
            asyncio.get_running_loop().call_later(self._timeout_s, line.close)

    def _is_old(self, line: Line, credentials: Credentials | None) -> bool:
        """Whether a client's login is to be verified again."""
        return credentials not in (None, ANONYMOUS) and line.age_s > self.login_s

    def _drop(self, key: _Key) -> None:
        line = self._lines.pop(key, None)
        if line is not None:
            line.close()

    async def _connect(self, key: _Key, *, is_any: bool = False) -> Line:
        """A connection to the leader; of several shards, if none is chosen, to any node, as with `is_any`.

        Raises:
            Unavailable: none was found.
        """
        known = self._leaders.get(key.shard) if key.shard is not None else None
        named = sorted(self._endpoints, key=lambda each: each in self._late)
        to_try, tried, why = [*([known] if known else []), *named], set[Endpoint](), "no node leads"
        while to_try:
            node = to_try.pop(0)
            if node in tried:
                continue
            tried.add(node)
            try:
                line = await self._greeted_soon(node, key, is_last=len(named) == 1)
            except (OSError, Unavailable) as away:
                why = f"{node}: {away or 'it does not greet'}"
                if key.shard is not None and node == known:
                    self._leaders.pop(key.shard, None)
                continue
            if line.leads or is_any or (key.shard is None and line.shards > 1):
                if key.shard is not None and line.leads:
                    self._leaders[key.shard] = node
                return line
            to_try[:0] = await _leader(line, key.shard)
            line.close()
        raise Unavailable(f"cannot reach the service: {why}")

    async def _greeted_soon(self, node: Endpoint, key: _Key, *, is_last: bool) -> Line:
        """Greeted by a node. Where there are others, a silent one is given up soon."""
        try:
            async with asyncio.timeout(None if is_last else _GREET_S):
                line = await self._greeted(node, key.credentials, key.tier, key.shard)
        except TimeoutError:
            self._late[node] = None
            raise
        self._late.pop(node, None)
        return line

    async def _greeted(
        self,
        node: Endpoint,
        credentials: Credentials | None,
        tier: Tier | None,
        shard: int | None = None,
        *,
        is_probe: bool = False,
    ) -> Line:
        """`is_probe`: only the greeting matters, of a node that may require authentication."""
        # Before anything is opened: a client refused here must cost the node nothing.
        user, secret = self._voucher.login_of(self._own if credentials is None else credentials)
        if is_probe and not user and not secret and (self._files is None or self._files.cert is None):
            user, secret = self._voucher.own_login()
        if credentials is not None:
            refuse_to_lend(user, self._files)
        login = ("AUTH", user or "default", secret) if user or secret else ()
        of_tier = () if tier in (None, CORRECTNESS) else ("TIER", "EFFICIENCY")
        of_shard = () if shard is None else ("SHARD", shard)
        tls = self._tls() if isinstance(self._tls, ClientTls) else self._tls
        line = Line(*await asyncio.open_connection(node.host, node.port, ssl=tls))
        try:
            words = ("HELLO", 3, *login, *of_shard, *of_tier, "SETNAME", f"fencehold-gateway/{__version__}")
            line.hello = await line.call(*words)
        except PermissionDenied as denied:
            line.close()
            raise not_let_in(denied, credentials) from denied
        except BaseException:
            line.close()
            raise
        if self._map is None or self._map.shards != line.shards:
            self._map, self._leaders = even_map(line.shards), {}
        return line

    async def shard_map(self, credentials: Credentials | None) -> tuple[ShardMap, list[str]]:
        """The map of slots to shards, and the address of the leader of each.

        Raises: as `ask`.
        """
        told = await self.ask(credentials, CORRECTNESS, "SHARD.MAP")
        return _map_in(told), [address.decode() for address in told[b"leaders"]]

    async def _read_map(self, credentials: Credentials | None, tier: Tier, shard: int) -> None:
        """Take over a newer map, if the leader of a shard knows one."""
        found = _map_in(await self.ask(credentials, tier, "SHARD.MAP", shard=shard))
        self._map = found if self._map is None else self._map.newest(found)

    async def _role(self, node: Endpoint) -> str:
        now = asyncio.get_running_loop().time()
        with suppress(OSError, TimeoutError, FenceholdError):
            async with asyncio.timeout(self._timeout_s):
                # Rate-limited: each failed login slows down all clients of this address.
                is_probe = now - self._probes_refused_at > self.login_s
                try:
                    line = await self._greeted(node, None, None, is_probe=is_probe)
                except Unauthenticated:
                    self._probes_refused_at = now if is_probe else self._probes_refused_at
                    raise
                line.close()
                return str(line.hello.get(b"role", b"").decode())
        return ""


def _told(denied: PermissionDenied, credentials: Credentials | None) -> PermissionDenied:
    """The error for a client without credentials: that it needs them; for one whose user is gone: that it is
    unknown."""
    is_nobody = credentials == ANONYMOUS or isinstance(denied, NotAuthenticated)
    return not_let_in(denied, credentials) if is_nobody else denied


async def _leader(line: Line, shard: int | None) -> list[Endpoint]:
    """Where the leader is, if this node knows."""
    with suppress(FenceholdError):
        if shard is not None:
            address = (await line.call("SHARD.MAP"))[b"leaders"][shard].decode()
        else:
            # NODE.LIST is for administrators; INFO is for all clients.
            facts = (fact.partition(b":") for fact in (await line.call("INFO")).splitlines())
            address = next((value.decode() for key, _, value in facts if key == b"leader_address"), "")
        return [endpoint(address)] if address else []
    return []


def _map_in(told: dict[bytes, Any]) -> ShardMap:
    """The map that a reply to SHARD.MAP has."""
    ranges = tuple(SlotRange(*each) for each in told[b"ranges"])
    return ShardMap(told[b"version"], told[b"shards"], ranges)
