"""Tables that fit: columns for a person, as wide as the terminal and no wider.

1. What a user may copy (a fence, a number) is never shortened.
2. Names and people are shortened in the middle, where they differ least: `deploy:eu…:migrate`. The widest column
   gives first, so that a short one beside a long one stays whole.
3. Prose wraps between words, within its own column.

The header decides how a column behaves: `FENCE:` is of numbers, set right; `NAME…` may be shortened; `NOTE ` is
prose; any other is as wide as its widest cell.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

ELLIPSIS = "…"
_GAP = 2
_LEAST = 8
"""Of a column that may be shortened, or of prose, which could else be a column of letters."""


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    width: int,
    title: str | None = None,
    styles: Sequence[str] = (),
) -> "Table":
    """A plain table: a header and columns, no boxes, as wide as it may be at most; rows may have styles."""
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    cells = [list(row) for row in rows]
    widths = fitted(headers, cells, width)
    made = Table(
        box=None,
        padding=(0, _GAP, 0, 0),
        pad_edge=False,
        header_style="bold",
        title=title,
        title_justify="left",
    )
    for header, wide in zip(headers, widths, strict=True):
        is_prose = header.endswith(" ")
        made.add_column(
            header.rstrip(f":{ELLIPSIS} "),
            justify="right" if header.endswith(":") else "left",
            overflow="fold",
            no_wrap=not is_prose,
            width=wide,
        )
    for row, style in zip_longest(cells, styles, fillvalue=""):
        made.add_row(*[Text(_cell(*each)) for each in zip(headers, row, widths, strict=True)], style=style)
    return made


def fitted(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """How wide each column is to be."""
    columns = [[header.rstrip(f":{ELLIPSIS} "), *(row[at] for row in rows)] for at, header in enumerate(headers)]
    widths = [max(map(cells_of, column)) for column in columns]
    least = [_least(header, wide) for header, wide in zip(headers, widths, strict=True)]
    return shares(widths, width - _GAP * (len(widths) - 1), least)


def shares(widths: Sequence[int], room: int, least: Sequence[int]) -> list[int]:
    """The widths as they are, or, if there is less room, with the widest made narrower, down to its least."""
    found = list(widths)
    for _ in range(max(0, sum(widths) - room)):
        spare = [(wide, at) for at, wide in enumerate(found) if wide > least[at]]
        if not spare:
            break
        found[max(spare)[1]] -= 1
    return found


def _least(header: str, wide: int) -> int:
    if header.endswith(ELLIPSIS):
        return min(wide, max(_LEAST, len(header) - 1))
    return min(wide, _LEAST) if header.endswith(" ") else wide


def _cell(header: str, text: str, width: int) -> str:
    return shortened(text, width) if header.endswith(ELLIPSIS) else text


def shortened(text: str, width: int) -> str:
    """The text in at most this many columns of a terminal: whole, or its beginning and its end."""
    if cells_of(text) <= width:
        return text
    head = _prefix(text, width // 2)
    tail = _prefix(text[::-1], width - 1 - cells_of(head))[::-1]
    return head + ELLIPSIS + tail


def _prefix(text: str, width: int) -> str:
    taken = 0
    for at, char in enumerate(text):
        taken += cells_of(char)
        if taken > width:
            return text[:at]
    return text


def cells_of(text: str) -> int:
    """How many columns a text takes on a terminal."""
    from rich.cells import cell_len  # noqa: PLC0415

    return cell_len(text)
