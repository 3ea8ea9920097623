"""How each external system is reached, how it is spoken to, and what its failures mean.

One home per system, used by engines and backends alike: `etcd`, `postgres`, `zookeeper`, `mysql`, and `resp` for
all that speak Redis's protocol. Nothing here knows what is kept in them. `address` is the language of all URLs,
`tls` makes contexts of the files they name, and `connect_errors` explains why a connection could not be made.
"""
