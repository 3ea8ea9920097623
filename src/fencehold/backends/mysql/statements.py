"""The steps, as SQL that both MySQL 8 and MariaDB accept. Each is sent in one piece and needs nothing more.

1. A step is one transaction, and is sent whole, up to its COMMIT: a client that stops in the middle of it cannot
   keep a lock that others wait for.
2. Names are spread over some counters. A step that grants locks the counter of its name first, so grants on a
   name come one after the other; and draws its fence from it, so fences of a name only grow. Deleting leases does
   not touch it. A new counter begins at the time of day in microseconds: tables that were lost do not set it back.
3. What has expired is deleted *before* holders and waiters are counted. A renewal that comes at the same moment
   either is seen, or finds its lease gone.
4. An ask that may still arrive, though its caller no longer waits, finds a *tombstone* where its place in the
   queue would be, and is not granted. A tombstone is a place behind all others: it blocks no ask.
5. Times are the server's, in microseconds of UTC. The time of a step is that at which it began to wait for locks:
   too early, if anything, which ends a lease of its own earlier and those of others later.
6. Values are numbers, or bytes written in hexadecimal: there is nothing to escape.
"""

import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fencehold.backends.lease.queue_order import ALIVE_S

US = 1_000_000
COUNTERS = 16
NAME_BYTES_MAX = 1_024
_TOMBSTONE = (1 << 63) - 1
_TOMBSTONE_S = 300
_PURGED_MAX = 200

_NOW = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
_ALIVE = int(ALIVE_S * US)

TABLES = (
    """CREATE TABLE IF NOT EXISTS fencehold_fences (
    counter SMALLINT NOT NULL PRIMARY KEY, fence BIGINT NOT NULL
) ENGINE = InnoDB""",
    f"""CREATE TABLE IF NOT EXISTS fencehold_holds (
    token VARBINARY(64) NOT NULL PRIMARY KEY, name VARBINARY({NAME_BYTES_MAX}) NOT NULL,
    permits INT NOT NULL, fence BIGINT NOT NULL, since BIGINT NOT NULL, expires BIGINT NOT NULL,
    stamp MEDIUMBLOB NOT NULL, KEY (name)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC""",
    f"""CREATE TABLE IF NOT EXISTS fencehold_queue (
    token VARBINARY(64) NOT NULL PRIMARY KEY, name VARBINARY({NAME_BYTES_MAX}) NOT NULL,
    permits INT NOT NULL, ticket BIGINT NOT NULL, since BIGINT NOT NULL, alive BIGINT NOT NULL,
    stamp MEDIUMBLOB NOT NULL, KEY (name, ticket)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC""",
    "INSERT IGNORE INTO fencehold_fences "
    + " UNION ALL ".join(f"SELECT {each}, {_NOW}" for each in range(COUNTERS)),
)
READY = "SELECT COUNT(*) FROM fencehold_fences; SELECT 1 FROM fencehold_holds, fencehold_queue LIMIT 0"
SESSION = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES', SESSION innodb_lock_wait_timeout = 2, SESSION autocommit = 1; "
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
)


class WantedLease(NamedTuple):
    """What one acquire wants."""

    name: str
    token: str
    permits: int
    """How many may hold it at once; 0 for a lock."""
    ttl: float
    stamp: str
    waits: bool


def take(asks: Sequence[WantedLease]) -> str:
    """Grant names, or put asks into the queue. Each gives one row: the fence or 0, how many are ahead, and another
    limit, separated by commas."""
    steps = [step for wanted in asks for step in _take(wanted)]
    return ";\n".join(["START TRANSACTION", *steps, "COMMIT"])


def _take(wanted: WantedLease) -> list[str]:
    name, token, ttl, stamp = _bytes(wanted.name), _bytes(wanted.token), _us(wanted.ttl), _bytes(wanted.stamp)
    place = f"(SELECT ticket FROM fencehold_queue WHERE token = {token} AND alive > @now)"
    queues = f"@mine IS NULL AND NOT @grant AND @other = 0 AND {int(wanted.waits)}"
    row = f"{token}, {name}, {wanted.permits}, @fence + 1, @now"
    steps = [
        _locked(wanted.name),
        f"DELETE FROM fencehold_holds WHERE name = {name} AND expires <= @now",
        f"SELECT (SELECT fence FROM fencehold_holds WHERE token = {token}), {place}, held.*, ahead.* "
        "INTO @mine, @ticket, @held, @locks, @limit, @ahead, @locks_ahead, @limit_ahead FROM "
        f"(SELECT {_counted(wanted.permits)} FROM fencehold_holds WHERE name = {name}) AS held, "
        f"(SELECT {_counted(wanted.permits)} FROM fencehold_queue WHERE name = {name} AND alive > @now "
        f"AND ticket < COALESCE({place}, {_TOMBSTONE})) AS ahead",
        f"SET @other = GREATEST(@limit, @limit_ahead), @grant = @mine IS NULL AND {_is_turn(wanted.permits)}",
        f"UPDATE fencehold_fences SET fence = @fence + 1 WHERE counter = {counter(wanted.name)} "
        f"AND (@grant OR ({queues} AND @ticket IS NULL))",
        f"INSERT INTO fencehold_holds SELECT {row}, @now + {ttl}, {stamp} FROM DUAL "
        f"WHERE @grant OR @mine IS NOT NULL ON DUPLICATE KEY UPDATE expires = @now + {ttl}",
    ]
    if wanted.waits:
        steps += [
            f"DELETE FROM fencehold_queue WHERE token = {token} AND (@grant OR alive <= @now)",
            f"INSERT INTO fencehold_queue SELECT {row}, @now + {_ALIVE}, {stamp} FROM DUAL WHERE {queues} "
            f"ON DUPLICATE KEY UPDATE alive = GREATEST(alive, @now + {_ALIVE})",
        ]
    answer = "SELECT CONCAT_WS(',', IF(@grant, @fence + 1, COALESCE(@mine, 0)), @ahead, @other)"
    return [*steps, answer]


def standings(tokens: Iterable[str]) -> str:
    """How asks in the queue stand: each one's token, holders, locks among them, those ahead, locks among them."""
    held = f"FROM fencehold_holds AS held WHERE held.name = mine.name AND held.expires > {_NOW}"
    ahead = (
        f"FROM fencehold_queue AS ahead WHERE ahead.name = mine.name AND ahead.alive > {_NOW} "
        "AND ahead.ticket < mine.ticket"
    )
    return (
        f"SELECT mine.token, (SELECT COUNT(*) {held}), (SELECT COUNT(*) {held} AND held.permits = 0), "
        f"(SELECT COUNT(*) {ahead}), (SELECT COUNT(*) {ahead} AND ahead.permits = 0) "
        f"FROM fencehold_queue AS mine WHERE mine.token IN ({_list(tokens)}) AND mine.alive > {_NOW}"
    )


def stay(tokens: Iterable[str]) -> str:
    """Keep places in the queue."""
    return (
        f"UPDATE fencehold_queue SET alive = {_NOW} + {_ALIVE} "
        f"WHERE token IN ({_list(tokens)}) AND alive > {_NOW} AND ticket < {_TOMBSTONE}"
    )


def renew(tokens: Iterable[str], ttl: float) -> str:
    """Let leases last so long from now. The fourth answer: the tokens of those that were there."""
    these = f"token IN ({_list(tokens)}) AND expires > @now"
    return ";\n".join(
        [
            "START TRANSACTION",
            f"SET @now = {_NOW}",
            f"UPDATE fencehold_holds SET expires = @now + {_us(ttl)} WHERE {these}",
            f"SELECT token FROM fencehold_holds WHERE {these}",
            "COMMIT",
        ]
    )


def release(name: str, token: str, *, is_doubted: bool = False) -> str:
    """Release a name. Its first answer says whether it was held, its last who is next."""
    free = f"DELETE FROM fencehold_holds WHERE token = {_bytes(token)} AND expires > {_NOW}"
    return ";\n".join([free, *(_with_tombstone(name, token) if is_doubted else ()), _next(name)])


def withdraw(name: str, token: str, *, is_doubted: bool = False) -> str:
    """Remove all that an ask has. Its last answer says who is next."""
    if is_doubted:
        return ";\n".join([*_with_tombstone(name, token), _next(name)])
    mine = f"WHERE token = {_bytes(token)}"
    place = f"{mine} AND ticket < {_TOMBSTONE}"
    return f"DELETE FROM fencehold_holds {mine};\nDELETE FROM fencehold_queue {place};\n{_next(name)}"


def _with_tombstone(name: str, token: str) -> list[str]:
    until = f"@now + {_us(_TOMBSTONE_S)}"
    return [
        "START TRANSACTION",
        _locked(name),
        f"DELETE FROM fencehold_holds WHERE token = {_bytes(token)}",
        f"INSERT INTO fencehold_queue VALUES ({_bytes(token)}, {_bytes(name)}, 0, {_TOMBSTONE}, @now, {until}, '')"
        f" ON DUPLICATE KEY UPDATE ticket = {_TOMBSTONE}, alive = {until}",
        "COMMIT",
    ]


def break_hold(name: str, fence: int) -> str:
    """Force-release a name. The last answers: a fence above that of all holders, or 0; and who is next."""
    up_to = f" AND fence <= {fence}" if fence else ""
    return ";\n".join(
        [
            "START TRANSACTION",
            _locked(name),
            f"DELETE FROM fencehold_holds WHERE name = {_bytes(name)} AND expires > @now{up_to}",
            "SET @had = ROW_COUNT()",
            f"UPDATE fencehold_fences SET fence = @fence + 1 WHERE counter = {counter(name)} AND @had > 0",
            "COMMIT",
            "SELECT IF(@had > 0, @fence + 1, 0)",
            _next(name),
        ]
    )


def look(name: str) -> str:
    """Holders and waiters of a name: stamp, permits, fence, since when and how long still, in microseconds."""
    where = f"name = {_bytes(name)}"
    return (
        f"SELECT stamp, permits, fence, {_NOW} - since, expires - {_NOW} FROM fencehold_holds "
        f"WHERE {where} AND expires > {_NOW} ORDER BY fence; "
        f"SELECT stamp, permits, ticket, {_NOW} - since, alive - {_NOW} FROM fencehold_queue "
        f"WHERE {where} AND alive > {_NOW} AND ticket < {_TOMBSTONE} ORDER BY ticket"
    )


OLD = (
    f"SELECT token FROM fencehold_holds WHERE expires <= {_NOW} LIMIT {_PURGED_MAX}; "
    f"SELECT token FROM fencehold_queue WHERE alive <= {_NOW} LIMIT {_PURGED_MAX}"
)
"""What has expired: found without a lock, and deleted by `purge`."""


def purge(holds: list[bytes], queue: list[bytes]) -> str:
    """Delete some, if they are still expired."""
    deletes = [
        f"DELETE FROM {table} WHERE token IN ({', '.join(_hex(token) for token in tokens)}) AND {end} <= {_NOW}"
        for table, end, tokens in (
            ("fencehold_holds", "expires", holds),
            ("fencehold_queue", "alive", queue),
        )
        if tokens
    ]
    return "; ".join(deletes)


def _locked(name: str) -> str:
    row = f"SELECT fence FROM fencehold_fences WHERE counter = {counter(name)} FOR UPDATE"
    return f"SET @now = {_NOW}, @fence = ({row})"


def _counted(permits: int) -> str:
    """How many, how many of them locks, and the limit of the others, if it differs from the ask's."""
    other = f"COALESCE(MAX(IF(permits IN (0, {permits}), 0, permits)), 0)" if permits else "0"
    return f"COUNT(*), COALESCE(SUM(permits = 0), 0), {other}"


def _is_turn(permits: int) -> str:
    """The rule of `queue_order`; and an ask with a tombstone is never next."""
    if not permits:
        rule = "@held = 0 AND @ahead = 0"
    else:
        limit = f"GREATEST(@limit, @limit_ahead) = 0 AND @held + @ahead < {permits}"
        rule = f"@locks = 0 AND @locks_ahead = 0 AND {limit}"
    return f"COALESCE(@ticket, 0) < {_TOMBSTONE} AND {rule}"


def _next(name: str) -> str:
    return (
        f"SELECT token FROM fencehold_queue WHERE name = {_bytes(name)} AND alive > {_NOW} "
        f"AND ticket < {_TOMBSTONE} ORDER BY ticket LIMIT 1"
    )


def counter(name: str) -> int:
    """Which counter a name draws its fences from."""
    return zlib.crc32(name.encode()) % COUNTERS


def _us(seconds: float) -> int:
    return int(seconds * US)


def _list(tokens: Iterable[str]) -> str:
    return ", ".join(map(_bytes, tokens))


def _bytes(text: str) -> str:
    return _hex(text.encode())


def _hex(data: bytes) -> str:
    return f"x'{data.hex()}'"
