"""Output: tables and colour for people, tab-separated lines for pipes, JSON when asked for.

1. What is for reading goes to stdout; what is about the doing of it (notes, complaints) to stderr.
2. Into a pipe no colour, no boxes, no header: one line each, fields separated by tabs.
3. Rich is loaded only when there is a person to see it. It respects NO_COLOR by itself.
"""

import functools
import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_UNPRINTABLE = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}


def to_person() -> bool:
    """Whether stdout is seen by a person."""
    return sys.stdout.isatty()


@functools.cache
def console(*, stderr: bool = False) -> "Console":
    """Rich's console; names and metadata are other people's words, so markup and highlighting are off."""
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)


def say(text: str) -> None:
    """Write one line."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """Write one line about what is being done, beside the output."""
    sys.stderr.write(text + "\n")


def say_json(value: object) -> None:
    """Write one line of JSON."""
    say(json.dumps(value, ensure_ascii=False))


def say_rows(headers: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Write rows: as a table for a person, as lines for a pipe."""
    cells = [[clean(cell) for cell in row] for row in rows]
    if not to_person():
        for row in cells:
            say("\t".join(row))
    elif cells:
        console().print(table(headers, cells))
    else:
        note(empty)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, title: str | None = None) -> "Table":
    """A plain table: a header and columns, no boxes. Headers that end in a colon are of numbers, set right."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    made = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", title=title, title_justify="left")
    for header in headers:
        made.add_column(header.rstrip(":"), justify="right" if header.endswith(":") else "left", overflow="fold")
    for row in rows:
        made.add_row(*[Text(cell) for cell in row])
    return made


def clean(value: object) -> str:
    """Somebody else's text as it can be shown: it must not steer the terminal, nor break a line."""
    return str(value).translate(_UNPRINTABLE)


def ago(ms: int) -> str:
    """A duration for people, in at most two units: 870ms, 4.2s, 3m12s, 2h05m, 3d04h."""
    if ms < 1000:
        return f"{ms}ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f}s"
    minutes, rest_s = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return f"{minutes}m{rest_s:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours < 24 else f"{hours // 24}d{hours % 24:02d}h"


def left(ms: int) -> str:
    """How long something lasts; -1 is without a limit of its own."""
    return "with its session" if ms < 0 else ago(ms)
