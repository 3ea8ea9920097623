"""Health of a journal's storage, for operators. Nothing is decided by it."""

from typing import NamedTuple

from fencehold.runtime.disk import Volume


class EngineMember(NamedTuple):
    """One of the servers that keep a journal, as it was seen from here."""

    address: str
    is_up: bool
    role: str = ""
    """`leader` or `follower`, `primary` or `standby`; empty if it did not say."""
    note: str = ""
    """Why it is not up, or what is wrong."""


class Health(NamedTuple):
    """What is known. The rest is left out."""

    volume: Volume | None = None
    """Where the journal is, if that is on this machine."""
    members: tuple[EngineMember, ...] = ()
    quorum: int = 0
    """How many of them must be up to accept an append; 0: not a matter of numbers."""
    note: str = ""
    """Why information is missing."""
