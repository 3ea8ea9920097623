"""The store: each step is one call of a function in the database; see `tables`.

1. What an ask has sent is withdrawn on the same pipeline when its caller stops waiting, so after it.
2. A step that the database rolled back because of a conflict is retried.
3. Where a pooler may run each statement on another connection, there are no notifications, and waiters poll
   instead.
"""

import asyncio
import json
import random
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from weakref import WeakValueDictionary

from fencehold.backends.lease.explanation import SeenHolder, explanation, holder, stamp_of, waiting
from fencehold.backends.lease.store import Busy, Taken
from fencehold.backends.port import Ask, Lease, Settings
from fencehold.backends.postgres.tables import VERSION, is_made, making
from fencehold.drivers.address import Scheme, identifier, whole, word
from fencehold.drivers.postgres.address import FORM, POOLERS, PostgresAddress
from fencehold.drivers.postgres.failures import AGAIN, Rejected, refusal
from fencehold.drivers.postgres.pipeline import Param, Pipeline, Row, ask_safely, open_pipeline
from fencehold.drivers.postgres.pool import Listener, PipelinePool
from fencehold.drivers.postgres.server import ServerFacts
from fencehold.errors import FenceholdError, PermissionDenied, UsageError
from fencehold.guarantees import Guarantees
from fencehold.locks.views import Explanation, Waiting

SCHEMA = "fencehold"
TABLE = "locks"
REPLICATIONS = ("synchronous", "asynchronous")
CLOCKS = (
    "leases by the clock of the database's primary: set forward by more than 2 % of the ttl it ends leases that "
    "are still trusted, set back it makes them last longer; trust by the client's monotonic clock"
)

_TRIES = 4
_NAME_BYTES_MAX = 2_000
"""What fits into an index of Postgres beside a token."""
_SWEEP_S = 60.0


SCHEME = Scheme(
    names=("postgresql", "postgres"),
    form=FORM,
    port=5432,
    options=(
        # Together they are part of names, which Postgres cuts at 63 characters.
        identifier("schema", SCHEMA, length_max=63),
        identifier("table", TABLE, length_max=40),
        whole("connections", 4, most=64),
        word("replication", REPLICATIONS),
        word("pooler", POOLERS),
    ),
    hosts_min=0,
    has_usual_host=True,
)


class PostgresStore:
    """Belongs to the event loop it was opened on."""

    thread_store = None

    def __init__(self, address: PostgresAddress, settings: Settings) -> None:
        self.on_wake: Callable[[str, str], None] = _ignore
        self._address = address
        self._options = address.options
        self._schema, self._table = address.options["schema"], address.options["table"]
        self._settings = settings
        self._answer_s = settings.connect_timeout
        self._waiting: dict[str, str] = {}
        """The names of waiters, by token."""
        self._unanswered: WeakValueDictionary[str, Pipeline] = WeakValueDictionary()
        """The pipelines of asks whose caller stopped waiting for the reply, by token."""
        self._is_pooled = False
        self._sweeping: asyncio.Task[None] | None = None

        def call(step: str) -> str:
            """A function of ours, as a statement names it."""
            return f"{self._schema}.{self._table}_{step}_{VERSION}"

        self._take = f"SELECT * FROM {call('take')}($1, $2, $3, $4, $5, $6, $7, $8)".encode()
        self._renew = f"SELECT {call('renew')}($1, $2)".encode()
        self._give = f"SELECT {call('give')}($1, $2)".encode()
        self._leave = f"SELECT {call('leave')}($1, $2)".encode()
        self._break = f"SELECT {call('break')}($1, $2)".encode()
        self._sweep = f"SELECT {call('sweep')}()".encode()
        self._look = _LOOK.format(table=f"{self._schema}.{self._table}").encode()

    @property
    def guarantees(self) -> Guarantees:
        # With an asynchronous standby a promotion loses the last commits: grants, and the fences they drew.
        keeps = self._options["replication"] == "synchronous"
        return Guarantees(
            backend="postgresql",
            linearizable=keeps,
            fenced=True,
            fence_survives_failover=keeps,
            fair=True,
            survives_failover=keeps,
            frees_on_crash=self._settings.ttl,
            clocks=CLOCKS,
            shared=True,
            semaphores=True,
            at_least=True,
        )

    async def open(self) -> None:
        first, facts, is_pooled = await open_pipeline(
            self._address, self._settings.connect_timeout, self._answer_s
        )
        try:
            self._check(facts)
            await self._make_tables(first)
        except BaseException:
            first.end("it was not wanted")
            raise
        pooler = self._options["pooler"]
        self._is_pooled = pooler == "transaction" or (pooler == "detect" and is_pooled)
        self._pool = PipelinePool(self._connect, self._options["connections"], first)
        channel = f"fencehold_{secrets.token_hex(8)}"
        self._listener = Listener(self._connect, channel, self._on_word, self._wake_all)
        self._sweeping = asyncio.create_task(self._sweep_now_and_then())

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            await asyncio.gather(self._sweeping, return_exceptions=True)
        await self._listener.close()
        await self._pool.close()

    # Steps.

    async def take(self, ask: Ask, ttl: float, *, waits: bool) -> Taken | Busy:
        terms = ask.terms
        mode = "P" if terms.limit else "S" if terms.shared else "X"
        stamped = stamp_of(self._settings.who, ask)
        channel = self._listener.channel
        words = (_checked(ask.name), ask.token, mode, terms.limit, ttl, waits, channel, stamped)
        if waits:
            self._waiting[ask.token] = ask.name
        try:
            ((fence, retry_s, other_limit),) = await self._step(self._take, *words, token=ask.token)
        except BaseException:
            self._waiting.pop(ask.token, None)
            raise
        if other_limit is not None:
            raise UsageError(f"{terms.label} is in use as a semaphore with {int(other_limit)} permits")
        if fence is not None:
            self._waiting.pop(ask.token, None)
            return Taken(int(fence))
        if waits and not self._is_pooled:
            self._listener.begin()
        return Busy(float(retry_s or 0) if channel else None)

    async def renew(self, leases: Sequence[Lease], ttl: float) -> Sequence[bool]:
        names = {lease.ask.token: lease.ask.name for lease in leases}
        rows = await self._step(self._renew, json.dumps(names, ensure_ascii=False), ttl)
        there = {_text(token) for (token,) in rows}
        return [lease.ask.token in there for lease in leases]

    async def release(self, lease: Lease) -> bool:
        token = lease.ask.token
        ((was_there,),) = await self._step(self._give, lease.ask.name, token, token=token)
        return was_there == b"t"

    async def withdraw(self, ask: Ask) -> None:
        self._waiting.pop(ask.token, None)
        pipeline = self._unanswered.pop(ask.token, None)
        await self._step(self._leave, ask.name, ask.token, pipeline=pipeline)

    async def look(self, name: str) -> Explanation:
        holders: list[SeenHolder] = []
        queue: list[Waiting] = []
        for what, stamped, fence, mode, limit, since_s, left_s, _ in await self._step(self._look, _checked(name)):
            text, kind, since, left = _text(stamped), _text(mode), float(since_s or 0), float(left_s or 0)
            if what == b"held":
                most, number = int(limit or 0), int(fence or 0)
                holders.append(holder(text, fence=number, mode=kind, limit=most, held_for=since, left=left))
            else:
                queue.append(waiting(len(queue), text, mode=kind, name=name, waited_for=since, left=None))
        return explanation(name, holders, queue)

    async def break_hold(self, name: str, fence: int) -> int:
        ((above,),) = await self._step(self._break, _checked(name), fence)
        return int(above or 0)

    async def _step(
        self, statement: bytes, *params: Param, pipeline: Pipeline | None = None, token: str = ""
    ) -> list[Row]:
        for turn in range(1, _TRIES + 1):
            if pipeline is None or pipeline.ended.is_set():
                pipeline = await self._pool.pick()
            try:
                return await pipeline.ask(statement, *params)
            except Rejected as error:
                if error.sqlstate not in AGAIN or turn == _TRIES:
                    raise refusal(error, self._address) from error
            except asyncio.CancelledError:
                if token:
                    self._unanswered[token] = pipeline
                raise
        raise AssertionError("unreachable")

    # Waking.

    def _on_word(self, token: str) -> None:
        name = self._waiting.get(token)
        if name is not None:
            self.on_wake(name, token)

    def _wake_all(self) -> None:
        for token, name in tuple(self._waiting.items()):
            self.on_wake(name, token)

    # Connections.

    async def _connect(self) -> Pipeline:
        made, facts, _ = await open_pipeline(self._address, self._settings.connect_timeout, self._answer_s)
        try:
            self._check(facts)
        except FenceholdError:
            made.end("it was not wanted")
            raise
        return made

    def _check(self, facts: ServerFacts) -> None:
        if self._options["replication"] == "asynchronous":
            return
        if not facts.syncs:
            raise UsageError(
                f"{self._address}: fsync is off, so a crash takes back what was granted, and fences: switch "
                "it on; or add replication=asynchronous to the URL, and use tier EFFICIENCY"
            )
        if self._address.host_count > 1 and not facts.is_replicated:
            raise UsageError(
                f"{self._address}: several servers are named, but commits wait for no standby "
                "(synchronous_standby_names is empty), so a promotion takes back what was granted, and fences: "
                "name the standbys there; or add replication=asynchronous to the URL, and use tier EFFICIENCY"
            )

    async def _make_tables(self, pipeline: Pipeline) -> None:
        schema, table = self._schema, self._table
        ((there,),) = await ask_safely(pipeline, self._address, is_made(schema, table))
        if there == b"t":
            return
        try:
            await ask_safely(pipeline, self._address, making(schema, table))
        except PermissionDenied as error:
            raise PermissionDenied(
                f"{error}; the tables do not exist, and this user may not create them: have an administrator run "
                f"what this prints: python -m fencehold.backends.postgres {schema} {table}"
            ) from error

    async def _sweep_now_and_then(self) -> None:
        # With jitter, so that clients that were started together do not come together; and so that it is done
        # even if none lives for long.
        pause_s = random.uniform(-_SWEEP_S / 10, _SWEEP_S)
        while True:
            await asyncio.sleep(pause_s)
            with suppress(FenceholdError):
                await self._step(self._sweep)
            pause_s = random.uniform(0.5, 1.5) * _SWEEP_S


_LOOK = """
    SELECT 'held', stamp, fence, mode, permits, extract(epoch FROM clock_timestamp() - granted_at),
        extract(epoch FROM expires_at - clock_timestamp()), fence AS place
    FROM {table} WHERE name = $1 AND expires_at > clock_timestamp()
    UNION ALL
    SELECT 'queued', stamp, 0, mode, permits, extract(epoch FROM clock_timestamp() - queued_at), 0, ticket
    FROM {table}_queue WHERE name = $1 AND alive_until > clock_timestamp()
    ORDER BY 1, 8
"""


def _checked(name: str) -> str:
    if "\0" in name or len(name.encode()) > _NAME_BYTES_MAX:
        raise UsageError(f"a name in Postgres has no NUL, and {_NAME_BYTES_MAX} bytes at most: {name[:80]!r}")
    return name


def _text(value: bytes | None) -> str:
    return (value or b"").decode()


def _ignore(_name: str, _token: str) -> None:
    pass
