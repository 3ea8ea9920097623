"""The address of a journal in Postgres, and what a server there must be before anything is entrusted to it.

``postgresql://[user[:password]@]host[:5432][,host…]/database[?schema=fencehold&…]``

Options of our own; all others are libpq's:

- ``schema``: where the tables are. One schema, one journal.
- ``synchronous_commit``: ``on`` (default), ``remote_apply``, or ``remote_write`` where standbys need not have
  synced. Never less: an append that was answered is on disk.
- ``room_bytes``: no more than so many bytes are to be in use by the database: no server reports what its disk has
  left.
- ``unsafe``: what the server may lack, by name and with commas between.

Each new connection is checked (`greet`):

1. It takes writes: a standby is passed over, and reported as one.
2. It keeps what it has acknowledged: `fsync` and `full_page_writes` are on. Otherwise a power loss may take back
   entries that were answered, and epochs with them, or tear the tables.
3. If the URL names several servers, one may take the place of another. Then standbys must be synchronous, or what
   was acknowledged is lost with the first server, and fences go back.

An operator who knows better says so in the URL, by name: ``unsafe=fsync``, ``full_page_writes``, ``asynchronous``.

The same question sets what our statements rely on: READ COMMITTED, commits that wait for the disk, no statement
that runs for ever, and plans that are made once and go by the keys, whatever the planner thinks of an empty table.
"""

from typing import Any, NamedTuple, Self

from psycopg import AsyncConnection

from fencehold.drivers.address import Scheme, identifier, several, whole, word
from fencehold.drivers.postgres.address import FORM, PostgresAddress, hosts_of
from fencehold.drivers.postgres.connection import Host, shown
from fencehold.drivers.postgres.server import FACTS, ServerFacts
from fencehold.errors import Unavailable, UsageError

SCHEMA = "fencehold"
IDENTIFIER_MAX = 63
"""What is longer Postgres cuts off."""
SCHEME = Scheme(
    names=("postgresql", "postgres"),
    form=FORM,
    port=5432,
    options=(
        identifier("schema", SCHEMA, length_max=IDENTIFIER_MAX),
        word("synchronous_commit", ("on", "remote_apply", "remote_write")),
        several("unsafe", ("fsync", "full_page_writes", "asynchronous")),
        whole("room_bytes", None, of="a number of bytes"),
    ),
    hosts_min=0,
    has_usual_host=True,
)
# Whether a server takes writes is checked by `greet`, with a message that helps.
_DROPPED = ("target_session_attrs", "load_balance_hosts")
_QUESTION = f"""
    SELECT {FACTS},
    (SELECT count(set_config(name, value, false)) FROM unnest($1::text[], $2::text[]) AS set (name, value))
"""
_RISKS = {
    "fsync": "does not sync what it commits (fsync is off): a power loss takes back what was acknowledged; "
    "switch it on",
    "full_page_writes": "may tear its tables in a power loss (full_page_writes is off); switch it on",
    "asynchronous": "has no synchronous standby (synchronous_standby_names is empty), but the URL names several "
    "servers: what was acknowledged is lost if another takes over; name the standbys there",
}


class PostgresJournalAddress(NamedTuple):
    """What a URL says."""

    hosts: tuple[Host, ...]
    """What libpq needs to know, for one server each, in the order they are named."""
    schema: str = SCHEMA
    synchronous_commit: str = "on"
    unsafe: frozenset[str] = frozenset()
    room_bytes: int | None = None
    """So large may the database get, by all that is in it; None: not known."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read a URL.

        Raises:
            UsageError: it is none; the message says what to write instead.
        """
        said = PostgresAddress.parse(url, SCHEME)
        params = {name: value for name, value in said.params.items() if name not in _DROPPED}
        return cls(hosts_of(params, url), **said.options)

    def of_shard(self, shard: int) -> Self:
        """The schema beside this one in which a shard has its journal.

        Raises:
            UsageError: its name would be longer than Postgres takes.
        """
        schema = f"{self.schema}_shard_{shard:04d}"
        if len(schema) > IDENTIFIER_MAX:
            raise UsageError(
                f"schema={self.schema}: with shards, its name has {IDENTIFIER_MAX - 11} characters at most"
            )
        return self._replace(schema=schema)

    def __repr__(self) -> str:
        return f"PostgresJournalAddress({self})"

    def __str__(self) -> str:
        hosts = ",".join(map(shown, self.hosts))
        return f"postgresql://{hosts}/{self.hosts[0].get('dbname', '')}?schema={self.schema}"


async def greet(
    connection: AsyncConnection[Any], address: PostgresJournalAddress, statement_timeout_s: float, name: str
) -> None:
    """Ask a server what it is, and set what we rely on.

    Raises:
        Unavailable: it is a standby.
        UsageError: it does not keep what it acknowledges.
        Unsupported: it is too old.
        psycopg.Error: it did not answer.
    """
    settings = _session_settings(address, statement_timeout_s)
    cursor = await connection.execute(_QUESTION, (list(settings), list(settings.values())), binary=True)
    row = await cursor.fetchone()
    if row is None:
        raise Unavailable(f"{name}: the server did not say what it is")
    facts = ServerFacts(*row[:-1])
    facts.check(name)
    _require("fsync", facts.syncs, address, name)
    _require("full_page_writes", facts.writes_whole_pages, address, name)
    _require("asynchronous", facts.is_replicated or len(address.hosts) == 1, address, name)


def _require(what: str, is_fine: bool, address: PostgresJournalAddress, name: str) -> None:
    if not is_fine and what not in address.unsafe:
        raise UsageError(f"{name}: the server {_RISKS[what]}, or add unsafe={what} to the URL")


def _session_settings(address: PostgresJournalAddress, statement_timeout_s: float) -> dict[str, str]:
    return {
        "synchronous_commit": address.synchronous_commit,
        "default_transaction_isolation": "read committed",
        "statement_timeout": f"{max(1, round(statement_timeout_s * 1_000))}ms",
        "idle_in_transaction_session_timeout": "10s",
        # Only what may put a commit in doubt is worth the reading.
        "client_min_messages": "warning",
        "plan_cache_mode": "force_generic_plan",
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        # Compiling a statement took 100 ms where running it took 0.1.
        "jit": "off",
    }
