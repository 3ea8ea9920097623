-- The marks: for each name, the greatest fence that was seen here.
CREATE TABLE IF NOT EXISTS fencehold_fences (
    name text NOT NULL PRIMARY KEY,
    fence bigint NOT NULL CHECK (fence >= 0)
) WITHOUT ROWID;
