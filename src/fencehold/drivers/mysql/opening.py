"""What a server must be, and what must be there, before it is used.

1. A commit that is answered is on disk: a server that answers before is refused, unless the URL says that what it
   grants protects no state.
2. Tables are made when they are missing, if that is allowed; if not, the message has the SQL for whoever may.
   Several who do so at once do no harm.
"""

from fencehold.backends.mysql.statements import COUNTERS, READY, TABLES
from fencehold.drivers.mysql.address import MysqlAddress
from fencehold.drivers.mysql.failures import NO_TABLE, code_of
from fencehold.drivers.mysql.lines import Lines
from fencehold.errors import PermissionDenied, Unavailable, Unsupported

_SETTINGS = "SELECT @@version, @@log_bin, @@sync_binlog, @@innodb_flush_log_at_trx_commit, @@read_only"


async def prepare(lines: Lines, address: MysqlAddress) -> None:
    """See that a server can be used.

    Raises:
        Unsupported, UsageError, PermissionDenied, Unavailable: it cannot; the message says why, and what helps.
    """
    (settings,) = await lines.do(_SETTINGS, is_read=True)
    _check(settings.rows[0], address)
    if not await _is_ready(lines):
        await _make(lines, address)


def _check(settings: tuple[object, ...], address: MysqlAddress) -> None:
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
            f"fails: {', '.join(lacks)}. Set what is named to 1; or say replication=asynchronous in the URL, and "
            "use tier EFFICIENCY"
        )


async def _is_ready(lines: Lines) -> bool:
    try:
        counted, _ = await lines.do(READY, is_read=True)
    except Unavailable as error:
        if error.__cause__ is not None and code_of(error.__cause__) == NO_TABLE:
            return False
        raise
    return bool(counted.rows[0][0] == COUNTERS)


async def _make(lines: Lines, address: MysqlAddress) -> None:
    try:
        for statement in TABLES:
            await lines.do(statement, is_read=True)
    except PermissionDenied as error:
        script = ";\n".join(TABLES)
        raise PermissionDenied(
            f"{error}; have somebody who may run this in {address.database!r}, and grant SELECT, INSERT, UPDATE "
            f"and DELETE on these tables:\n{script};"
        ) from error
