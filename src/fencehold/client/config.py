"""The configuration of a client: by its program, the environment and a file, checked once.

1. The program wins over the environment, that over the file, that over the default.
2. Where locks come from is one setting: a level that gives one of `url`, `correctness` and `efficiency` gives the
   whole of it, and all three are ignored at lower levels.
3. Rules add up: a file can protect names that the program does not know of. Of two for the same names, that of
   the higher level counts.
4. A value in a file that is of the wrong kind is refused: with its key, and what is allowed. A key that is not
   known is refused, too, since a mistyped rule would be a missing rule.
5. The file may be the server's as well: only its table `[client]` is read here.
"""

import os
import random
import secrets
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Unpack

import msgspec

from fencehold.client.options import ConnectOptions, OnUnavailable
from fencehold.client.rules import Rules, rules_of
from fencehold.durations import LEAST_S, seconds_of, shown
from fencehold.errors import UsageError
from fencehold.locks.clock import Clock, clock
from fencehold.types import Tier

CONFIG_VARIABLE = "FENCEHOLD_CONFIG"
URL_VARIABLE = "FENCEHOLD_URL"
DEFAULT_URL = "fencehold://127.0.0.1:7420"
TABLE = "client"
TTL_S_MIN = 0.1
"""A session with a shorter ttl would end before its keep-alive is answered."""

_FILE_BYTES_MAX = 1 << 20
_WHERE = ("url", "correctness", "efficiency")


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a client is made of, checked. Durations are seconds."""

    url: str = DEFAULT_URL
    correctness: str | None = None
    efficiency: str | None = None
    rules: Rules = Rules()
    on_unavailable: OnUnavailable = "raise"
    ttl: float = 30.0
    """A session ends that long after its last keep-alive."""
    grace: float = 1.0
    """…and that long after its connection was closed, unless it is resumed."""
    name: str = ""
    meta: Mapping[str, object] | None = None
    connect_timeout: float = 5.0
    """How long a call waits for the service to be reached."""
    long_wait: float = 60.0
    """How long an acquire waits before the log warns; 0: for ever."""
    tls: ssl.SSLContext | None = None
    ca: str = ""
    """Files of TLS and of a login: not for the program, which has URLs and `tls`."""
    cert: str = ""
    key: str = ""
    user: str = ""
    secret_file: str = ""
    token_file: str = ""
    clock: Clock = clock
    draw: Callable[[], float] = random.random
    """A random number between 0 and 1."""
    identify: Callable[[], str] = partial(secrets.token_hex, 6)
    """Makes the id by which the sessions of a client belong together: unguessable, another for each client."""

    def __post_init__(self) -> None:
        """Refuse what makes no sense.

        Raises:
            UsageError: says which option, and what is taken.
        """
        if self.on_unavailable not in ("raise", "proceed"):
            raise UsageError(f"on_unavailable is 'raise' or 'proceed', not {self.on_unavailable!r}")
        if not isinstance(self.tls, ssl.SSLContext | None):
            raise UsageError(
                f"tls must be an ssl.SSLContext, got {self.tls!r}; the URL fenceholds://… makes one by itself"
            )
        check_times(self.ttl, self.grace, self.connect_timeout)

    def __repr__(self) -> str:
        # Not the URLs, which may have secrets in them.
        return f"Config(name={self.name!r}, ttl={self.ttl})"

    @property
    def is_routed(self) -> bool:
        """Whether each tier has a URL of its own."""
        return self.correctness is not None or self.efficiency is not None

    @property
    def long_wait_s(self) -> float:
        """Seconds after which the log warns of an acquire that waits."""
        return self.long_wait or inf


def check_times(ttl: float, grace: float, connect_timeout: float) -> None:
    """Raise `UsageError` for times that a session cannot have."""
    seconds_of("ttl", ttl, least=TTL_S_MIN)
    seconds_of("grace", grace)
    if grace > ttl:
        raise UsageError(f"grace is at most the ttl, {shown(ttl)}, not {shown(grace)}")
    seconds_of("connect_timeout", connect_timeout, least=LEAST_S)


def configured(url: str | None = None, **options: Unpack[ConnectOptions]) -> Config:
    """The configuration of a client whose program gives this.

    Raises:
        UsageError: an option, the environment or the file makes no sense.
    """
    path = options.get("config") or os.environ.get(CONFIG_VARIABLE)
    program = {"url": url, **{key: value for key, value in options.items() if key != "config"}}
    environment = {"url": os.environ.get(URL_VARIABLE) or None}
    known = _over(program, _over(environment, read(path) if path else {}))
    if known.get("url") is not None and any(known.get(key) is not None for key in _WHERE[1:]):
        raise UsageError("give either one URL, or correctness= and efficiency=, not both")
    for key in ("ttl", "grace", "connect_timeout", "long_wait"):
        if key in known:
            known[key] = seconds_of(key, known[key])
    return Config(**known | {"rules": rules_of(known.get("rules"))})


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The client options in a file.

    Raises:
        UsageError: it cannot be read, or has an invalid key or value.
    """
    table = _toml(Path(path)).get(TABLE, {})
    try:
        return _read(table)
    except _Wrong as wrong:
        raise UsageError(f"{path}: {wrong}") from None


def _over(nearer: Mapping[str, Any], farther: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the higher level, and those of the lower one that it does not give."""
    said = {key: value for key, value in nearer.items() if value is not None}
    if any(key in said for key in _WHERE):
        farther = {key: value for key, value in farther.items() if key not in _WHERE}
    rules = {**(farther.get("rules") or {}), **(said.get("rules") or {})}
    return {**farther, **said, "rules": rules}


def _toml(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - not needed without a file

    try:
        with path.open("rb") as file:
            text = file.read(_FILE_BYTES_MAX + 1)
        if len(text) > _FILE_BYTES_MAX:
            raise UsageError(f"{path} has more than {_FILE_BYTES_MAX} bytes: that is not a configuration file")
        return tomllib.loads(text.decode())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from None


class _Wrong(Exception):
    """A value of the wrong kind; says what it should be."""


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _Wrong("a text")
    return value


def _seconds(value: Any) -> float:
    try:
        return seconds_of("", value)
    except UsageError:
        raise _Wrong('a number of seconds, or a text such as "30s" or "500ms"') from None


def _choice(value: Any) -> OnUnavailable:
    if value not in ("raise", "proceed"):
        raise _Wrong('"raise" or "proceed"')
    return value  # type: ignore[no-any-return]


def _table(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Wrong("a table")
    return value


def _rules(value: Any) -> Mapping[str, Tier | str]:
    rules = _table(value)
    try:
        rules_of(rules)
    except UsageError as error:
        raise _Wrong(f"names and tiers: {error}") from None
    return rules


_READERS: dict[str, Callable[[Any], Any]] = {
    "url": _text,
    "correctness": _text,
    "efficiency": _text,
    "rules": _rules,
    "on_unavailable": _choice,
    "ttl": _seconds,
    "grace": _seconds,
    "name": _text,
    "meta": _table,
    "connect_timeout": _seconds,
    "long_wait": _seconds,
    "ca": _text,
    "cert": _text,
    "key": _text,
    "user": _text,
    "secret_file": _text,
    "token_file": _text,
}
"""The options in a file: all that a program has, except for those that only a program can give."""


def _read(table: Any) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise _Wrong(f"{TABLE} is a table: write [{TABLE}], and what is said of clients below")
    for key in table:
        if key not in _READERS:
            raise _Wrong(f"[{TABLE}]: {_unknown(key)}")
    return {key: _checked(key, value) for key, value in table.items()}


def _checked(key: str, value: Any) -> Any:
    try:
        return _READERS[key](value)
    except _Wrong as wrong:
        # Not the value itself: it may be a password in the wrong place.
        raise _Wrong(f"[{TABLE}]: {key} is {wrong}") from None


def _unknown(key: str) -> str:
    import difflib  # noqa: PLC0415

    near = difflib.get_close_matches(key.replace("-", "_"), _READERS, 1)
    return f"{key} is not known; " + (f"did you mean {near[0]}?" if near else f"known are {', '.join(_READERS)}")
