-- The marks: for each name, the greatest fence that was seen here.
-- Room is left in each page, so that a mark is raised in place and no index grows.
CREATE TABLE IF NOT EXISTS fencehold_fences (
    name text COLLATE "C" PRIMARY KEY,
    fence bigint NOT NULL CHECK (fence >= 0)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
