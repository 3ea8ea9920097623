"""The screen: a view that is redrawn in place until a key ends it."""

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fencehold.cli.output import console

if TYPE_CHECKING:
    from rich.console import RenderableType


def show_until_quit(draw: Callable[[], "RenderableType"], interval_s: float) -> None:
    """Redraw periodically, until q or ctrl-c."""
    from rich.live import Live  # noqa: PLC0415

    with _keys(), Live(draw(), console=console(), screen=True, auto_refresh=False) as live:
        while not _quit_within(interval_s):
            live.update(draw(), refresh=True)


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """Get single keys from the terminal, and leave it as it was."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _quit_within(seconds: float) -> bool:
    """Wait that long; returns whether q was pressed."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if not sys.stdin.isatty():
            time.sleep(left)
        elif select.select([sys.stdin], [], [], left)[0] and os.read(sys.stdin.fileno(), 1) in (b"q", b"Q", b""):
            return True
    return False
