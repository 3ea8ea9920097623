"""The tables, and every statement: each is one transaction, decides by itself, and runs under READ COMMITTED.

::

    journal    one row: format, epoch, trimmed (entries up to there are gone, and a snapshot covers them)
    entries    position, epoch, entry: all from trimmed + 1 to the end, and some that wait to be deleted
    snapshot   one row: id of the current snapshot (0: none), position, chunks, bytes; drafts begun so far
    chunks     snapshot id, number, data: of the current snapshot, of drafts, and some that wait to be deleted

Why READ COMMITTED is enough:

1. An append locks the row of the journal first, and holds that lock until it has committed. Taking an epoch
   updates that row, so it waits for an append under way, and an append waits for it. That is what seals.
2. A statement that waited for a lock sees the row as it is *then*, whatever its statement saw when it began: READ
   COMMITTED takes the newest version of a row that was updated meanwhile. So an append that began before an epoch
   was taken and got the lock after that finds the new epoch, and inserts nothing.
3. All else in a statement is as it was when the statement *began*. So nothing that others may change meanwhile is
   decided that way, but by the row that is locked or by a unique key, which counts what is not visible yet, too:
   two entries for one position never both come in. Where a negative answer may be old, it is asked for once more
   in a statement of its own.
4. A lock leaves a mark in the log, so a statement that took one waits, when it commits, until all before it is
   as durable as was asked: on disk here, and on standbys that are synchronous.
"""

from typing import NamedTuple

FORMAT = 1


class Statements(NamedTuple):
    """The statements on one schema."""

    has_tables: str = "SELECT to_regclass('{schema}.journal') IS NOT NULL, to_regnamespace('{schema}') IS NOT NULL"

    # $1 position, $2 epoch, $3 entry -> the newest epoch, whether it was entered.
    append: str = """
        WITH seat AS (
            SELECT epoch, trimmed FROM {schema}.journal WHERE one FOR NO KEY UPDATE
        ), entered AS (
            INSERT INTO {schema}.entries (position, epoch, entry)
            SELECT $1, epoch, $3 FROM seat
            WHERE epoch = $2 AND trimmed < $1
            AND (trimmed = $1 - 1 OR EXISTS (SELECT FROM {schema}.entries WHERE position = $1 - 1))
            ON CONFLICT (position) DO NOTHING
            RETURNING position
        )
        SELECT epoch, EXISTS (SELECT FROM entered) FROM seat
    """
    # As above -> the newest epoch, trimmed, whether what is at the position is that; null if nothing is there.
    look: str = """
        SELECT journal.epoch, trimmed, entries.epoch = $2 AND entry = $3
        FROM {schema}.journal LEFT JOIN {schema}.entries ON position = $1 WHERE one
    """
    lead: str = "UPDATE {schema}.journal SET epoch = epoch + 1 WHERE one RETURNING epoch"
    # $1 epoch -> the next one; nothing if that is not the newest.
    lead_after: str = "UPDATE {schema}.journal SET epoch = epoch + 1 WHERE one AND epoch = $1 RETURNING epoch"

    # $1 position -> format, the newest epoch, trimmed, the end, the epoch of the entry at the position.
    state: str = """
        SELECT format, epoch, trimmed, GREATEST(trimmed, (SELECT max(position) FROM {schema}.entries)),
        (SELECT epoch FROM {schema}.entries WHERE position = $1) FROM {schema}.journal WHERE one
    """
    # $1 position, $2 rows, $3 bytes -> the entries after it: so many, and no more once so many bytes are there.
    page: str = """
        SELECT position, epoch, entry FROM (
            SELECT position, epoch, entry,
            sum(octet_length(entry)) OVER (ORDER BY position) - octet_length(entry) AS before
            FROM (
                SELECT position, epoch, entry FROM {schema}.entries WHERE position > $1 ORDER BY position LIMIT $2
            ) AS following
        ) AS summed WHERE before < $3 ORDER BY position
    """

    # -> the current snapshot: id, position, chunks, bytes.
    stands: str = "SELECT id, position, chunks, bytes FROM {schema}.snapshot WHERE one"
    begin_draft: str = "UPDATE {schema}.snapshot SET drafts = drafts + 1 WHERE one RETURNING drafts"
    add_chunk: str = (
        "INSERT INTO {schema}.chunks (snapshot, number, data) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING"
    )
    # $1 id, $2 position, $3 chunks, $4 bytes. Ids only grow: what was deleted as older can never be current again.
    publish: str = """
        UPDATE {schema}.snapshot SET id = $1, position = $2, chunks = $3, bytes = $4
        WHERE one AND id < $1 AND position <= $2
    """
    # Two locks first, each in a statement of its own: the third sees all that was entered before it had them.
    seed: str = """
        SELECT FROM {schema}.journal WHERE one FOR NO KEY UPDATE;
        SELECT FROM {schema}.snapshot WHERE one FOR NO KEY UPDATE;
        WITH begun AS (
            UPDATE {schema}.journal SET trimmed = {position} WHERE one AND trimmed = 0
            AND NOT EXISTS (SELECT FROM {schema}.entries)
            AND EXISTS (SELECT FROM {schema}.snapshot WHERE one AND id = 0)
            RETURNING one
        )
        UPDATE {schema}.snapshot SET id = {id}, position = {position}, chunks = {chunks}, bytes = {bytes}
        WHERE one AND EXISTS (SELECT FROM begun)
    """
    # $1 id, $2 the first, $3 how many
    read_chunks: str = (
        "SELECT data FROM {schema}.chunks WHERE snapshot = $1 AND number >= $2 ORDER BY number LIMIT $3"
    )
    discard: str = "DELETE FROM {schema}.chunks WHERE snapshot = $1"

    cover: str = """
        UPDATE {schema}.journal SET trimmed = snapshot.position FROM {schema}.snapshot
        WHERE journal.one AND snapshot.one AND id > 0 AND snapshot.position > trimmed
    """
    first: str = "SELECT trimmed, (SELECT min(position) FROM {schema}.entries) FROM {schema}.journal WHERE one"
    # $1 from, $2 up to
    delete_entries: str = "DELETE FROM {schema}.entries WHERE position BETWEEN $1 AND $2"
    # $1 how many
    delete_chunks: str = """
        DELETE FROM {schema}.chunks WHERE (snapshot, number) IN (
            SELECT snapshot, number FROM {schema}.chunks
            WHERE snapshot < (SELECT id FROM {schema}.snapshot WHERE one) LIMIT $1
        ) RETURNING number
    """
    # Never shortened: that would lock out appends for a moment, and the room is needed again soon.
    vacuum_entries: str = "VACUUM (TRUNCATE FALSE, SKIP_LOCKED) {schema}.entries"
    vacuum_chunks: str = "VACUUM (TRUNCATE FALSE, SKIP_LOCKED) {schema}.chunks"

    # -> bytes of the database without our large tables, and what those hold. Lengths are known without reading
    # what is stored apart, so this looks at one short row for each entry.
    room: str = """
        SELECT pg_database_size(current_database()) - pg_total_relation_size('{schema}.entries')
        - pg_total_relation_size('{schema}.chunks'),
        ((SELECT coalesce(sum(octet_length(entry) + 64), 0) FROM {schema}.entries)
        + (SELECT coalesce(sum(octet_length(data)), 0) FROM {schema}.chunks))::bigint
    """

    # The lock is for nodes that come up at the same time: CREATE … IF NOT EXISTS alone fails for one of them.
    lock_creation: str = "SELECT pg_advisory_xact_lock(7011869870133174853);"
    create_schema: str = "CREATE SCHEMA IF NOT EXISTS {schema};"
    create_tables: str = f"""
        CREATE TABLE IF NOT EXISTS {{schema}}.journal (
            one boolean PRIMARY KEY CHECK (one), format integer NOT NULL,
            epoch bigint NOT NULL, trimmed bigint NOT NULL
        );
        CREATE TABLE IF NOT EXISTS {{schema}}.entries (
            position bigint PRIMARY KEY, epoch bigint NOT NULL, entry bytea NOT NULL
        ) WITH (vacuum_truncate = off, autovacuum_vacuum_insert_threshold = -1);
        CREATE TABLE IF NOT EXISTS {{schema}}.snapshot (
            one boolean PRIMARY KEY CHECK (one), id bigint NOT NULL, position bigint NOT NULL,
            chunks bigint NOT NULL, bytes bigint NOT NULL, drafts bigint NOT NULL
        );
        CREATE TABLE IF NOT EXISTS {{schema}}.chunks (
            snapshot bigint, number bigint, data bytea NOT NULL, PRIMARY KEY (snapshot, number)
        ) WITH (vacuum_truncate = off, autovacuum_vacuum_insert_threshold = -1);
        ALTER TABLE {{schema}}.entries ALTER COLUMN entry SET STORAGE EXTERNAL;
        ALTER TABLE {{schema}}.chunks ALTER COLUMN data SET STORAGE EXTERNAL;
        INSERT INTO {{schema}}.journal SELECT true, {FORMAT}, 0, 0
        WHERE NOT EXISTS (SELECT FROM {{schema}}.journal) AND NOT EXISTS (SELECT FROM {{schema}}.entries);
        INSERT INTO {{schema}}.snapshot SELECT true, 0, 0, 0, 0, 0
        WHERE NOT EXISTS (SELECT FROM {{schema}}.snapshot) AND NOT EXISTS (SELECT FROM {{schema}}.chunks)
    """


def statements_on(schema: str) -> Statements:
    """The statements, on the tables of one schema."""
    quoted = f'"{schema}"'
    return Statements(*(text.replace("{schema}", quoted) for text in Statements()))
