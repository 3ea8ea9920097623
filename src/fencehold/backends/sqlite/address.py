"""The address of locks in a SQLite file: ``sqlite:///path/to/file.db[?timeout=2]``.

Three slashes begin a path from where the process was started, four one from the root, as everywhere.
``timeout`` is how long another process may keep the file to itself before a call is given up: 2, 2s or 500ms.
"""

from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from fencehold.durations import LEAST_S, Duration, seconds_of
from fencehold.errors import UsageError

TIMEOUT_S = 2.0
TIMEOUT_S_MAX = 60.0

_FORM = "write sqlite:///file.db for a path from here, or sqlite:////var/lib/app/locks.db for one from the root"


class Address(NamedTuple):
    """What a URL says."""

    path: Path
    timeout: float = TIMEOUT_S
    """Seconds."""

    def __str__(self) -> str:
        return f"sqlite:///{self.path}"


def parse(url: str) -> Address:
    """Read a URL.

    Raises:
        UsageError: it is not one; the message says what to write instead.
    """
    head, _, query = url.partition("?")
    place = head.removeprefix("sqlite://")
    if place in ("", "/", "/:memory:", ":memory:"):
        raise UsageError(
            f"sqlite:// needs a file that processes share; for one process, use memory://. Else {_FORM}"
        )
    if not place.startswith("/"):
        raise UsageError(f"sqlite:// has no host: {_FORM}")
    path = unquote(place[1:])
    if "\0" in path:
        raise UsageError(f"a path has no NUL in it: {_FORM}")
    # Made whole now: a process that goes to another folder later must not find another file.
    return Address(Path(path).absolute(), _timeout(query))


def _timeout(query: str) -> float:
    options: dict[str, Duration] = dict(parse_qsl(query, keep_blank_values=True))
    text = options.pop("timeout", TIMEOUT_S)
    if options:
        raise UsageError(f"after the ? of sqlite:// only timeout= may stand, not {', '.join(options)}")
    return seconds_of("timeout=", text, least=LEAST_S, most=TIMEOUT_S_MAX)
