"""Clients: programs that use the SDK as applications do, and note what they asked, got and trusted.

Each process has one client at a time and several workers in it. What a worker does next is drawn by lot; whatever
it got it gives back, and when it is told to stop it comes to an end soon.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import NamedTuple

from fencehold.client.aio.client import Client, Connecting
from fencehold.client.aio.hold import Hold
from fencehold.client.aio.lock import Lock
from fencehold.client.aio.shards import ShardChannels
from fencehold.client.config import Config
from fencehold.client.connect import plan_of
from fencehold.client.joint_grant import JointGrant
from fencehold.client.protocol.session import SessionProtocol
from fencehold.core.commands import Mode
from fencehold.drivers.resp.wire import Moved
from fencehold.errors import FenceholdError, LockTimeout, UsageError
from fencehold.locks.terms import Terms
from fencehold.types import CORRECTNESS
from tests.simulation.history import NEVER, Ask, Held
from tests.simulation.process import Process


class Habits(NamedTuple):
    """What clients of a run are like."""

    workers_max: int
    hot: int
    cold: int
    think_s: float
    hold_s: float
    idle_s: float
    """Between the bursts of a worker's work."""
    burst: int
    ttls_s: tuple[float, ...]
    graces: tuple[float, ...]
    """As a share of the ttl."""
    connect_s: float
    cancelled: float
    own_ttl: float
    with_body: float
    shared: float
    semaphore: float
    several: float
    nested: float
    broken: float
    asked: float
    reopened: float
    slammed: float
    """How often a client is closed while its other workers go on."""
    groups: int = 0
    """Where there are several shards: how many tags names have, and so how many slots there are of them."""
    across: float = 0.0
    """There, too: how often names of several slots are wanted together, wherever these are."""


class Wanted(NamedTuple):
    """What one acquire asks for."""

    names: tuple[str, ...]
    mode: Mode
    limit: int
    ttl_s: float | None
    timeout_s: float | None
    delay_s: float
    is_across: bool = False
    """Whether its names may be of several shards."""

    @property
    def at_least_s(self) -> float:
        """Those with a delay keep their name for a least time, too: what is shared cannot."""
        return 0.3 if self.delay_s and self.mode is Mode.EXCLUSIVE else 0.0


class Notes:
    """Where clients note what they saw."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.asks: list[Ask] = []
        self.holds: list[Held] = []
        self.joint: list[Hold] = []
        """All holds of names in several shards: no session knows them as a whole."""
        self._watched: dict[int, tuple[Held, Hold]] = {}

    def asked(self, client: str, wanted: Wanted) -> Ask:
        ask = Ask(client, wanted.names, wanted.mode, wanted.limit, self.now_ns())
        self.asks.append(ask)
        return ask

    def ended(self, ask: Ask, outcome: str) -> None:
        ask.ended_ns, ask.outcome = self.now_ns(), outcome

    def granted(self, ask: Ask, hold: Hold) -> Held:
        self.ended(ask, "granted")
        fences = hold.fences
        ask.fence = fences[ask.names[0]]
        if isinstance(hold._grant, JointGrant):
            ask.fences = fences
            self.joint.append(hold)
        now_ns = self.now_ns()
        trusted_ns = now_ns if hold.safe_for() > 0 else NEVER
        held = Held(ask.client, ask.names, ask.mode, ask.limit, ask.fence, now_ns, trusted_ns, fences=ask.fences)
        self.holds.append(held)
        self._watched[id(held)] = (held, hold)
        hold.lost.add_callback(lambda lost: self._lost(held, lost))
        return held

    def _lost(self, held: Held, hold: Hold) -> None:
        held.lost_ns, held.lost = self.now_ns(), hold.lost.reason

    def look(self) -> None:
        """See which holds are trusted at this moment by those who have them."""
        now_ns = self.now_ns()
        for key, (held, hold) in list(self._watched.items()):
            if hold.safe_for() > 0:
                held.trusted_ns = now_ns
                if held.distrusted_ns >= 0:
                    held.relapsed_ns = now_ns
            else:
                if held.distrusted_ns < 0:
                    held.distrusted_ns = now_ns
                if hold._grant.ending:
                    del self._watched[key]

    def forget(self, client: str) -> None:
        """The client is dead: it trusts nothing any more, and what it asked will never end for anybody."""
        self._watched = {key: pair for key, pair in self._watched.items() if pair[0].client != client}
        for ask in self.asks:
            if ask.client == client and ask.ended_ns < 0:
                ask.orphaned = True


class Program:
    """What runs in one client process."""

    def __init__(
        self,
        name: str,
        process: Process,
        url: str,
        habits: Habits,
        random: Random,
        notes: Notes,
        note: Callable[[str], None],
    ) -> None:
        self.name = name
        self.process = process
        self.ttl_s = random.choice(habits.ttls_s)
        self.grace_s = round(self.ttl_s * random.choice(habits.graces), 3)
        self.is_idle = False
        self.is_closed = False
        self.client: Client | None = None
        self.kept: list[Client] = []
        self._habits = habits
        self._random = random
        self._notes = notes
        self._note = note
        self._stopping = False
        self._closing: asyncio.Event | None = None
        self._resting: dict[asyncio.Future[None], None] = {}
        numbers = count(1)
        self._config = Config(
            url=url,
            ttl=self.ttl_s,
            grace=self.grace_s,
            name=name,
            meta={"host": process.host, "pid": 1, "python": ""},
            connect_timeout=habits.connect_s,
            long_wait=0,
            clock=self.process.seconds,
            draw=random.random,
            identify=lambda: f"{name}/{next(numbers)}".rjust(12, "0"),
        )

    def protocols(self) -> Iterator[SessionProtocol]:
        """Of all clients it ever had, to all shards that they used."""
        for client in self.kept:
            shards = client._channel.shards
            channels = shards._channels.values() if isinstance(shards, ShardChannels) else (client._channel,)
            yield from (channel.protocol for channel in channels)

    # Its life.

    async def run(self) -> None:
        """Work until told to stop; then wait to be told to close."""
        self._closing = asyncio.Event()
        while True:
            self.client = await self._connected()
            self.kept.append(self.client)
            workers = self._random.randint(1, self._habits.workers_max)
            await asyncio.gather(*(self._work(self.client, number) for number in range(workers)))
            if self._stopping:
                break
            await self._close()
        self.is_idle = True
        await self._closing.wait()
        await self._close()
        self.is_closed = True

    def stop(self) -> None:
        """Come to an end soon."""
        self._stopping = True
        for future in list(self._resting):
            if not future.done():
                future.set_result(None)

    def close(self) -> None:
        """Nothing more will be asked."""
        if self._closing is not None:
            self._closing.set()

    async def _connected(self) -> Client:
        while True:
            try:
                return await Connecting(plan_of(self._config))
            except FenceholdError as error:
                self._note(f"cannot connect: {error!r}")
                await asyncio.sleep(0.3)

    async def _close(self) -> None:
        if self.client is not None:
            self._note("closes")
            client, self.client = self.client, None
            await client.close()
            self._note("is closed")

    async def _rest(self, seconds: float) -> None:
        """Sleep, unless it is time to stop."""
        if self._stopping:
            return
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        timer = loop.call_later(seconds, _wake, future)
        self._resting[future] = None
        try:
            await future
        finally:
            timer.cancel()
            self._resting.pop(future, None)

    # Its work.

    async def _work(self, client: Client, number: int) -> None:
        random, habits = self._random, self._habits
        while not self._stopping and not self._is_closed_under(client):
            for _ in range(random.randint(1, habits.burst)):
                await self._rest(random.expovariate(1 / habits.think_s))
                await self._do_something(client)
            if random.random() < habits.reopened:
                if random.random() < habits.slammed:
                    await client.close()
                return
            await self._rest(random.expovariate(1 / habits.idle_s))
        if not self._is_closed_under(client):
            await self._probe(client, number)

    async def _do_something(self, client: Client) -> None:
        draw = self._random.random()
        habits = self._habits
        try:
            if draw < habits.broken:
                await client.break_hold(self._some_name())
            elif draw < habits.broken + habits.asked:
                await client.explain(self._some_name())
            elif draw < habits.broken + habits.asked + habits.nested:
                await self._hold_two(client)
            elif self._random.random() < habits.with_body:
                await self._hold_in_body(client, self._wanted())
            else:
                await self._hold(client, self._wanted())
        except FenceholdError as error:
            self._judge(client, error)

    def _judge(self, client: Client, error: FenceholdError) -> None:
        """What an application may be told, it is told; what it may not ends the run."""
        self._note(f"{error!r}")
        if isinstance(error, UsageError) and not client._is_closed() and not self._is_closed_under(client):
            raise AssertionError(f"the program is right, and told that it is wrong: {error!r}") from error
        if isinstance(error, Moved):
            raise AssertionError(f"a client goes where a name has moved, and never says so: {error!r}") from error

    def _is_closed_under(self, client: Client) -> bool:
        return bool(client._channel.protocol.unusable)

    async def _probe(self, client: Client, number: int) -> None:
        """The world is whole again: whatever nobody holds is to be had."""
        await self._hold(
            client, Wanted((f"probe-{self.name}-{number}",), Mode.EXCLUSIVE, 0, None, None, 0), probe=True
        )

    async def _hold(self, client: Client, wanted: Wanted, probe: bool = False) -> None:
        ask = self._notes.asked(self.name, wanted)
        self._note(f"asks for {wanted}")
        hold = await self._acquired(client, wanted, ask, cancelled=0.0 if probe else self._habits.cancelled)
        if hold is not None:
            held = self._notes.granted(ask, hold)
            self._note(f"has {hold!r}")
            await self._use(hold, wanted, held)
            await self._give_back(hold, held)

    async def _acquired(self, client: Client, wanted: Wanted, ask: Ask, cancelled: float) -> Hold | None:
        task = asyncio.current_task()
        assert task is not None
        timer: asyncio.TimerHandle | None = None
        if self._random.random() < cancelled:
            delay_s = self._random.choice((0.001, 0.01, 0.3)) * 2 * self._random.random()
            timer = asyncio.get_running_loop().call_later(delay_s, task.cancel)
        try:
            hold = await _lock(client, wanted).acquire()
        except asyncio.CancelledError:
            task.uncancel()
            self._notes.ended(ask, "cancelled")
            self._note("cancelled")
            return None
        except FenceholdError as error:
            self._notes.ended(ask, type(error).__name__)
            self._judge(client, error)
            return None
        finally:
            if timer is not None:
                timer.cancel()
        if hold is None:
            self._notes.ended(ask, "timeout")
        return hold

    async def _use(self, hold: Hold, wanted: Wanted, held: Held) -> None:
        random = self._random
        for _ in range(random.choice((1, 1, 1, 2))):
            await self._rest(self._hold_s())
            if wanted.ttl_s is not None and random.random() < 0.4 and not self._stopping:
                try:
                    await hold.extend(random.choice((wanted.ttl_s, 2 * wanted.ttl_s, None)))
                except FenceholdError as error:
                    self._note(f"extending {held.fence}: {error!r}")

    async def _give_back(self, hold: Hold, held: Held) -> None:
        held.release_ns = self._notes.now_ns()
        self._note(f"releases {hold!r}")
        try:
            await hold.release()
        except FenceholdError as error:
            self._note(f"releasing {held.fence}: {error!r}")

    async def _hold_in_body(self, client: Client, wanted: Wanted) -> None:
        """As most do: the body is cancelled when the hold is lost."""
        ask = self._notes.asked(self.name, wanted)
        held: Held | None = None
        try:
            async with _lock(client, wanted) as hold:
                held = self._notes.granted(ask, hold)
                self._note(f"is in the body of {hold!r}")
                await self._rest(self._hold_s())
                held.release_ns = self._notes.now_ns()
        except LockTimeout:
            self._notes.ended(ask, "timeout")
        except FenceholdError as error:
            if held is None:
                self._notes.ended(ask, type(error).__name__)
            self._judge(client, error)

    async def _hold_two(self, client: Client) -> None:
        """One after the other, in any order: circles may form."""
        first = self._wanted()._replace(timeout_s=2.0)
        ask = self._notes.asked(self.name, first)
        hold = await self._acquired(client, first, ask, cancelled=0.0)
        if hold is not None:
            held = self._notes.granted(ask, hold)
            try:
                if not self._stopping:
                    await self._hold(client, self._wanted()._replace(timeout_s=2.0))
            finally:
                await self._give_back(hold, held)

    def _hold_s(self) -> float:
        """How long it keeps what it has: now and then for longer than it can trust it unheard."""
        random = self._random
        long_s = random.uniform(1, 3) * self.ttl_s if random.random() < 0.03 else 0.0
        return long_s + random.expovariate(1 / self._habits.hold_s)

    # What it wants.

    def _some_name(self, group: str = "") -> str:
        """One that others want, too, more often than not; with a tag, of a group or of any."""
        random, habits = self._random, self._habits
        tag = group or self._group()
        if random.random() < 0.75:
            return f"{tag}hot-{random.randrange(habits.hot)}"
        return f"{tag}cold-{random.randrange(habits.cold)}"

    def _group(self) -> str:
        return self._random.choice(tags(self._habits.groups)) if self._habits.groups else ""

    def _wanted(self) -> Wanted:
        random, habits = self._random, self._habits
        draw, ttl_s = random.random(), None
        if random.random() < habits.own_ttl:
            ttl_s = round(self.ttl_s * random.choice((0.1, 0.5, 1.5)), 3)
        timeout_s = random.choice((None, None, 0.0, 0.05, 0.5, 2.0, 2.0, 8.0))
        delay_s = random.choice((0.0,) * 9 + (0.4,))
        if draw < habits.semaphore:
            return Wanted(("permits",), Mode.PERMIT, 3, ttl_s, timeout_s, 0.0)
        if draw < habits.semaphore + habits.several:
            group = self._group()
            names = {self._some_name(group) for _ in range(random.randint(2, 3))}
            return Wanted(tuple(sorted(names)), Mode.EXCLUSIVE, 0, ttl_s, timeout_s, 0.0)
        if draw < habits.semaphore + habits.several + habits.across:
            names = {self._some_name() for _ in range(random.randint(2, 4))}
            return Wanted(tuple(sorted(names)), Mode.EXCLUSIVE, 0, ttl_s, timeout_s, 0.0, is_across=True)
        mode = Mode.SHARED if random.random() < habits.shared else Mode.EXCLUSIVE
        return Wanted((self._some_name(),), mode, 0, ttl_s, timeout_s, delay_s)


def tags(groups: int) -> list[str]:
    """What the names of each group begin with; where there are no groups, names have no tag."""
    return [f"{{{group}}}" for group in range(groups)] or [""]


def _lock(client: Client, wanted: Wanted) -> Lock[Hold]:
    ttl_s, timeout_s, shared = wanted.ttl_s, wanted.timeout_s, wanted.mode is Mode.SHARED
    if wanted.limit:
        return client.semaphore(wanted.names[0], wanted.limit, ttl=ttl_s, timeout=timeout_s)
    if len(wanted.names) > 1:
        return client.multi(wanted.names, ttl=ttl_s, timeout=timeout_s, across_shards=wanted.is_across)
    if wanted.at_least_s:
        terms = Terms(wanted.names, ttl=ttl_s, timeout=timeout_s, delay=wanted.delay_s, at_least=wanted.at_least_s)
        return client._lock(terms, CORRECTNESS)
    return client.lock(wanted.names[0], ttl=ttl_s, timeout=timeout_s, shared=shared, delay=wanted.delay_s)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
