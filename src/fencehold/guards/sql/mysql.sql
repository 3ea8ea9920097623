-- The marks: for each name, the greatest fence that was seen here.
-- Names are bytes, compared as they are: a collation may take two of them for one. Only InnoDB has transactions.
CREATE TABLE IF NOT EXISTS fencehold_fences (
    name varbinary(512) NOT NULL PRIMARY KEY,
    fence bigint NOT NULL
) ENGINE = InnoDB;
