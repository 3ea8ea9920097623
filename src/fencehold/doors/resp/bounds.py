"""The bounds of a RESP listener: its connections, what each may send, and what may be pending for it."""

from typing import NamedTuple


class Bounds(NamedTuple):
    """What one connection, and all of them, may take."""

    connections_max: int = 16_000
    frame_bytes_max: int = 64 << 10
    frame_seconds_max: float = 10.0
    """How long half a frame may wait for the rest."""
    in_flight_max: int = 16_384
    unsent_bytes_high: int = 256 << 10
    """Beyond this nothing more is read from a client until it reads."""
    unsent_bytes_max: int = 4 << 20
    """Beyond this it is disconnected."""
    unsent_bytes_total_max: int = 64 << 20
    """Of all clients that read too slowly, together."""
    prefixes_max: int = 128
    """That one connection may watch."""
    closing_seconds_max: float = 5.0
    """How long a client may take to read what is left when the listener closes."""
    implicit_ttl_ms: int = 30_000
    """How long the session of a plain client lives at most when its server is lost."""
    handshakes_max: int = 1_024
    """TLS handshakes in flight at once; beyond, the oldest of the address with the most of them is dropped."""
    handshake_seconds_max: float = 5.0

    @property
    def implicit_sure_ms(self) -> int:
        """How much of that is left at any moment, with room for a late renewal."""
        return self.implicit_ttl_ms * 2 // 3

    @property
    def implicit_renewal_s(self) -> float:
        """How often it is renewed."""
        return self.implicit_ttl_ms / 6_000
