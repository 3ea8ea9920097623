"""How each external system is reached, how it is spoken to, and what its failures mean.

One home per system, used by engines and backends alike: `etcd`, `postgres`, `zookeeper`, `mysql`, and `resp` for
whatever speaks Redis's protocol. Nothing here knows what is kept in them.
"""
