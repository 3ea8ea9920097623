CREATE SCHEMA IF NOT EXISTS {schema};

-- Who holds what. A name that is free has no row, or one that has expired.
CREATE TABLE IF NOT EXISTS {schema}.{table} (
    name text COLLATE "C" NOT NULL,
    token text COLLATE "C" NOT NULL,
    mode text COLLATE "C" NOT NULL,          -- X exclusive, S shared, P a permit of a semaphore
    permits integer NOT NULL,                -- how many there are; 0 if it is no semaphore
    fence bigint NOT NULL,
    granted_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    stamp text NOT NULL,                     -- JSON: who it is
    PRIMARY KEY (name, token)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

-- Who waits, in order.
CREATE TABLE IF NOT EXISTS {schema}.{table}_queue (
    name text COLLATE "C" NOT NULL,
    ticket bigint NOT NULL,
    token text COLLATE "C" NOT NULL,
    mode text COLLATE "C" NOT NULL,
    permits integer NOT NULL,
    channel text NOT NULL,                   -- where its client listens; empty if it does not
    queued_at timestamptz NOT NULL,
    alive_until timestamptz NOT NULL,        -- unless it is heard of again
    stamp text NOT NULL,
    PRIMARY KEY (name, ticket),
    UNIQUE (name, token)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);

-- Fences begin at the time of day in microseconds: made anew, they are above all that were given before.
DO $begin$ BEGIN
    IF to_regclass('{schema}.{table}_fences') IS NULL THEN
        EXECUTE format('CREATE SEQUENCE {schema}.{table}_fences CACHE 1 START %s',
            (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    END IF;
END $begin$;
CREATE SEQUENCE IF NOT EXISTS {schema}.{table}_tickets CACHE 1;

-- The beginning of each step on a name: alone, for this transaction.
CREATE OR REPLACE FUNCTION {schema}.{table}_enter_{version}(the_name text) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the isolation must be READ COMMITTED: ALTER ROLE % SET default_transaction_isolation = ''read committed''',
            quote_ident(current_user) USING ERRCODE = '25001';
    END IF;
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM set_config('lock_timeout', '2s', true);
    PERFORM pg_advisory_xact_lock(hashtextextended('{schema}.{table}:' || the_name, 7420));
END $body$;

-- Whether a name could be had beside those who held it at a moment.
CREATE OR REPLACE FUNCTION {schema}.{table}_fits_{version}(
    the_name text, the_mode text, the_permits integer, at timestamptz) RETURNS boolean
LANGUAGE plpgsql AS $body$
DECLARE
    held bigint;
    alike bigint;
BEGIN
    SELECT count(*), count(*) FILTER (WHERE l.mode = the_mode) INTO held, alike
        FROM {schema}.{table} AS l WHERE l.name = the_name AND l.expires_at > at;
    RETURN CASE the_mode WHEN 'X' THEN held = 0 WHEN 'S' THEN held = alike ELSE held = alike AND held < the_permits END;
END $body$;

-- Tell the first in the queue, if the name can be had by it now.
CREATE OR REPLACE FUNCTION {schema}.{table}_wake_{version}(the_name text) RETURNS void
LANGUAGE plpgsql AS $body$
DECLARE
    head record;
BEGIN
    SELECT q.ticket, q.token, q.mode, q.permits, q.channel INTO head FROM {schema}.{table}_queue AS q
        WHERE q.name = the_name AND q.alive_until > clock_timestamp() ORDER BY q.ticket LIMIT 1;
    IF FOUND AND {schema}.{table}_fits_{version}(the_name, head.mode, head.permits, clock_timestamp()) THEN
        UPDATE {schema}.{table}_queue AS q SET alive_until = least(q.alive_until, clock_timestamp() + interval '5 seconds')
            WHERE q.name = the_name AND q.ticket = head.ticket;
        IF head.channel <> '' THEN
            PERFORM pg_notify(head.channel, head.token);
        END IF;
    END IF;
END $body$;

-- Grant a name, or have the ask stand in the queue. One of the three that it gives is not null.
CREATE OR REPLACE FUNCTION {schema}.{table}_take_{version}(
    the_name text, the_token text, the_mode text, the_permits integer, ttl double precision, waits boolean,
    the_channel text, the_stamp text,
    OUT granted bigint, OUT retry_s double precision, OUT other_permits integer)
LANGUAGE plpgsql AS $body$
DECLARE
    at timestamptz;
    held bigint;
    expired bigint;
    fits boolean;
    first bigint;                            -- tickets: the first, whoever has it;
    head bigint;                             -- the first of those who are alive;
    head_alive_until timestamptz;
    mine bigint;
BEGIN
    PERFORM {schema}.{table}_enter_{version}(the_name);
    at := clock_timestamp();
    SELECT count(*), count(*) FILTER (WHERE l.expires_at <= at) INTO held, expired
        FROM {schema}.{table} AS l WHERE l.name = the_name;
    IF expired > 0 THEN
        -- A renewal that is under way may have saved it: the row is looked at again once it is locked. So what
        -- follows must go by the same moment, or it could take for free what was not looked at again.
        DELETE FROM {schema}.{table} AS l WHERE l.name = the_name AND l.expires_at <= at;
    END IF;
    IF held > 0 THEN
        UPDATE {schema}.{table} AS l SET expires_at = at + make_interval(secs => ttl)
            WHERE l.name = the_name AND l.token = the_token RETURNING l.fence INTO granted;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    IF the_mode = 'P' THEN
        SELECT u.permits INTO other_permits FROM (
            SELECT l.permits FROM {schema}.{table} AS l
                WHERE l.name = the_name AND l.mode = 'P' AND l.permits <> the_permits
            UNION ALL
            SELECT q.permits FROM {schema}.{table}_queue AS q
                WHERE q.name = the_name AND q.mode = 'P' AND q.permits <> the_permits AND q.alive_until > at
        ) AS u LIMIT 1;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    fits := held = 0 OR {schema}.{table}_fits_{version}(the_name, the_mode, the_permits, at);

    SELECT q.ticket INTO first FROM {schema}.{table}_queue AS q WHERE q.name = the_name ORDER BY q.ticket LIMIT 1;
    IF FOUND THEN
        SELECT q.ticket, q.alive_until INTO head, head_alive_until FROM {schema}.{table}_queue AS q
            WHERE q.name = the_name AND (q.alive_until > at OR q.token = the_token) ORDER BY q.ticket LIMIT 1;
        IF head IS DISTINCT FROM first THEN
            -- Those before the first who is alive are gone.
            DELETE FROM {schema}.{table}_queue AS q WHERE q.name = the_name AND (head IS NULL OR q.ticket < head);
        END IF;
        SELECT q.ticket INTO mine FROM {schema}.{table}_queue AS q WHERE q.name = the_name AND q.token = the_token;
    END IF;

    IF fits AND (head IS NULL OR head = mine) THEN
        INSERT INTO {schema}.{table} AS l (name, token, mode, permits, fence, granted_at, expires_at, stamp)
            VALUES (the_name, the_token, the_mode, the_permits, nextval('{schema}.{table}_fences'), at,
                at + make_interval(secs => ttl), the_stamp)
            RETURNING l.fence INTO granted;
        IF mine IS NOT NULL THEN
            DELETE FROM {schema}.{table}_queue AS q WHERE q.name = the_name AND q.ticket = mine;
        END IF;
        IF the_mode <> 'X' AND head IS NOT NULL THEN
            PERFORM {schema}.{table}_wake_{version}(the_name);
        END IF;
        RETURN;
    END IF;

    IF waits AND mine IS NULL THEN
        INSERT INTO {schema}.{table}_queue (name, ticket, token, mode, permits, channel, queued_at, alive_until, stamp)
            VALUES (the_name, nextval('{schema}.{table}_tickets'), the_token, the_mode, the_permits, the_channel, at,
                at + interval '10 seconds', the_stamp);
    ELSIF waits THEN
        -- Those who try often need not write each time.
        UPDATE {schema}.{table}_queue AS q SET alive_until = at + interval '10 seconds', channel = the_channel
            WHERE q.name = the_name AND q.ticket = mine
            AND (q.alive_until < at + interval '7 seconds' OR q.channel <> the_channel);
    END IF;
    IF head <> first AND head IS DISTINCT FROM mine THEN
        PERFORM {schema}.{table}_wake_{version}(the_name);
    END IF;
    -- When this may change without anybody saying so.
    IF fits THEN
        retry_s := extract(epoch FROM head_alive_until - at);
    ELSE
        SELECT extract(epoch FROM min(l.expires_at) - at) INTO retry_s FROM {schema}.{table} AS l WHERE l.name = the_name;
    END IF;
    retry_s := least(greatest(coalesce(retry_s, 0), 0.002), 3);
END $body$;

-- Let leases last so long from now: those of them that are still there. The leases are a JSON object, name by token.
CREATE OR REPLACE FUNCTION {schema}.{table}_renew_{version}(leases json, ttl double precision) RETURNS SETOF text
LANGUAGE plpgsql AS $body$
BEGIN
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM set_config('lock_timeout', '2s', true);
    RETURN QUERY UPDATE {schema}.{table} AS l SET expires_at = clock_timestamp() + make_interval(secs => ttl)
        FROM json_each_text(leases) AS asked (token, name)
        WHERE l.name = asked.name AND l.token = asked.token AND l.expires_at > clock_timestamp()
        RETURNING l.token;
END $body$;

-- Free a name; says whether the lease still had it.
CREATE OR REPLACE FUNCTION {schema}.{table}_give_{version}(the_name text, the_token text) RETURNS boolean
LANGUAGE plpgsql AS $body$
DECLARE
    ended timestamptz;
BEGIN
    PERFORM {schema}.{table}_enter_{version}(the_name);
    DELETE FROM {schema}.{table} AS l WHERE l.name = the_name AND l.token = the_token RETURNING l.expires_at INTO ended;
    PERFORM {schema}.{table}_wake_{version}(the_name);
    RETURN coalesce(ended > clock_timestamp(), false);
END $body$;

-- Take out whatever an ask has.
CREATE OR REPLACE FUNCTION {schema}.{table}_leave_{version}(the_name text, the_token text) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    PERFORM {schema}.{table}_enter_{version}(the_name);
    DELETE FROM {schema}.{table} AS l WHERE l.name = the_name AND l.token = the_token;
    DELETE FROM {schema}.{table}_queue AS q WHERE q.name = the_name AND q.token = the_token;
    PERFORM {schema}.{table}_wake_{version}(the_name);
END $body$;

-- Take a name from those who hold it, up to a fence if one is given; gives a fence above theirs, or 0.
CREATE OR REPLACE FUNCTION {schema}.{table}_break_{version}(the_name text, up_to bigint) RETURNS bigint
LANGUAGE plpgsql AS $body$
DECLARE
    broken boolean;
BEGIN
    PERFORM {schema}.{table}_enter_{version}(the_name);
    WITH gone AS (
        DELETE FROM {schema}.{table} AS l WHERE l.name = the_name AND (up_to = 0 OR l.fence <= up_to)
        RETURNING l.expires_at
    ) SELECT bool_or(gone.expires_at > clock_timestamp()) INTO broken FROM gone;
    PERFORM {schema}.{table}_wake_{version}(the_name);
    RETURN CASE WHEN broken THEN nextval('{schema}.{table}_fences') ELSE 0 END;
END $body$;

-- Remove some of what has expired long ago, and of those who stopped waiting: of names that nobody asks for again.
CREATE OR REPLACE FUNCTION {schema}.{table}_sweep_{version}() RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    DELETE FROM {schema}.{table} AS l WHERE (l.name, l.token) IN (
        SELECT x.name, x.token FROM {schema}.{table} AS x WHERE x.expires_at < clock_timestamp() - interval '1 minute'
        LIMIT 1000 FOR UPDATE SKIP LOCKED);
    DELETE FROM {schema}.{table}_queue AS q WHERE (q.name, q.ticket) IN (
        SELECT x.name, x.ticket FROM {schema}.{table}_queue AS x WHERE x.alive_until < clock_timestamp() - interval '1 minute'
        LIMIT 1000 FOR UPDATE SKIP LOCKED);
END $body$;
