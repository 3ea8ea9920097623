"""Settings: what a client was told when it was made, and how it introduces itself."""

from math import inf
from typing import NamedTuple

from fencehold.drivers.resp.wire import command


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
