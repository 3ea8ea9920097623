"""Locks in one Redis.

1. *A lock is a key of that name*, set only if it is absent, with the ask's token in it and an expiry: it and
   other libraries that lock the same key so exclude one another.
2. *Every step is one script*, so it is done whole or not at all, in one round trip.
3. *Waiters are in a queue in Redis.* A name that is free is granted to the first of them only; the release
   notifies it, by a message on the one channel of its client, on the connection that also carries its commands. A
   waiter that is no longer connected is skipped then. One that hangs is skipped after two seconds, by the next
   call; waiters call every two seconds. So one that died costs the next nothing, and one that hangs at most five
   seconds.
4. *A waiter that lost its connection* keeps its place, unless its turn came meanwhile; it calls again as soon as
   it is back.
5. *All keys expire by themselves*; the counter of fences alone stays.
"""

import secrets
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from fencehold.backends.lease import explanation as seen
from fencehold.backends.lease.explanation import stamp
from fencehold.backends.lease.store import Busy, Taken
from fencehold.backends.port import Ask, Lease, Settings
from fencehold.backends.redis import scripts
from fencehold.backends.redis.thread_store import RedisThreadStore, ScriptCall, ScriptCalls
from fencehold.drivers.resp.address import RedisAddress
from fencehold.drivers.resp.client import RespClient, Script
from fencehold.drivers.resp.connection import Connect, RespConnection, SentinelConnect, Word, ask, connect
from fencehold.errors import QueueFull, UsageError
from fencehold.guarantees import Guarantees
from fencehold.locks.terms import ms_of
from fencehold.locks.views import Explanation, Waiting

_HOLDER_WORDS = 4
_WAITER_WORDS = 5
_TOKEN_CHARS = 32
_RENEWED_AT_ONCE = 256
"""The most that one script renews: Redis does nothing else while it runs."""
_ANSWER_S_MIN = 0.25
_JITTER = 1.25
"""A waiter adds up to a quarter to its pause, as jitter: the pause is divided by this, so that it is not late."""


def _explained(name: str, reply: Any) -> Explanation:
    """Read the reply of `LOOK`."""
    at, limit, holders, queue = reply
    return seen.explanation(
        name,
        [_holder(value.decode("utf-8", "replace"), left, at, int(limit)) for value, left in holders],
        [_waiting(place, record.decode(), at, name, int(limit)) for place, record in enumerate(queue) if record],
    )


def _holder(value: str, left_ms: int, at_ms: int, limit: int) -> seen.SeenHolder:
    words = value.split(" ", _HOLDER_WORDS - 1)
    left = left_ms / 1000 if left_ms >= 0 else None
    mode = "P" if limit else "X"
    if len(words) < _HOLDER_WORDS or not (words[1].isdecimal() and words[2].isdecimal()):
        # Of another library: its owner is not known.
        return seen.holder("", fence=0, mode=mode, limit=limit, held_for=None, left=left)
    _, fence, granted, stamp = words
    held_for = max(0.0, (at_ms - int(granted)) / 1000)
    return seen.holder(stamp, fence=int(fence), mode=mode, limit=limit, held_for=held_for, left=left)


def _waiting(place: int, record: str, at_ms: int, name: str, limit: int) -> Waiting:
    _, _, since, _, stamp = record.split(" ", _WAITER_WORDS - 1)
    waited_for = max(0.0, (at_ms - int(since)) / 1000)
    return seen.waiting(place, stamp, mode="P" if limit else "X", name=name, waited_for=waited_for, left=None)


_stamp = lru_cache(maxsize=1_024)(stamp)
"""Cached: the same owners acquire again and again."""


class RedisStore:
    """Implements `LeaseStore`."""

    def __init__(self, address: RedisAddress, settings: Settings) -> None:
        self._address = address
        self._settings = settings
        self._prefix = address.prefix
        self._helpers = f"{address.prefix}fencehold:"
        self._channel = f"{self._helpers}wake:{secrets.token_hex(8)}"
        self._counter = (f"{self._helpers}fence",) if address.is_fenced else ()
        self._waiting: dict[str, str] = {}
        """The names of waiters, by token."""
        self.on_wake: Callable[[str, str], None] = lambda name, token: None
        self.thread_store = self._make_thread_store()
        """For threads that send requests themselves; None where sentinels name the server."""

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            backend="redis",
            linearizable=False,
            fenced=self._address.is_fenced,
            fence_survives_failover=False,
            fair=True,
            survives_failover=False,
            frees_on_crash=self._settings.ttl,
            clocks="the time of day of the Redis server, by which keys expire: set forward, it frees what is held",
            semaphores=True,
            at_least=True,
        )

    async def open(self) -> None:
        self._client = RespClient(
            self._connector(), str(self._address), greet=self._subscribe, on_message=self._on_message
        )
        self._client.start()
        try:
            await self._client.reached()
        except BaseException:
            await self._client.close()
            raise
        self._client.on_again = self._on_again

    async def close(self) -> None:
        await self._client.close()

    # Steps.

    async def take(self, ask: Ask, ttl: float, *, waits: bool) -> Taken | Busy:
        if waits:
            self._waiting[ask.token] = ask.name
        try:
            reply = await self._client.run(*self._taking(ask, ttl, waits=waits))
        except BaseException:
            # A waiter tries again soon without a wake-up.
            self._waiting.pop(ask.token, None)
            raise
        return self._taken(ask, reply)

    async def renew(self, leases: Sequence[Lease], ttl: float) -> Sequence[bool]:
        kept: dict[Lease, bool] = {}
        for has_limit, script in ((False, scripts.RENEW), (True, scripts.RENEW_PERMITS)):
            alike = [lease for lease in leases if bool(lease.terms.limit) is has_limit]
            for at in range(0, len(alike), _RENEWED_AT_ONCE):
                some = alike[at : at + _RENEWED_AT_ONCE]
                kept |= zip(some, await self._renew(script, some, ttl), strict=True)
        return [kept[lease] for lease in leases]

    async def release(self, lease: Lease) -> bool:
        return bool(await self._client.run(*self._freeing(lease.ask)))

    async def withdraw(self, ask: Ask) -> None:
        self._waiting.pop(ask.token, None)
        await self._client.run(*self._freeing(ask))

    async def look(self, name: str) -> Explanation:
        return _explained(name, await self._client.run(scripts.LOOK, self._keys(name), ()))

    async def break_hold(self, name: str, fence: int) -> int:
        return int(await self._client.run(scripts.BREAK, self._keys(name), (fence, name)))

    # Inside.

    def _keys(self, name: str) -> tuple[str, ...]:
        helpers = self._helpers
        return (
            self._prefix + name,
            f"{helpers}queue:{name}",
            f"{helpers}waiters:{name}",
            f"{helpers}permits:{name}",
            *self._counter,
        )

    def _taking(self, ask: Ask, ttl: float, *, waits: bool = False) -> ScriptCall:
        """A take."""
        terms = ask.terms
        words: list[Word] = [ask.token, ms_of(ttl), int(waits), self._channel, ask.name]
        words.append(_stamp(self._settings.who, ask.owner, terms.meta, terms.at_least))
        if not terms.limit:
            return ScriptCall(scripts.TAKE, self._keys(ask.name), words)
        words.append(terms.limit)
        return ScriptCall(scripts.TAKE_PERMIT, self._keys(ask.name), words)

    def _taken(self, ask: Ask, reply: Any) -> Taken | Busy:
        """What the reply to it says."""
        if isinstance(reply, int):
            self._waiting.pop(ask.token, None)
            return Taken(reply)
        why, number = reply
        if why == scripts.BUSY:
            return Busy(number / 1000 / _JITTER)
        self._waiting.pop(ask.token, None)
        if why == scripts.FULL:
            raise QueueFull(f"{number} wait for {ask.terms.label} already")
        raise UsageError(f"{ask.terms.label} is in use with the limit {number}, not {ask.terms.limit}")

    async def _renew(self, script: Script, leases: list[Lease], ttl: float) -> list[bool]:
        keys: list[str] = []
        for lease in leases:
            name, _, _, permits, *_ = self._keys(lease.ask.name)
            keys += (name, permits) if lease.terms.limit else (name,)
        kept = await self._client.run(script, keys, (ms_of(ttl), *(lease.ask.token for lease in leases)))
        return [bool(each) for each in kept]

    def _freeing(self, ask: Ask) -> ScriptCall:
        """A release, or a withdrawal."""
        script = scripts.FREE_PERMIT if ask.terms.limit else scripts.FREE
        return ScriptCall(script, self._keys(ask.name), (ask.token, ask.name))

    # The client.

    def _make_thread_store(self) -> RedisThreadStore | None:
        if self._address.sentinels:
            return None
        steps = ScriptCalls(self._taking, self._taken, self._freeing)
        return RedisThreadStore(self._address.server, steps, self._settings.connect_timeout, self._answer_s())

    def _answer_s(self) -> float:
        return min(self._settings.connect_timeout, max(self._settings.ttl / 3, _ANSWER_S_MIN))

    def _connector(self) -> Connect:
        address, connect_s, answer_s = self._address, self._settings.connect_timeout, self._answer_s()
        if address.sentinels:
            return SentinelConnect(address.sentinels, address.service, address.server, connect_s, answer_s)
        return lambda: connect(address.server, connect_s, answer_s)

    async def _subscribe(self, connection: RespConnection) -> None:
        # SUBSCRIBE is answered with a message, if it is permitted: the reply to PING shows that it is done.
        await ask(connection, ("SUBSCRIBE", self._channel), ("PING",))

    def _on_message(self, payload: bytes) -> None:
        self.on_wake(payload[_TOKEN_CHARS:].decode(), payload[:_TOKEN_CHARS].decode())

    def _on_again(self) -> None:
        for token, name in tuple(self._waiting.items()):
            self.on_wake(name, token)
