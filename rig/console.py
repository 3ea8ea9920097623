"""What programs of the rig say, and how they are interrupted."""

import sys
from typing import NoReturn


def interrupt(*_: object) -> NoReturn:
    """A signal that ends the program as ctrl-c does."""
    raise KeyboardInterrupt


def say(text: str) -> None:
    """A line, at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
