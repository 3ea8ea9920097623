"""Output: tables and colour for terminals, tab-separated lines for pipes, JSON when asked for.

1. Results go to stdout; notes and errors go to stderr.
2. Into a pipe no colour, no boxes, no header: one line each, fields separated by tabs.
3. On a terminal nothing is cut where it must not be: sentences wrap between words, tables fit (see `tables`).
4. Rich is loaded only for a terminal. It respects NO_COLOR.
"""

import functools
import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from fencehold.cli.tables import table as fitting_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_UNPRINTABLE = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_INDENT = "  "


def to_person() -> bool:
    """Whether stdout is seen by a person."""
    return sys.stdout.isatty()


@functools.cache
def console(*, stderr: bool = False) -> "Console":
    """Rich's console; names and metadata come from others, so markup and highlighting are off."""
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, soft_wrap=True)


def columns() -> int:
    """How wide the terminal is; $COLUMNS overrides it."""
    return shutil.get_terminal_size().columns


def wrapped(text: str, *, indent: str = _INDENT) -> str:
    """Sentences for a person: broken between words, never in one, so that what is to be copied stays whole."""
    return "\n".join(_wrapped(line, indent) for line in text.split("\n"))


def _wrapped(line: str, indent: str) -> str:
    # Continuation lines keep the indentation.
    own = line[: len(line) - len(line.lstrip())]
    width = max(columns(), 40)
    return textwrap.fill(
        line.strip(),
        width,
        initial_indent=own,
        subsequent_indent=own + indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def hanging(text: str, margin: int) -> str:
    """A sentence for a terminal, wrapped at a margin."""
    width = max(columns() - margin, 40)
    ends = text[len(text.rstrip("\n")) :]
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return ("\n" + " " * margin).join(lines) + ends


def say(text: str) -> None:
    """Write one line."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def tell(text: str) -> None:
    """Write one sentence: a line of its own in a pipe, as many as it needs for a person."""
    say(wrapped(text) if to_person() else text)


def note(text: str) -> None:
    """Write one sentence about progress or an error, to stderr."""
    sys.stderr.write((wrapped(text) if sys.stderr.isatty() else text) + "\n")


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


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    styles: Sequence[str] = (),
) -> "Table":
    """A table that fits the terminal; the header of a column says how it behaves (see `tables`)."""
    return fitting_table(headers, rows, width=columns(), title=title, styles=styles)


def clean(value: object) -> str:
    """Foreign text made safe to show: it must not control the terminal, nor break a line."""
    return str(value).translate(_UNPRINTABLE)


def written(value: object) -> str:
    """A value as people write it: yes and no, and nothing where there is none."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def say_facts(facts: Mapping[str, object]) -> None:
    """Write what is known of one thing, a line each."""
    say_rows(("FACT", "VALUE "), [(key, written(value)) for key, value in facts.items()], empty="")


def ago(ms: float) -> str:
    """A duration for people, in at most two units: 870ms, 4.2s, 3m12s, 2h05m, 3d04h."""
    if ms < 1000:
        return f"{ms:.0f}ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f}s"
    minutes, rest_s = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return f"{minutes}m{rest_s:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours < 24 else f"{hours // 24}d{hours % 24:02d}h"


def clock_time(ms_from_now: float) -> str:
    """The moment this long from now in local time."""
    now = datetime.now().astimezone()
    return _clocked(now + timedelta(milliseconds=ms_from_now), now)


def time_of_day(moment: datetime | None) -> str:
    """A moment in local time."""
    return "unknown" if moment is None else _clocked(moment.astimezone(), datetime.now().astimezone())


def field_of_time(moment: datetime | None) -> str:
    """A moment as a field of a line: for a person as a clock shows it, in a pipe as ISO 8601, in UTC."""
    return time_of_day(moment) if moment is None or to_person() else iso(moment)


def iso(moment: datetime) -> str:
    """A moment as programs read it."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _clocked(at: datetime, now: datetime) -> str:
    """With its day, if that is another."""
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}"


def left(ms: int) -> str:
    """How long something lasts; -1 is without a limit of its own."""
    return "with its session" if ms < 0 else ago(ms)
