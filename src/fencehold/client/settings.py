"""Settings: what a client was told when it was made, and how it introduces itself."""

from typing import NamedTuple

from fencehold.client.wire import command
from fencehold.errors import UsageError


class Settings(NamedTuple):
    """What holds for the whole life of a client. Durations are seconds."""

    ttl: float = 30.0
    """A session ends that long after its last keep-alive."""
    grace: float = 1.0
    """…and that long after its connection was closed, unless it is taken up again."""
    connect_timeout: float = 5.0
    """How long a call waits for the service to be reached."""
    name: str = ""
    meta: str = ""
    user: str = ""
    secret: str = ""
    tier: str = ""
    """Which of the service's machines to speak to; empty: the one it gives to who does not ask."""

    def checked(self) -> "Settings":
        """These settings, if they make sense."""
        if self.ttl < 0.1:
            raise UsageError(f"a session's ttl is 0.1 seconds or more, not {self.ttl}")
        if not 0 <= self.grace <= self.ttl:
            raise UsageError(f"grace is 0 to the ttl, {self.ttl} seconds, not {self.grace}")
        if self.connect_timeout <= 0:
            raise UsageError(f"the connect timeout is more than 0 seconds, not {self.connect_timeout}")
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
