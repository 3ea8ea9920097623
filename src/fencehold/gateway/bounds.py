"""Bounds of a gateway: everything that a client can make it remember."""

from typing import NamedTuple


class GatewayBounds(NamedTuple):
    """Each process has its own."""

    sessions_max: int = 4_000
    """Sessions; each is a connection to the service."""
    sessions_per_peer_max: int = 256
    """Sessions that one connection has opened."""
    logins_max: int = 256
    """Logins that hold something, or send requests, without a session of their own."""
    owners_per_session_max: int = 1_024
    """Owners of a session that request or wait at the same time."""
    answers_per_session_max: int = 1_024
    """Answers that are remembered by their request id; the oldest are forgotten first."""
    endings_per_session_max: int = 4_096
    """Ended holds that are remembered, with how they ended."""
    untold_max: int = 1_024
    """Messages that a client has not read from its stream; beyond, the stream is closed."""
    session_ttl_s_max: float = 86_400.0
    watches_max: int = 256
    """Clients that watch; each is a connection to the service, or to each of its shards."""
    watch_lines_max: int = 2_048
    """Connections of all clients that watch, where there are several shards."""
