"""Durations: convert what an application writes into seconds, and format seconds for messages.

1. A duration is a number of seconds, a `timedelta`, or a text: "30s", "500ms", "2m", "1h30m", "1d"; "30" is
   seconds.
2. A text has each unit at most once, the largest first. Anything else is refused, and the message says what is
   accepted.
3. A bool is not a number, nan is not a duration, and every duration has a bound.

Durations are parsed only here: `ttl=`, an option of a URL, a line of a configuration file and `--timeout` mean
the same.
"""

import re
from datetime import timedelta
from typing import TypeAlias

from fencehold.errors import UsageError

Duration: TypeAlias = float | int | timedelta | str
"""Seconds as a number, a `timedelta`, or a text such as "30s", "500ms", "2m", "1h30m" or "1d"."""

SECONDS_MAX = 3_650 * 86_400.0
"""Ten years, far more than any service allows: what is longer is a mistake in the unit."""
LEAST_S = 0.001
"""The unit of the wire protocol: anything shorter would be zero."""

_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
_TEXT = re.compile("".join(rf"(?:({_NUMBER}) *{unit} *)?" for unit in ("d", "h", "m(?!s)", "s", "ms")), re.ASCII)
_BARE = re.compile(_NUMBER, re.ASCII)
_UNITS_S = (86_400.0, 3_600.0, 60.0, 1.0, 0.001)
_WORDS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))
_TEXTS = '"30s", "500ms", "2m", "1h30m" or "1d"'
_TAKEN = f"seconds, a timedelta or a text such as {_TEXTS}"
_SHOWN_S_MAX = 1e17
_SHOWN_CHARACTERS_MAX = 40


def seconds_of(
    option: str, given: Duration, *, least: float = 0.0, most: float = SECONDS_MAX, none: str = ""
) -> float:
    """The value of an option, in seconds.

    Args:
        none: what None means for this option, if it may be None; the message of an out-of-range error says so.

    Raises:
        UsageError: it is no duration, or out of range.
    """
    kind = type(given)
    # Numbers first: they are the most common.
    seconds: float = given if kind is float or kind is int else _read(option, given)  # type: ignore[assignment]
    if least <= seconds <= most:
        return float(seconds)
    raise UsageError(_out_of_range(option, seconds, least, most, none))


def shown(seconds: float) -> str:
    """Seconds in a message: 30 s, 0.25 s."""
    if abs(seconds) > _SHOWN_S_MAX:
        return "inf s" if seconds > 0 else "-inf s"
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + " s"


def shown_limit(seconds: float) -> str:
    """A limit in a message, in words, too, where that is shorter to read: 86400 s (1 day)."""
    for unit_s, word in _WORDS:
        if seconds >= unit_s and seconds % unit_s == 0:
            count = int(seconds // unit_s)
            return f"{shown(seconds)} ({count} {word}{'s' if count > 1 else ''})"
    return shown(seconds)


def parsed(text: str) -> float | None:
    """The seconds that a text means; None if it is not a duration."""
    words = text.strip().lower()
    if _BARE.fullmatch(words):
        return float(words)
    found = _TEXT.fullmatch(words)
    if found is None or not words:
        return None
    # Rounded: a sum of decimals must be what a person would compute.
    return round(sum(float(part) * unit_s for part, unit_s in zip(found.groups("0"), _UNITS_S, strict=True)), 6)


def _read(option: str, given: object) -> float:
    if isinstance(given, timedelta):
        return given.total_seconds()
    if isinstance(given, str):
        seconds = parsed(given)
        if seconds is None:
            raise UsageError(f"{option}: {_cut(given)} is not a duration: write {_TEXTS}, or seconds as a number")
        return seconds
    if isinstance(given, float | int) and not isinstance(given, bool):
        return float(given)
    raise UsageError(f"{option} is {_TAKEN}, not {_cut(given)}")


def _cut(given: object) -> str:
    text = repr(given)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}…"


def _out_of_range(option: str, seconds: float, least: float, most: float, none: str) -> str:
    if seconds > most:
        bound = f"at most {shown_limit(most)}"
    elif seconds < least:
        bound = f"at least {shown(least)}"
    else:
        return f"{option} is {_TAKEN}, not nan"
    return f"{option} is {bound}{f', or None ({none})' if none else ''}, not {shown(seconds)}"
