"""What it takes to be let in by Postgres, for whoever keeps something there: the journal's engine, and backends.

`admission` tells a server that refuses us from one that cannot be reached.
"""
