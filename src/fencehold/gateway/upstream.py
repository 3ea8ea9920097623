"""The way to the service: clients of the SDK, made with the credentials of a gateway's own client.

1. A client that opened a session has its own connection; those without a session share one for each login.
2. Sessions are opened with a grace equal to their ttl: a gateway stands between holder and service like a proxy,
   and if it ends, its clients do not learn of it before their next call. What a gateway ends itself, it closes:
   released at once.
3. A login is verified by the service again after a minute: a secret that was changed since opens nothing here, as
   it would not there. What was acquired with it lasts until its time is over.
4. A ttl that no client has requested is no longer than the quota of its principal allows.
"""

import asyncio
import ssl
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from fencehold import aio
from fencehold.drivers.address import Login, service_address, with_login
from fencehold.drivers.tls import files_for
from fencehold.errors import LimitExceeded, Overloaded, PermissionDenied, Unavailable, UsageError
from fencehold.gateway.bounds import GatewayBounds
from fencehold.gateway.credentials import (
    ANONYMOUS,
    LOGIN_S,
    Credentials,
    Voucher,
    not_let_in,
    refuse_to_lend,
)
from fencehold.gateway.questions import Questions
from fencehold.gateway.served_client import ServedClient

CLIENT_BYTES_MAX, META_BYTES_MAX = 128, 512
SHARED_TTL_S = 30.0


class Upstream:
    """One service, as a gateway reaches it."""

    def __init__(
        self,
        url: str,
        *,
        via: str,
        tls: ssl.SSLContext | None = None,
        bounds: GatewayBounds = GatewayBounds(),  # noqa: B008 - a value
        voucher: Voucher | None = None,
        questions: Questions | None = None,
        connect_timeout_s: float = 5.0,
    ) -> None:
        self.url = url
        self.via = via
        self.tls = tls
        self.bounds = bounds
        self._voucher = voucher or Voucher()
        self.questions = questions or Questions(url, tls, bounds, voucher=voucher)
        self._files = files_for(service_address(url))
        self.connect_timeout_s = connect_timeout_s
        self.login_s = LOGIN_S
        self._shared: dict[Credentials, asyncio.Task[ServedClient]] = {}
        self._shown: dict[Credentials, tuple[float, asyncio.Task[None] | None]] = {}
        """When each login was last verified by the service, and the result."""

    async def connect(
        self,
        credentials: Credentials,
        *,
        name: str,
        meta: Mapping[str, object],
        ttl_s: float,
        is_shared: bool = False,
    ) -> aio.Client:
        """A client of the SDK, with a session that is open; `is_shared`: for all clients with these credentials.

        Raises:
            Unauthenticated: the service refuses these credentials.
            UsageError, Unavailable, LimitExceeded: there is none; nothing happened.
        """
        user, secret = self._voucher.login_of(credentials, is_alone=not is_shared)
        refuse_to_lend(user, self._files)
        try:
            return await aio.connect(
                with_login(self.url, Login(user, secret)),
                ttl=ttl_s,
                grace=ttl_s,
                name=name,
                meta={**meta, "via": self.via},
                connect_timeout=self.connect_timeout_s,
                tls=self.tls,
            )
        except PermissionDenied as denied:
            raise not_let_in(denied, credentials) from denied

    async def connect_for(
        self,
        credentials: Credentials,
        *,
        name: str,
        meta: Mapping[str, object],
        ttl_s: float,
        is_shared: bool = False,
    ) -> tuple[aio.Client, float]:
        """The same for a ttl that no client has requested, and that ttl: less, where a quota allows no more.

        Raises: as `connect`.
        """
        connect = partial(self.connect, credentials, name=name, meta=meta, is_shared=is_shared)
        try:
            return await connect(ttl_s=ttl_s), ttl_s
        except LimitExceeded:
            told = await self.questions.log_in(credentials)
            most_s = told.get(b"ttl_ms_max", 0) / 1000
            if not 0 < most_s < ttl_s:
                raise
        return await connect(ttl_s=most_s), most_s

    async def shared(self, credentials: Credentials) -> ServedClient:
        """The client shared by callers without a session, one for each login."""
        task = self._shared.get(credentials)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            self._make_room()
            # Recorded before anything can interleave: two calls of one login share one connection.
            task = self._shared[credentials] = asyncio.create_task(self._made(credentials))
            self._shown.pop(credentials, None)
        client = await asyncio.shield(task)
        if credentials != ANONYMOUS:
            await self._show_again(credentials)
        return client

    async def _show_again(self, credentials: Credentials) -> None:
        """Have the service verify a login that it has not seen for a while.

        Raises:
            Unauthenticated: it is no longer valid.
        """
        now = asyncio.get_running_loop().time()
        # The first time it was shown to make the client.
        shown_at, task = self._shown.setdefault(credentials, (now, None))
        is_refused = task is not None and task.done() and _has_failed(task)
        if is_refused or now - shown_at > self.login_s:
            task = asyncio.create_task(self._show(credentials))
            self._shown[credentials] = (now, task)
        if task is not None:
            await asyncio.shield(task)

    async def _show(self, credentials: Credentials) -> None:
        # While the service is unreachable no client is admitted, and none is removed.
        with suppress(Unavailable, Overloaded):
            # Without a session: it would count against a quota of them.
            await self.questions.log_in(credentials)

    async def close(self) -> None:
        """End everything."""
        tasks, self._shared = list(self._shared.values()), {}
        shown, self._shown = [task for _, task in self._shown.values() if task is not None], {}
        for task in (*tasks, *shown):
            task.cancel()
        await asyncio.gather(*shown, return_exceptions=True)
        for made in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(made, ServedClient):
                await made.close()

    async def _made(self, credentials: Credentials) -> ServedClient:
        name = f"fencehold-{self.via}"
        client, _ = await self.connect_for(credentials, name=name, meta={}, ttl_s=SHARED_TTL_S, is_shared=True)
        return ServedClient(client, self.bounds, lambda _: None)

    def _make_room(self) -> None:
        """Drop a login that has nothing, if there are too many."""
        if len(self._shared) < self.bounds.logins_max:
            return
        for credentials, task in self._shared.items():
            if task.done() and (task.cancelled() or task.exception() is not None or task.result().is_idle):
                del self._shared[credentials]
                self._shown.pop(credentials, None)
                self._close_later(task)
                return
        raise LimitExceeded(f"this listener serves at most {self.bounds.logins_max} logins at a time")

    def _close_later(self, task: "asyncio.Task[ServedClient]") -> None:
        if not task.cancelled() and task.exception() is None:
            closing = asyncio.create_task(task.result().close())
            closing.add_done_callback(lambda done: done.cancelled() or done.exception())


def _has_failed(task: "asyncio.Task[None]") -> bool:
    return task.cancelled() or task.exception() is not None


def described(client: str, meta: Mapping[str, str], peer: str) -> dict[str, Any]:
    """How a client of the gateway is shown to others: its own description, and its address.

    Raises:
        UsageError: that is too long.
    """
    if len(client.encode()) > CLIENT_BYTES_MAX:
        raise UsageError(f"client has at most {CLIENT_BYTES_MAX} bytes")
    if sum(len(key.encode()) + len(value.encode()) for key, value in meta.items()) > META_BYTES_MAX:
        raise UsageError(f"meta has at most {META_BYTES_MAX} bytes, keys and values together")
    pid = meta.get("pid", "")
    return {"host": host_of(peer), **meta, "pid": int(pid) if pid.isdecimal() else 0}


def host_of(peer: str) -> str:
    """The host of a peer, written `ipv4:127.0.0.1:4711`, `ipv6:[::1]:4711` or `127.0.0.1:4711`."""
    address = peer.removeprefix("ipv4:").removeprefix("ipv6:")
    return address.rpartition(":")[0].strip("[]") or address
