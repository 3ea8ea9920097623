"""Limits: everything a client can make the machine remember has a bound, and the bound has a unit.

Limits decide outcomes, so they are part of the replicated state and change only by a command.
"""

from msgspec import Struct


class Limits(Struct, frozen=True, gc=False, array_like=True):
    """What one client may ask for, and how much may wait. Going beyond is refused; nothing changes."""

    name_bytes_max: int = 256
    owner_bytes_max: int = 128
    meta_bytes_max: int = 1024
    names_per_request_max: int = 64
    holds_per_session_max: int = 10_000
    """Counts what a session holds and what it waits for, so that a grant to a waiter never exceeds it."""
    waiters_per_name_max: int = 1_000
    sessions_max: int = 100_000
    answers_per_session_max: int = 4_096
    """Answers remembered for repetition until the client says they have arrived."""
    permits_max: int = 1_000_000
    ttl_ms_max: int = 24 * 3_600_000
    wait_ms_max: int = 7 * 24 * 3_600_000
    lock_delay_ms_max: int = 3_600_000
    elapsed_ms_max: int = 2_000
    """The most that time advances by one entry: a leader that was paused must not expire the world."""
