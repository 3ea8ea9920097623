"""Load: clients at work through the SDK, on a loop of their own, and what they see written into a history.

1. Every client has one session for the whole run, and a few names that it holds for the whole run.
2. Names of a client's own are granted at once; shared ones are queued for; some who ask do not wait long. So a
   fault finds requests of every kind under way.
3. Errors are entered, and the work goes on: whether they are justified is for the checker.
4. When the load halts it leaves things as they stand: what is held then is held until the clients are closed, so
   that all of it can be compared with what the service says.

The work is done in a thread, so that whoever makes the faults may block.
"""

import asyncio
import itertools
import random
import threading
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from fencehold.aio import Client, Hold, Lock, connect
from fencehold.errors import FenceholdError
from rig.lasting import Lasting
from tests.robustness.history import Claim, History, Loss, Reading, Seen

Result = TypeVar("Result")

CALL_S = 60.0
"""How long the other thread waits for what it asked of the load."""
LOOK_S = 0.02
"""How often a hold that is kept is looked at."""


class Shape(NamedTuple):
    """How much work there is."""

    clients: int = 6
    steady: int = 2
    """Names that each client holds for the whole run."""
    own: int = 1
    shared: int = 2
    impatient: int = 1
    """Tasks of each kind, per client."""
    shared_names: int = 4
    hold_s: float = 0.01
    pause_s: float = 0.02
    wait_s: float = 0.02
    """What the impatient wait for a shared name."""
    ttl_s: float = 20.0
    grace_s: float = 5.0
    connect_timeout_s: float = 5.0


PATIENT = Shape(ttl_s=30.0, connect_timeout_s=15.0)
"""For machines that do other things, too: a slow election is no failed request."""


class Worker:
    """One client and the tasks that use it."""

    def __init__(self, client: Client, label: str, shape: Shape, history: History, seed: int) -> None:
        self.client = client
        self.label = label
        self._shape = shape
        self.is_steady = asyncio.Event()
        """Every name that is held for the whole run is held."""
        self._history = history
        self._lots = random.Random(seed)
        self._holds: dict[int, Hold] = {}
        """What it has, by fence. Kept when the task is gone: a hold that is forgotten warns."""
        self._steady = 0
        self._had_session = 0

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """All that it does at once, without end."""
        shape = self._shape
        return [
            *(self._keep(f"steady:{self.label}:{number}") for number in range(shape.steady)),
            *(self._work(f"own:{self.label}:{number}") for number in range(shape.own)),
            *(self._work("shared") for _ in range(shape.shared)),
            *(self._work("shared", shape.wait_s) for _ in range(shape.impatient)),
        ]

    async def claim(self, name: str, timeout_s: float | None = None) -> tuple[Claim, Hold | None]:
        """Ask for a name, and enter what becomes of it."""
        self._look_at_session()
        claim = Claim(self.label, self._session, name, time.monotonic())
        self._history.claims.append(claim)
        lock: Lock[Hold] = self.client.lock(name, timeout=timeout_s)
        try:
            hold = await lock.acquire()
        except FenceholdError as error:
            self._fail(claim, error)
            return claim, None
        if hold is None:
            claim.refused_at = time.monotonic()
        else:
            claim.granted_at = claim.trusted_until = time.monotonic()
            self._history.grants.add(claim.granted_at)
            self._look_at_session()
            claim.session, claim.fence = self._session, hold.fence
            self._holds[hold.fence] = hold
        return claim, hold

    async def give_back(self, claim: Claim, hold: Hold) -> None:
        """Release a hold, and enter what becomes of that."""
        self._look(claim, hold)
        del self._holds[hold.fence]
        if claim.lost:
            return
        claim.let_go_at = time.monotonic()
        try:
            await hold.release()
            claim.freed_at = time.monotonic()
        except FenceholdError as error:
            self._fail(claim, error)

    async def probe(self, name: str) -> Claim:
        """Ask for a name, and give it back."""
        claim, hold = await self.claim(name)
        if hold is not None:
            await self.give_back(claim, hold)
        return claim

    async def read(self, name: str) -> None:
        """Ask the service who holds a name."""
        asked_at = time.monotonic()
        seen = await self.client.explain(name)
        holds = tuple(Seen(holder.party.session, holder.fence) for holder in seen.holders)
        self._history.readings.append(Reading(asked_at, time.monotonic(), name, holds))

    async def _keep(self, name: str) -> None:
        """Hold a name for the whole run, and look often whether it is held still."""
        while True:
            claim, hold = await self.claim(name)
            self._steady += hold is not None
            if self._steady == self._shape.steady:
                self.is_steady.set()
            while hold is not None and not claim.lost:
                self._look(claim, hold)
                await asyncio.sleep(LOOK_S)

    async def _work(self, kind: str, timeout_s: float | None = None) -> None:
        shape, lots = self._shape, self._lots
        while True:
            name = f"shared:{lots.randrange(shape.shared_names)}" if kind == "shared" else kind
            claim, hold = await self.claim(name, timeout_s)
            if hold is not None:
                await asyncio.sleep(shape.hold_s * lots.random() * 2)
                await self.give_back(claim, hold)
            await asyncio.sleep(shape.pause_s * lots.random() * 2)

    def state(self) -> str:
        """What its client is about: whether it is connected, where, and in which session."""
        channel = self.client._channel
        reach, session = channel.protocol.connection, channel.protocol.session
        return f"{reach.phase.name.lower()} {channel.driver.endpoint}, session {session.id}"

    @property
    def _session(self) -> int:
        return self.client._channel.protocol.session.id

    def _look_at_session(self) -> None:
        """Enter that the client has another session than before."""
        session, before = self._session, self._had_session
        if session and session != before:
            self._had_session = session
            if before:
                self._lose(f"session {before}, and has {session} now")

    def _look(self, claim: Claim, hold: Hold) -> None:
        """Enter that a hold is trusted at this moment, or is no more."""
        now = time.monotonic()
        if hold.safe_for() > 0:
            claim.trusted_until = now
        elif not claim.lost:
            claim.lost = hold.lost.reason or "its trust ended"
            self._lose(f"{claim.name!r}: {claim.lost}")

    def _lose(self, what: str) -> None:
        self._history.losses.append(Loss(time.monotonic(), self.label, what))

    def _fail(self, claim: Claim, error: FenceholdError) -> None:
        claim.failure, claim.failed_at = f"{type(error).__name__}: {error}", time.monotonic()
        self._history.failures += 1


class Load(Lasting):
    """Clients of one service at work, from `start` to `stop`; or ``with``."""

    def __init__(self, url: str, shape: Shape | None = None, *, label: str = "c", seed: int = 0) -> None:
        self._label = label
        self.history = History()
        self._url = url
        self._shape = shape or Shape()
        self._seed = seed
        self._workers: list[Worker] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._started = threading.Event()
        self._closing = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: BaseException | None = None

    # For the other thread.

    def start(self) -> None:
        """Connect all clients, and return when the work is under way and every steady name is held."""
        self._thread.start()
        self._started.wait()
        self._raise()

    def halt(self) -> None:
        """Stop the work where it stands; clients stay connected, and what they hold stays held."""
        self._call(self._halt())

    def stop(self) -> None:
        """End the work, and close the clients."""
        closing_at = time.monotonic()
        if self._thread.is_alive() and self._loop is not None:
            self._loop.call_soon_threadsafe(self._closing.set)
            self._thread.join(CALL_S)
            assert not self._thread.is_alive(), "the load does not end"
        for claim in self.history.claims:
            if claim.is_held:
                # A client that is closed gives back all it has.
                claim.let_go_at = closing_at
        self._raise()

    def ask(self, label: str) -> list[Claim]:
        """Have every client ask for a name of its own, now; returns when all of them have an answer."""
        return self._call(self._ask(label))

    def read_all(self) -> int:
        """Ask the service who holds each name that is held or asked for; says how many names that were."""
        return self._call(self._read_all())

    def is_moving(self, grants: int) -> bool:
        """Whether so many were granted within the last second."""
        return len(self.history.grants.since(time.monotonic() - 1.0)) >= grants

    def states(self) -> dict[str, str]:
        """What each client is about just now."""
        return {worker.label: worker.state() for worker in self._workers}

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_S)

    def _raise(self) -> None:
        if self._failure is not None:
            raise self._failure

    # In its own thread.

    def _run(self) -> None:
        try:
            with asyncio.Runner() as runner:
                self._loop = runner.get_loop()
                runner.run(self._life())
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()

    async def _life(self) -> None:
        async with self._connected() as self._workers:
            self._tasks = [asyncio.create_task(work) for worker in self._workers for work in worker.tasks()]
            closing = asyncio.create_task(self._closing.wait())
            try:
                await asyncio.gather(*(worker.is_steady.wait() for worker in self._workers))
                self._started.set()
                await asyncio.wait({closing, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
                for task in self._tasks:
                    # None ends by itself: it was halted, or something is wrong with it.
                    if task.done() and not task.cancelled():
                        task.result()
                await closing
            finally:
                closing.cancel()
                await self._halt()

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[list[Worker]]:
        shape = self._shape
        async with AsyncExitStack() as stack:
            workers = []
            for number in range(shape.clients):
                connecting = connect(
                    self._url,
                    ttl=shape.ttl_s,
                    grace=shape.grace_s,
                    name=f"{self._label}{number}",
                    connect_timeout=shape.connect_timeout_s,
                )
                client = await stack.enter_async_context(connecting)
                workers.append(Worker(client, f"{self._label}{number}", shape, self.history, self._seed + number))
            yield workers

    async def _halt(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _ask(self, label: str) -> list[Claim]:
        return await asyncio.gather(*(worker.probe(f"{label}:{worker.label}") for worker in self._workers))

    async def _read_all(self) -> int:
        names = dict.fromkeys(claim.name for claim in self.history.claims if claim.freed_at is None)
        readers = itertools.cycle(self._workers)
        await asyncio.gather(*(worker.read(name) for name, worker in zip(names, readers, strict=False)))
        return len(names)
