"""Postgres, by libpq.

- `address`: the URL: libpq's, and options of our own
- `connection`: one statement at a time, to the first of several servers that will do (for journals)
- `pipeline`: many statements under way at once (for locks); `pool`: several of them, and notifications
- `server`: the facts of a server
- `failures`: what an error means, a refused login among them
- `survey`: which servers answer, and which standbys follow
"""
