"""Health: how what keeps a journal is doing, for people who look after it. Nothing is decided by it."""

from typing import NamedTuple

from fencehold.runtime.disk import Volume


class EngineMember(NamedTuple):
    """One of the servers that keep a journal, as it was seen from here."""

    address: str
    is_up: bool
    role: str = ""
    """`leader` or `follower`, `primary` or `standby`; empty if it did not say."""
    note: str = ""
    """Why it is not up, or what is amiss."""


class Health(NamedTuple):
    """What can be told. What cannot, is left out."""

    volume: Volume | None = None
    """Where the journal is, if that is on this machine."""
    members: tuple[EngineMember, ...] = ()
    quorum: int = 0
    """So many of them must be up to take an append; 0: that is not a matter of number."""
    note: str = ""
    """Why there is less to tell than there could be."""
