"""What the backends on Postgres share: the URL, connections, and what a failure of one means."""
