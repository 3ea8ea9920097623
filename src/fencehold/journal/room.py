"""Room: how much more a journal's storage accepts, as far as it is known.

1. What is not known is None, never a guess. A storage's documented default bound is not a guess.
2. `used_bytes` counts what is in use now, by all users of the storage, so it falls when something is freed.
"""

from typing import NamedTuple


class Room(NamedTuple):
    """One measurement."""

    what: str = ""
    """What it is that can be full, in words: `the disk of /srv/data`."""
    used_bytes: int | None = None
    allowed_bytes: int | None = None
    """The most that may be in use."""
    is_full: bool = False
    """The storage is full, or nearly, and does not free room by itself: `note` says what to do."""
    note: str = ""
    """What to do about it, or why less is known than could be."""

    @property
    def free_bytes(self) -> int | None:
        """How many more it takes; None if that is not known."""
        if self.used_bytes is None or self.allowed_bytes is None:
            return None
        return self.allowed_bytes - self.used_bytes

    def __str__(self) -> str:
        if self.used_bytes is None or self.allowed_bytes is None:
            return self.what or "the journal's storage"
        return f"{self.what}: {_mib(self.used_bytes)} of {_mib(self.allowed_bytes)} MiB are in use"


def _mib(size_bytes: int) -> str:
    size = size_bytes / (1 << 20)
    return f"{size:.1f}" if size < 100 else f"{size:.0f}"
