"""x"""

from pathlib import Path
from typing import NamedTuple, Self

from fencehold.drivers.address import Scheme, refusal, seconds

SCHEME = Scheme(
    names=("sqlite",),
    form="write sqlite:///file.db for a path from here, or sqlite:////var/lib/app/locks.db for one from the root",
    options=(seconds("timeout", 2.0, most=60.0),),
    takes_tls=False,
    hosts_min=0,
    hosts_max=0,
)


class SqliteAddress(NamedTuple):
    """What a URL says."""

    path: Path
    timeout: float = 2.0
    """Seconds."""

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read `sqlite:///path/to/file.db[?timeout=2]`.

        Three slashes begin a path from where the process was started, four one from the root, as everywhere.
        `timeout` is how long another process may keep the file to itself before a call is given up.

        Raises:
            UsageError: it is none; the message says what to write instead.
        """
        if url.partition("?")[0].removeprefix("sqlite://") in ("", "/", "/:memory:", ":memory:"):
            why = f"it needs a file that processes share; for one process, use memory://. Else {SCHEME.form}"
            raise refusal(url, why)
        said = SCHEME.parse(url)
        if "\0" in said.path:
            raise said.refusal(f"a path has no NUL in it: {SCHEME.form}")
        # Made whole now: a process that goes to another folder later must not find another file.
        return cls(Path(said.path).absolute(), said.options["timeout"])

    def __str__(self) -> str:
        return f"sqlite:///{self.path}"
