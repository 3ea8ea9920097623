"""The error for a command that is not carried out as it stands.

It is never compiled: the compiled build accepts an object as one of a compiled class only if its class was
compiled with it, and there are subclasses of `Wrong` in modules that are not (`guard`, `nodes`, …).
"""

from typing import ClassVar


class Wrong(Exception):
    """The command is wrong as it stands; the message says why."""

    code: ClassVar[str] = "USAGE"
