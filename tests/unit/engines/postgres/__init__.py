"""The Postgres engine: its parts, and what it does when servers, replies and standbys are lost."""
