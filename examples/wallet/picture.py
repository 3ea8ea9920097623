"""The story as people see it: a line for each event, bars of text, a small SVG."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple
from xml.sax.saxutils import escape

from examples.wallet.story import Event, Told

WIDTH = 72
_SHADES = {"waits": "·", "holds": "█", "stopped": "z", "late": "▓"}
_COLOURS = {"waits": "#e3e6ea", "holds": "#3b7dd8", "stopped": "#f2b134", "late": "#d64545"}
_MARKS = {"refused": "×", "stale": "!"}
_LANE, _LEFT, _ACROSS = 34, 80, 800


class Stretch(NamedTuple):
    """What a worker did for a while."""

    who: str
    kind: str
    begin: float
    end: float


def lines(told: Told) -> Iterator[str]:
    """One for each event."""
    before = 0
    for event in told.events:
        if event.what != "asks":
            yield f"{event.at:7.3f} s  {event.who:6}  {_words(event, before)}"
        before = max(before, event.more.get("fence", 0))


def _words(event: Event, newest: int) -> str:
    said = event.more
    if event.what == "reads":
        return f"has the lock with fence {said['fence']}, and reads {said['balance']}"
    if event.what == "writes":
        late = f"  <- LATE: fence {newest} has been granted since" if said["fence"] < newest else ""
        return f"writes {said['balance']}, and pays out{late}"
    return {
        "stopped": "is stopped (SIGSTOP) before it writes",
        "woken": "is woken (SIGCONT), and goes on where it was",
        "refused": f"is refused: fence {said.get('fence')} is stale, the wallet has seen {said.get('mark')}",
        "again": "was silent for too long while it waited, and asks again",
        "lost": "hears that the lock was lost, after it has written",
    }[event.what]


def stretches(told: Told) -> list[Stretch]:
    """What each did, in order."""
    found = []
    for who in told.workers:
        own = [event for event in told.events if event.who == who]
        for event, following in pairwise(own):
            if kind := _kind(event):
                found.append(Stretch(who, kind, event.at, following.at))
    return found


def _kind(event: Event) -> str:
    return {"asks": "waits", "reads": "holds", "stopped": "stopped", "woken": "late"}.get(event.what, "")


def marks(told: Told) -> list[tuple[str, str, float]]:
    """What went wrong, or was kept from it: who, what, when."""
    newest, found = 0, []
    for event in told.events:
        fence = event.more.get("fence", 0)
        if event.what == "refused":
            found.append((event.who, "refused", event.at))
        elif event.what == "writes" and fence < newest:
            found.append((event.who, "stale", event.at))
        newest = max(newest, fence)
    return found


def bars(told: Told) -> Iterator[str]:
    """A row for each worker."""
    end = told.events[-1].at
    for who in told.workers:
        row = [" "] * (WIDTH + 1)
        for stretch in stretches(told):
            if stretch.who == who:
                first, last = (round(at / end * WIDTH) for at in stretch[2:])
                row[first : max(last, first + 1)] = _SHADES[stretch.kind] * max(last - first, 1)
        for name, what, at in marks(told):
            if name == who:
                row[round(at / end * WIDTH)] = _MARKS[what]
        yield f"  {who:6} {''.join(row).rstrip()}"
    yield f"  {'':6} {'0 s':<{WIDTH - 5}}{end:.1f} s"
    yield "  · waits   █ holds the lock   z is stopped   × is refused   ! writes late"


def svg(told: Told) -> str:
    """The bars, for a page."""
    end = told.events[-1].at
    height = _LANE * len(told.workers) + 60
    lanes = {who: 10 + _LANE * place for place, who in enumerate(told.workers)}
    parts = [f'<text x="8" y="{top + 17}">{escape(who)}</text>' for who, top in lanes.items()]
    for who, kind, begin, stop in stretches(told):
        width = max((stop - begin) / end * _ACROSS, 1)
        place = f'x="{_x(begin, end)}" y="{lanes[who]}" width="{width:.1f}" height="24"'
        parts.append(f'<rect {place} fill="{_COLOURS[kind]}"/>')
    for who, what, at in marks(told):
        place = f'x="{_x(at, end)}" y="{lanes[who] + 18}" font-size="18" fill="#a00" font-weight="bold"'
        parts.append(f"<text {place}>{_MARKS[what]}</text>")
    parts.append(f'<text x="8" y="{height - 28}">{escape(verdict(told))}</text>')
    legend = "grey: waits, blue: holds the lock, yellow: is stopped, ×: is refused, !: writes late"
    parts.append(f'<text x="8" y="{height - 10}" fill="#666">{legend}</text>')
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_LEFT + _ACROSS + 20} {height}"'
    return "\n".join([f'{opening} font-family="sans-serif" font-size="13">', *parts, "</svg>"]) + "\n"


def _x(at: float, end: float) -> str:
    return f"{_LEFT + at / end * _ACROSS:.1f}"


def verdict(told: Told) -> str:
    """How it ended."""
    books = f"paid out {told.paid}, left {told.balance}"
    if told.lost:
        return f"{books}: {told.lost} were paid out and are still in the wallet. The books are wrong."
    refused = f", {told.refused} stale write{'s' * (told.refused > 1)} refused" if told.refused else ""
    return f"{books}{refused}. The books are right."
