"""Locks in the majority of several Redises: the algorithm known as Redlock.

1. *A name is held by the client that has it in a majority.* All are sent the request at once, each with a timeout
   that is small against the ttl, and late replies are not waited for once a majority has decided.
2. *A grant is trusted for its ttl from before the first request was sent, less what clocks may drift*: a hundredth
   and two milliseconds, as published, and a little more, as everywhere here.
3. *An attempt that failed is undone in all*, also in those that did not answer, before the next; and the next one
   comes after a random pause, so that clients that got some each do not do so again.
4. *An attempt has a number*: undoing it does not touch a later one of the same ask, however late it comes.
5. *A renewal needs a majority that still has it*, and never sets a key that is gone.
6. *There is no queue, and no fence.* A waiter polls after a random pause. Of the waiters in one client only the
   first does, so that a crowd sends no more requests than one would; it is woken up when the name was released in
   the same client.
"""

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from fencehold.backends.lease import explanation as seen
from fencehold.backends.lease.store import Busy, Taken
from fencehold.backends.port import Ask, Lease, Settings
from fencehold.backends.redlock import quorum
from fencehold.backends.redlock.quorum import QuorumPoll, QuorumQuestion, Votes, failure
from fencehold.drivers.resp.address import RedlockAddress
from fencehold.drivers.resp.client import RespClient
from fencehold.drivers.resp.connection import connect
from fencehold.drivers.resp.failures import final_among
from fencehold.errors import FenceholdError, Unavailable
from fencehold.guarantees import Guarantees
from fencehold.locks.clock import Clock, clock
from fencehold.locks.terms import ms_of
from fencehold.locks.trust import margin
from fencehold.locks.views import Explanation

_RENEWED_AT_ONCE = 256
_RETRY_S_MIN, _RETRY_S_MAX = 0.01, 0.2
_ALIVE_S = 5 * _RETRY_S_MAX
"""The first waiter of a client is skipped if it did not poll for so long, plus the time that a poll lasts."""
_NODE_S_MIN, _NODE_S_MAX = 0.1, 1.0
_NODES_PER_TTL = 50
"""The timeout of one node is so small a part of the ttl."""
_ANSWER_S_MIN = 0.25
_VALUE_WORDS = 4


class _FrontWaiter(NamedTuple):
    token: str
    asked_at: float


class FrontWaiters:
    """The first waiter of each name in one client."""

    def __init__(self, alive_s: float, clock: Clock = clock) -> None:
        self._alive_s = alive_s
        self._clock = clock
        self._firsts: dict[str, _FrontWaiter] = {}
        self._asked: set[str] = set()
        self._silent: set[str] = set()
        """The tokens of waiters: those that have sent a request, and those that never have."""

    def may_ask(self, ask: Ask) -> bool:
        """Whether an ask is the first for its name, or becomes the first."""
        now = self._clock()
        first = self._firsts.get(ask.name)
        if first is not None and first.token != ask.token and now - first.asked_at < self._alive_s:
            if ask.token not in self._asked:
                self._silent.add(ask.token)
            return False
        self._firsts[ask.name] = _FrontWaiter(ask.token, now)
        self._silent.discard(ask.token)
        return True

    def asks(self, ask: Ask) -> bool:
        """A waiter sends a request now; returns whether it does so for the first time."""
        is_new = ask.token not in self._asked
        self._asked.add(ask.token)
        return is_new

    def leave(self, ask: Ask) -> bool:
        """An ask waits no more; returns whether it may have sent a request."""
        first = self._firsts.get(ask.name)
        if first is not None and first.token == ask.token:
            del self._firsts[ask.name]
        was_silent = ask.token in self._silent
        self._silent.discard(ask.token)
        self._asked.discard(ask.token)
        return not was_silent


_stamp = lru_cache(maxsize=1_024)(seen.stamp)
"""Cached: the same owners acquire again and again."""


class RedlockStore:
    """A store in the sense of `store`."""

    thread_store = None

    def __init__(self, address: RedlockAddress, settings: Settings) -> None:
        self._address = address
        self._settings = settings
        self._size = len(address.servers)
        self._quorum = self._size // 2 + 1
        self._node_s = address.node_s or min(max(settings.ttl / _NODES_PER_TTL, _NODE_S_MIN), _NODE_S_MAX)
        self._clients: list[RespClient] = []
        self._late: set[asyncio.Task[None]] = set()
        """Requests that are still to reach nodes that are unreachable now."""
        self._firsts = FrontWaiters(_ALIVE_S + 2 * self._node_s)
        self._attempts = itertools.count(1)
        self.on_wake: Callable[[str, str], None] = lambda name, token: None

    @property
    def guarantees(self) -> Guarantees:
        return Guarantees(
            backend="redlock",
            linearizable=False,
            fenced=False,
            fence_survives_failover=False,
            fair=False,
            # It works without a minority. But a node that comes back empty can help others to a majority.
            survives_failover=False,
            frees_on_crash=self._settings.ttl,
            clocks="the times of day of a majority of the Redis servers, by which keys expire: set forward, they "
            "free what is held",
            at_least=True,
        )

    async def open(self) -> None:
        connect_s = self._settings.connect_timeout
        answer_s = min(connect_s, max(self._settings.ttl / 3, _ANSWER_S_MIN))
        self._clients = [
            RespClient(partial(connect, server, connect_s, answer_s), str(server))
            for server in self._address.servers
        ]
        for client in self._clients:
            client.start()
        try:
            await self._reach_quorum()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        for task in tuple(self._late):
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)
        await asyncio.gather(*(client.close() for client in self._clients))

    # Steps.

    async def take(self, ask: Ask, ttl: float, *, waits: bool) -> Taken | Busy:
        if not waits:
            return await self._take(ask, ttl)
        if not self._firsts.may_ask(ask):
            return _busy()
        is_new = self._firsts.asks(ask)
        try:
            taken = await self._take(ask, ttl)
        except Unavailable:
            # It was never there, so it will not be withdrawn.
            if is_new:
                self._firsts.leave(ask)
            raise
        if isinstance(taken, Taken):
            self._firsts.leave(ask)
        return taken

    async def _take(self, ask: Ask, ttl: float) -> Taken | Busy:
        attempt = next(self._attempts)
        terms = ask.terms
        stamped = _stamp(self._settings.who, ask.owner, terms.meta, terms.at_least)
        words = (ask.token, attempt, ms_of(ttl), stamped)
        votes = await self._poll(QuorumQuestion(quorum.TAKE, (self._key(ask.name),), words), self._is_settled)
        if votes.yes() >= self._quorum:
            return Taken(validity=ttl - max(margin(ttl), drift(ttl)))
        await self._take_back(ask, attempt, votes.yes())
        if len(votes.answers) < self._quorum:
            raise failure(votes, self._quorum)
        return _busy()

    async def renew(self, leases: Sequence[Lease], ttl: float) -> Sequence[bool]:
        kept: list[bool] = []
        for at in range(0, len(leases), _RENEWED_AT_ONCE):
            kept += await self._renew(leases[at : at + _RENEWED_AT_ONCE], ttl)
        return kept

    async def release(self, lease: Lease) -> bool:
        votes = await self._free(lease.ask, lease.ask.token, self._is_settled)
        if not self._is_settled(votes.answers):
            raise failure(votes, self._quorum)
        return votes.yes() >= self._quorum

    async def withdraw(self, ask: Ask) -> None:
        if not self._firsts.leave(ask):
            return
        self._has_most(await self._free(ask, ask.token, lambda _: False))

    async def look(self, name: str) -> Explanation:
        votes = self._has_most(await self._poll(QuorumQuestion(quorum.LOOK, (self._key(name),)), lambda _: False))
        owners = Counter(_owner(value) for _, _, value in votes.answers if value)
        for owner, count in owners.items():
            if count >= self._quorum:
                seen_by = [each for each in votes.answers if _owner(each[2]) == owner]
                return seen.explanation(name, [_holder(seen_by, self._quorum)])
        return seen.explanation(name, [])

    async def break_hold(self, name: str, fence: int) -> int:
        self._has_most(await self._poll(QuorumQuestion(quorum.BREAK, (self._key(name),)), lambda _: False))
        return 0

    # Inside.

    def _key(self, name: str) -> str:
        return self._address.prefix + name

    def _is_settled(self, answers: list[Any]) -> bool:
        """Whether a majority has said yes, or cannot any more."""
        yes = sum(1 for each in answers if each)
        return yes >= self._quorum or len(answers) - yes > self._size - self._quorum

    async def _poll(self, question: QuorumQuestion, is_decided: Callable[[list[Any]], bool]) -> Votes:
        return await QuorumPoll(self._clients, question, is_decided).result(self._node_s)

    async def _free(self, ask: Ask, begins: str, is_decided: Callable[[list[Any]], bool]) -> Votes:
        """Release the name in all, if the value begins so: a token, or a token and an attempt."""
        question = QuorumQuestion(quorum.FREE, (self._key(ask.name),), (begins,))
        return await QuorumPoll(self._clients, question, is_decided, self._late).result(self._node_s)

    async def _take_back(self, ask: Ask, attempt: int, count: int) -> None:
        """Undo what an attempt got, and wait until the nodes that granted it have done so."""
        await self._free(ask, f"{ask.token} {attempt} ", lambda answers: sum(answers) >= count)

    def _has_most(self, votes: Votes) -> Votes:
        """The votes, if they are a majority's.

        Raises:
            FenceholdError: they are not.
        """
        if len(votes.answers) < self._quorum:
            raise failure(votes, self._quorum)
        return votes

    async def _renew(self, leases: Sequence[Lease], ttl: float) -> list[bool]:
        keys = [self._key(lease.ask.name) for lease in leases]
        words: list[str | int] = [ms_of(ttl), *(lease.ask.token for lease in leases)]

        def per_lease(answers: list[Any]) -> list[list[int]]:
            return [[answer[at] for answer in answers] for at in range(len(leases))]

        def is_decided(answers: list[Any]) -> bool:
            return len(answers) >= self._quorum and all(map(self._is_settled, per_lease(answers)))

        votes = await self._poll(QuorumQuestion(quorum.RENEW, keys, words), is_decided)
        if not is_decided(votes.answers):
            raise failure(votes, self._quorum)
        return [sum(each) >= self._quorum for each in per_lease(votes.answers)]

    async def _reach_quorum(self) -> None:
        """Wait until a majority is connected.

        Raises:
            FenceholdError: it cannot be reached now.
        """
        reaching = [asyncio.ensure_future(client.reached()) for client in self._clients]
        errors: list[FenceholdError] = []
        try:
            for each in asyncio.as_completed(reaching):
                try:
                    await each
                except FenceholdError as error:
                    errors.append(error)
                if sum(client.connection is not None for client in self._clients) >= self._quorum:
                    return
        finally:
            for task in reaching:
                task.cancel()
            await asyncio.gather(*reaching, return_exceptions=True)
        raise _unreached(errors, self._quorum)


def _busy() -> Busy:
    return Busy(random.uniform(_RETRY_S_MIN, _RETRY_S_MAX))


def drift(ttl: float) -> float:
    """By how much clocks may drift while a lease lasts, as published."""
    return ttl / 100 + 0.002


def _unreached(errors: list[FenceholdError], quorum: int) -> FenceholdError:
    said = "; ".join(map(str, errors))
    return final_among(errors) or Unavailable(f"fewer than {quorum} Redises were reached: {said}")


def _owner(value: bytes) -> bytes:
    """The token in a value, or, if another library set it, all of it."""
    return value.partition(b" ")[0]


def _holder(seen_by: list[Any], quorum: int) -> seen.SeenHolder:
    """The holder by a majority. The name is free as soon as a majority no longer has it."""
    left_ms = sorted((left for _, left, _ in seen_by), reverse=True)[quorum - 1]
    at_ms, _, value = seen_by[0]
    words = value.decode("utf-8", "replace").split(" ", _VALUE_WORDS - 1)
    is_ours = len(words) == _VALUE_WORDS and words[2].isdecimal()
    held_for = max(0.0, (at_ms - int(words[2])) / 1000) if is_ours else None
    left = left_ms / 1000 if left_ms >= 0 else None
    return seen.holder(words[3] if is_ours else "", fence=0, mode="X", limit=0, held_for=held_for, left=left)
