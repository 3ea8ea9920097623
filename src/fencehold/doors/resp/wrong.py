"""What is said of a command that is not carried out as it stands.

It is never compiled: the compiled build takes an object for one of a compiled class only if its class was compiled
with it, and what is wrong has kinds of its own in modules that are not (`guard`, `nodes`, …).
"""

from typing import ClassVar


class Wrong(Exception):
    """The command is wrong as it stands; the message says why."""

    code: ClassVar[str] = "USAGE"
