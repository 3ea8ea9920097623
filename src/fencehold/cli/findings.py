"""What a check of `doctor` found."""

from typing import Literal, NamedTuple


class Finding(NamedTuple):
    """What one check found, and what to do about it."""

    check: str
    level: Literal["ok", "warn", "fail"]
    said: str
    advice: str = ""
