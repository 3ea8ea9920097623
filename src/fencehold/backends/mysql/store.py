"""The store in MySQL or MariaDB: the port of `lease`, as steps of one round trip each.

1. A step of an ask whose caller stopped waiting is not cancelled; what it did is undone after it.
2. A step whose outcome is unknown may still be done by the server: withdrawing it, or releasing what a retry was
   granted, leaves a tombstone for it (see `statements`).
3. A waiter is woken up by `queue_watch` to ask again, and polls without that only every few seconds.
4. A commit that is answered is on disk: a server that answers before is refused, unless the URL says that what it
   grants protects no state.
5. Missing tables are created, if that is permitted; if not, the message has the SQL for an administrator. Several
   clients may do so at once.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from fencehold.backends.lease.explanation import explanation, holder, stamp_of, waiting
from fencehold.backends.lease.queue_order import QueueStanding
from fencehold.backends.lease.store import Busy, Taken
from fencehold.backends.mysql import statements
from fencehold.backends.mysql.batches import AskBatches, AskOutcome
from fencehold.backends.mysql.queue_watch import FALLBACK_S, QueueWatch
from fencehold.backends.mysql.statements import COUNTERS, NAME_BYTES_MAX, READY, TABLES, US, WantedLease
from fencehold.backends.port import Ask, Lease, Settings
from fencehold.drivers.mysql.address import MysqlAddress
from fencehold.drivers.mysql.failures import NO_TABLE, code_of
from fencehold.drivers.mysql.pool import MysqlAnswer, MysqlPool
from fencehold.errors import LimitExceeded, OutcomeUnknown, PermissionDenied, Unavailable, Unsupported
from fencehold.guarantees import Guarantees
from fencehold.locks.views import Explanation

_TOGETHER_MAX = 500
"""Leases renewed in one step."""
_DOUBTED_MAX = 10_000
_PURGE_EVERY = 256
"""Grants."""
CLOCKS = (
    "leases by the clock of the database server: set forward by more than 2 % of the ttl it ends leases that are "
    "still trusted, set back it makes them last longer; trust by the client's monotonic clock"
)
_SETTINGS = "SELECT @@version, @@log_bin, @@sync_binlog, @@innodb_flush_log_at_trx_commit, @@read_only"


class MysqlStore:
    """One server, some connections."""

    thread_store = None

    def __init__(self, address: MysqlAddress, settings: Settings) -> None:
        self._address = address
        self._settings = settings
        self._pool: MysqlPool | None = None
        self._batches: AskBatches | None = None
        self._under_way: dict[str, asyncio.Future[AskOutcome]] = {}
        """Of asks, by token."""
        self._doubted: OrderedDict[str, None] = OrderedDict()
        """The tokens of asks that the server may still process."""
        self._queue_watch: QueueWatch | None = None
        self._grants = 0
        self.on_wake: Callable[[str, str], None] = lambda name, token: None

    @property
    def guarantees(self) -> Guarantees:
        # If a server without the last commits takes over, it lacks grants, and the fences they drew.
        keeps = self._address.replication == "synchronous"
        return Guarantees(
            backend="mysql",
            linearizable=keeps,
            fenced=True,
            fence_survives_failover=keeps,
            fair=True,
            survives_failover=keeps,
            frees_on_crash=self._settings.ttl,
            clocks=CLOCKS,
            semaphores=True,
            at_least=True,
        )

    async def open(self) -> None:
        pool = MysqlPool(self._address, self._settings.connect_timeout, statements.SESSION)
        try:
            await _prepare(pool, self._address)
        except BaseException:
            await pool.close()
            raise
        self._batches = AskBatches(pool, self._address.timeout)
        self._queue_watch = QueueWatch(pool, self._on_turn)
        self._pool = pool

    async def close(self) -> None:
        pool, watch = self._pool, self._queue_watch
        self._pool = self._batches = self._queue_watch = None
        if pool is not None and watch is not None:
            await watch.close()
            await pool.close()

    async def take(self, ask: Ask, ttl: float, *, waits: bool) -> Taken | Busy:
        seen = stamp_of(self._settings.who, ask)
        wanted = WantedLease(_checked(ask.name), ask.token, ask.terms.limit, ttl, seen, waits)
        watch = self._queue_watch
        if watch is not None and watch.waits(ask.token):
            return Busy(FALLBACK_S)
        fence, _, other_limit = await self._asked(wanted)
        QueueStanding(other_limit=other_limit).check(wanted.name, wanted.permits)
        if fence:
            self._stand(wanted, is_waiting=False)
            self._count()
            return Taken(fence)
        self._stand(wanted, is_waiting=waits)
        return Busy(FALLBACK_S) if waits else Busy()

    async def renew(self, leases: Sequence[Lease], ttl: float) -> Sequence[bool]:
        kept: set[str] = set()
        for begin in range(0, len(leases), _TOGETHER_MAX):
            some = [lease.ask.token for lease in leases[begin : begin + _TOGETHER_MAX]]
            try:
                answers = await self._at.do(statements.renew(some, ttl))
            except Unavailable as error:
                raise OutcomeUnknown(f"only {begin} leases were renewed: {error}") if begin else error from error
            kept.update(_text(token) for (token,) in answers[3].rows)
        return [lease.ask.token in kept for lease in leases]

    async def release(self, lease: Lease) -> bool:
        name, token = lease.ask.name, lease.ask.token
        is_doubted = token in self._doubted
        answers = await self._at.do(statements.release(name, token, is_doubted=is_doubted))
        self._taken_out(name, token, answers[-1])
        return answers[0].changed > 0

    async def withdraw(self, ask: Ask) -> None:
        under_way = self._under_way.get(ask.token)
        if under_way is not None:
            await asyncio.wait([under_way])
        is_doubted = ask.token in self._doubted
        answers = await self._at.do(statements.withdraw(ask.name, ask.token, is_doubted=is_doubted))
        self._taken_out(ask.name, ask.token, answers[-1])

    async def look(self, name: str) -> Explanation:
        holders, queue = await self._at.do(statements.look(_checked(name)), is_read=True)
        return explanation(
            name,
            [
                holder(
                    _text(stamped),
                    fence=int(fence),
                    mode=_mode(permits),
                    limit=int(permits),
                    held_for=int(age) / US,
                    left=int(left) / US,
                )
                for stamped, permits, fence, age, left in holders.rows
            ],
            [
                waiting(place, _text(stamped), mode=_mode(permits), name=name, waited_for=int(age) / US, left=None)
                for place, (stamped, permits, _, age, _) in enumerate(queue.rows)
            ],
        )

    async def break_hold(self, name: str, fence: int) -> int:
        answers = await self._at.do(statements.break_hold(_checked(name), fence))
        self._wake(name, answers[-1])
        return int(answers[-2].rows[0][0])

    # How.

    @property
    def _at(self) -> MysqlPool:
        if self._pool is None:
            raise Unavailable("the client is closed")
        return self._pool

    def _stand(self, wanted: WantedLease, *, is_waiting: bool) -> None:
        if self._queue_watch is None:
            return
        if is_waiting:
            self._queue_watch.add(wanted)
        else:
            self._queue_watch.remove(wanted.name, wanted.token)

    async def _asked(self, wanted: WantedLease) -> AskOutcome:
        if self._batches is None:
            raise Unavailable("the client is closed")
        token = wanted.token
        asked = self._under_way[token] = self._batches.ask(wanted)
        asked.add_done_callback(lambda done: self._on_asked(token, done))
        return await asyncio.shield(asked)

    def _on_asked(self, token: str, asked: "asyncio.Future[AskOutcome]") -> None:
        if self._under_way.get(token) is asked:
            del self._under_way[token]
        if asked.cancelled() or isinstance(asked.exception(), OutcomeUnknown):
            self._doubted[token] = None
            if len(self._doubted) > _DOUBTED_MAX:
                self._doubted.popitem(last=False)

    def _taken_out(self, name: str, token: str, following: MysqlAnswer) -> None:
        self._doubted.pop(token, None)
        if self._queue_watch is not None:
            self._queue_watch.remove(name, token)
        self._wake(name, following)

    def _wake(self, name: str, following: MysqlAnswer) -> None:
        for (token,) in following.rows:
            if self._queue_watch is not None:
                self._queue_watch.call(name, _text(token))

    def _on_turn(self, name: str, token: str) -> None:
        self.on_wake(name, token)

    def _count(self) -> None:
        """Every few hundred grants, delete what has expired: rows of names that are never requested again."""
        self._grants += 1
        if self._grants % _PURGE_EVERY == 0:
            self._at.after(statements.OLD, _purge)


def _purge(answers: list[MysqlAnswer]) -> str:
    holds, queue = ([token for (token,) in answer.rows] for answer in answers)
    return statements.purge(holds, queue)


def _checked(name: str) -> str:
    size = len(name.encode())
    if size > NAME_BYTES_MAX:
        raise LimitExceeded(f"a name has at most {NAME_BYTES_MAX} bytes here, not {size}")
    return name


def _text(data: bytes | str) -> str:
    return data if isinstance(data, str) else data.decode()


def _mode(permits: int) -> str:
    return "P" if permits else "X"


async def _prepare(pool: MysqlPool, address: MysqlAddress) -> None:
    """Check that a server can be used.

    Raises:
        Unsupported, UsageError, PermissionDenied, Unavailable: it cannot; the message says why, and what helps.
    """
    (settings,) = await pool.do(_SETTINGS, is_read=True)
    _check_settings(settings.rows[0], address)
    if not await _is_ready(pool):
        await _make_tables(pool, address)


def _check_settings(settings: tuple[object, ...], address: MysqlAddress) -> None:
    version, has_log, log_syncs, syncs, is_read_only = settings
    if is_read_only:
        raise Unavailable(f"{address} takes no writes (read_only): name the server that does in the URL")
    lacks = [
        words
        for words, lacking in (
            ("innodb_flush_log_at_trx_commit is not 1", syncs != 1),
            ("sync_binlog is not 1", bool(has_log) and log_syncs != 1),
        )
        if lacking
    ]
    if lacks and address.replication == "synchronous":
        raise Unsupported(
            f"{address} ({version}) may lose grants that it has answered, and fences with them, when its machine "
            f"fails: {', '.join(lacks)}. Set what is named to 1; or add replication=asynchronous to the URL, and "
            "use tier EFFICIENCY"
        )


async def _is_ready(pool: MysqlPool) -> bool:
    try:
        counted, _ = await pool.do(READY, is_read=True)
    except Unavailable as error:
        if error.__cause__ is not None and code_of(error.__cause__) == NO_TABLE:
            return False
        raise
    return bool(counted.rows[0][0] == COUNTERS)


async def _make_tables(pool: MysqlPool, address: MysqlAddress) -> None:
    try:
        for statement in TABLES:
            await pool.do(statement, is_read=True)
    except PermissionDenied as error:
        script = ";\n".join(TABLES)
        raise PermissionDenied(
            f"{error}; have an administrator run this in {address.database!r}, and grant SELECT, INSERT, UPDATE "
            f"and DELETE on these tables:\n{script};"
        ) from error
