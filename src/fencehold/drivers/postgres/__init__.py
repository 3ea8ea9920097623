"""Postgres, by libpq: the URL, connections, and what a failure means, a refusal to let us in among them."""
