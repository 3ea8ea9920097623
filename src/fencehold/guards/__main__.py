"""Prints the SQL that makes the table of marks: ``python -m fencehold.guards postgresql [table]``."""

import sys
from collections.abc import Sequence

from fencehold.errors import UsageError
from fencehold.guards.statements import DIALECTS, script

_USAGE = f"usage: python -m fencehold.guards {{{','.join(DIALECTS)}}} [table]\n"


def main(words: Sequence[str]) -> int:
    """Print the script, or why there is none; returns the exit code."""
    if not 1 <= len(words) <= 2:
        sys.stderr.write(_USAGE)
        return 2
    try:
        sys.stdout.write(script(*words))
    except UsageError as error:
        sys.stderr.write(f"{error}\n{_USAGE}")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
