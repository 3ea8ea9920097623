"""Configuring a client: what its program, the environment and a file say, put together.

1. What the program says wins over the environment, that over the file, that over the default.
2. Where locks come from is one thing, however it is said: whoever says one of `url`, `correctness` and
   `efficiency` says all there is to say of it, and what is said of it farther away is not looked at.
3. Rules add up: a file can protect names that the program does not know of. Of two for the same names, the nearer
   one counts.
4. What a file says is of the kind it should be, or refused: by its name, with what is allowed. A key that is not
   known is refused, too, since a rule that was mistyped would be a rule that is not there.
5. The file may be the server's as well: only its table `[client]` is read here.
"""

import os
import ssl
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from fencehold.client.login import LoginFiles
from fencehold.client.making import URL_VARIABLE, Making
from fencehold.client.plan import OnUnavailable, Plan, plan_of
from fencehold.client.rules import rules_of
from fencehold.drivers.client_tls import files_of
from fencehold.durations import Duration, seconds_of
from fencehold.errors import UsageError
from fencehold.types import Tier

CONFIG_VARIABLE = "FENCEHOLD_CONFIG"
TABLE = "client"

_FILE_BYTES_MAX = 1 << 20


class Said(NamedTuple):
    """What somebody said of a client; None is nothing."""

    url: str | None = None
    correctness: str | None = None
    efficiency: str | None = None
    rules: Mapping[str, Tier | str] | None = None
    on_unavailable: OnUnavailable | None = None
    ttl: Duration | None = None
    grace: Duration | None = None
    name: str | None = None
    meta: Mapping[str, object] | None = None
    connect_timeout: Duration | None = None
    long_wait: Duration | None = None
    ca: str | None = None
    """Files of TLS and of a login: not the program's to say here, which has URLs and `tls=`."""
    cert: str | None = None
    key: str | None = None
    user: str | None = None
    secret_file: str | None = None
    token_file: str | None = None

    def __repr__(self) -> str:
        # Not the URLs, which may have secrets in them.
        return f"Said(name={self.name!r}, ttl={self.ttl!r})"

    @property
    def says_where(self) -> bool:
        """Whether it says anything of where locks come from."""
        return any(each is not None for each in (self.url, self.correctness, self.efficiency))

    def over(self, farther: "Said") -> "Said":
        """This, and what is said farther away where this says nothing."""
        if self.says_where:
            farther = farther._replace(url=None, correctness=None, efficiency=None)
        nearest = {key: _or(getattr(self, key), getattr(farther, key)) for key in self._fields}
        return Said(**nearest | {"rules": {**(farther.rules or {}), **(self.rules or {})}})


DEFAULTS = Said(on_unavailable="raise", ttl=30.0, grace=1.0, name="", connect_timeout=5.0, long_wait=60.0)


def planned(said: Said, config: str | os.PathLike[str] | None = None, tls: ssl.SSLContext | None = None) -> Plan:
    """The plan of a client whose program said this.

    Raises:
        UsageError: what was said makes no sense.
        Unsupported: what is to protect state cannot.
    """
    known = said.over(_of_environment()).over(_of_file(config)).over(DEFAULTS)
    assert known.ttl is not None
    assert known.grace is not None
    assert known.connect_timeout is not None
    assert known.long_wait is not None
    making = Making(
        "",
        seconds_of("ttl", known.ttl),
        seconds_of("grace", known.grace),
        known.name or "",
        known.meta,
        seconds_of("connect_timeout", known.connect_timeout),
        tls,
        long_wait=seconds_of("long_wait", known.long_wait) or inf,
        tls_files=files_of(known.ca, known.cert, known.key),
        login_files=LoginFiles(known.user or "", known.secret_file or "", known.token_file or ""),
    )
    return plan_of(
        making,
        url=known.url,
        correctness=known.correctness,
        efficiency=known.efficiency,
        rules=rules_of(known.rules),
        on_unavailable=known.on_unavailable or "raise",
    )


def read(path: str | os.PathLike[str]) -> Said:
    """What a file says of clients.

    Raises:
        UsageError: it cannot be read, or says what cannot be.
    """
    table = _toml(Path(path)).get(TABLE, {})
    try:
        return _read(table)
    except _Wrong as wrong:
        raise UsageError(f"{path}: {wrong}") from None


def _of_environment() -> Said:
    return Said(url=os.environ.get(URL_VARIABLE) or None)


def _of_file(config: str | os.PathLike[str] | None) -> Said:
    path = config or os.environ.get(CONFIG_VARIABLE)
    return read(path) if path else Said()


def _or(nearer: Any, farther: Any) -> Any:
    return farther if nearer is None else nearer


def _toml(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415 - not needed by those who have no file

    try:
        with path.open("rb") as file:
            text = file.read(_FILE_BYTES_MAX + 1)
        if len(text) > _FILE_BYTES_MAX:
            raise UsageError(f"{path} has more than {_FILE_BYTES_MAX} bytes: that is no configuration")
        return tomllib.loads(text.decode())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from None


class _Wrong(Exception):
    """A value that is not what it should be; says what that is."""


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
"""What can be said in a file: all that a program can say, but for what only a program has."""


def _read(table: Any) -> Said:
    if not isinstance(table, dict):
        raise _Wrong(f"{TABLE} is a table: write [{TABLE}], and what is said of clients below")
    for key in table:
        if key not in _READERS:
            raise _Wrong(f"[{TABLE}]: {_unknown(key)}")
    return Said(**{key: _checked(key, value) for key, value in table.items()})


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
