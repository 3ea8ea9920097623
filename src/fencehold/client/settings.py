"""Settings: what a client was told when it was made, and how it introduces itself."""

from math import inf
from typing import NamedTuple

from fencehold.drivers.resp.wire import command
from fencehold.durations import LEAST_S, seconds_of, shown
from fencehold.errors import UsageError

TTL_S_MIN = 0.1
"""A session that lives for less is over before its keep-alive has come and gone."""


class Settings(NamedTuple):
    """What holds for the whole life of a client. Durations are seconds."""

    ttl: float = 30.0
    """A session ends that long after its last keep-alive."""
    grace: float = 1.0
    """…and that long after its connection was closed, unless it is taken up again."""
    connect_timeout: float = 5.0
    """How long a call waits for the service to be reached."""
    long_wait: float = inf
    """How long an acquire waits before that is worth a warning."""
    name: str = ""
    meta: str = ""
    user: str = ""
    secret: str = ""
    tier: str = ""
    """Which of the service's machines to speak to; empty: the one it gives to who does not ask."""

    def __repr__(self) -> str:
        return f"Settings(name={self.name!r}, user={self.user!r}, ttl={self.ttl})"

    def checked(self) -> "Settings":
        """These settings, if they make sense."""
        seconds_of("ttl", self.ttl, least=TTL_S_MIN)
        seconds_of("grace", self.grace)
        if self.grace > self.ttl:
            raise UsageError(f"grace is at most the ttl, {shown(self.ttl)}, not {shown(self.grace)}")
        seconds_of("connect_timeout", self.connect_timeout, least=LEAST_S)
        return self

    def hello(self) -> bytes:
        """The greeting."""
        words: list[str | int] = ["HELLO", 3]
        if self.user or self.secret:
            words += ["AUTH", self.user or "default", self.secret]
        if self.name:
            words += ["SETNAME", self.name]
        if self.tier:
            words += ["TIER", self.tier]
        return command(*words)

    def opening(self) -> bytes:
        """The command that opens a session."""
        words: list[str | int] = ["SESSION.OPEN", "TTL", round(self.ttl * 1000), "GRACE", round(self.grace * 1000)]
        if self.meta:
            words += ["META", self.meta]
        return command(*words)
