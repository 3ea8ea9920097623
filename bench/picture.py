"""Pictures of curves, as SVG that reads on light and on dark pages, without a plotting library.

A *chart* has one horizontal axis and a few panels side by side, each with a curve for every contestant. The sizes
stand at even distances; the vertical axis is logarithmic unless a panel says otherwise, for what is looked for is
how cost grows. Every point tells its figures when it is pointed at.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 460, 320
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 46, 44
_LEGEND_ROW = 18
_STYLE = """
  text { font: 12px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #24292f }
  .title { font-size: 15px; font-weight: 600 } .panel { font-weight: 600 }
  .grid { stroke: #d0d7de; stroke-width: 1 } .small { font-size: 11px; fill: #57606a }
  .paper { fill: #ffffff }
  .c0 { color: #0969da } .c1 { color: #cf222e } .c2 { color: #8250df }
  .c3 { color: #1a7f37 } .c4 { color: #9a6700 }
  path { fill: none; stroke: currentColor; stroke-width: 2 } circle, rect.mark { fill: currentColor }
  .peer { stroke-dasharray: 5 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9da7b3 } .grid { stroke: #30363d } .paper { fill: #0d1117 }
    .c0 { color: #58a6ff } .c1 { color: #ff7b72 } .c2 { color: #bc8cff }
    .c3 { color: #56d364 } .c4 { color: #e3b341 }
  }
"""


@dataclass(frozen=True)
class Panel:
    """One figure over the horizontal axis: by contestant, the points in order."""

    title: str
    unit: str
    curves: Mapping[str, Sequence[tuple[float, float]]]
    is_linear: bool = False
    """The vertical axis begins at 0 and is not logarithmic."""


@dataclass(frozen=True)
class Chart:
    """A picture: what is on the horizontal axis, and the panels."""

    title: str
    axis: str
    panels: Sequence[Panel]
    ours: Sequence[str] = ()
    """Contestants with a solid line; the others have a dashed one."""


def draw(chart: Chart) -> str:
    """The picture as a file."""
    contestants = list(dict.fromkeys(name for panel in chart.panels for name in panel.curves))
    width = len(chart.panels) * WIDTH
    rows = math.ceil(len(contestants) / max(1, width // 230))
    height = HEIGHT + 34 + rows * _LEGEND_ROW + 8
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(chart.title)}</title><style>{_STYLE}</style>",
        f'<rect class="paper" width="{width}" height="{height}"/>',
        f'<text class="title" x="16" y="24">{escape(chart.title)}</text>',
    ]
    for number, panel in enumerate(chart.panels):
        parts += [f'<g transform="translate({number * WIDTH} 26)">', *_panel(chart, panel, contestants), "</g>"]
    parts += _legend(chart, contestants, width, HEIGHT + 38)
    return "\n".join([*parts, "</svg>", ""])


class _Scale:
    """Where a value stands on an axis."""

    def __init__(self, values: Sequence[float], start: float, end: float, *, is_linear: bool) -> None:
        self._is_linear = is_linear
        self._start, self._end = start, end
        if is_linear:
            self.low, self.high = 0.0, max(values) * 1.05 or 1.0
        else:
            self.low, self.high = _decade(min(values), math.floor), _decade(max(values), math.ceil)
            if self.low == self.high:
                self.high = self.low * 10

    def at(self, value: float) -> float:
        if self._is_linear:
            share = (value - self.low) / (self.high - self.low)
        else:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self._start + share * (self._end - self._start), 1)

    def ticks(self) -> list[float]:
        if self._is_linear:
            step = 10 ** math.floor(math.log10(self.high / 2))
            step *= next(by for by in (1, 2, 5, 10) if self.high / (step * by) <= 6)
            return [step * number for number in range(int(self.high / step) + 1)]
        count = round(math.log10(self.high / self.low))
        return [self.low * 10**number for number in range(count + 1)]


def _decade(value: float, rounded: "type[int] | object") -> float:
    return float(10 ** rounded(round(math.log10(value), 6)))  # type: ignore[operator]


def _panel(chart: Chart, panel: Panel, contestants: Sequence[str]) -> list[str]:
    points = [point for curve in panel.curves.values() for point in curve]
    shown = [point for point in points if panel.is_linear or point[1] > 0]
    across = _XScale(sorted({x for x, _ in points}), LEFT, WIDTH - RIGHT)
    up = _Scale([y for _, y in shown], HEIGHT - BOTTOM, TOP, is_linear=panel.is_linear)
    parts = [f'<text class="panel" x="{LEFT}" y="{TOP - 12}">{escape(panel.title)}, {escape(panel.unit)}</text>']
    for tick in up.ticks():
        y = up.at(tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="small" x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{figure(tick)}</text>')
    for tick in across.values:
        place = f'x="{across.at(tick)}" y="{HEIGHT - BOTTOM + 16}"'
        parts.append(f'<text class="small" {place} text-anchor="middle">{figure(tick)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - BOTTOM + 34}" text-anchor="middle">{escape(chart.axis)}</text>')
    for name, curve in panel.curves.items():
        line = [(across.at(x), up.at(y), x, y) for x, y in curve if panel.is_linear or y > 0]
        kind = f"c{contestants.index(name) % 5}"
        path = " ".join(f"{'M' if number == 0 else 'L'}{x} {y}" for number, (x, y, _, _) in enumerate(line))
        dash = "" if name in chart.ours else ' class="peer"'
        dots = "".join(
            f'<circle cx="{x}" cy="{y}" r="3.2"><title>{escape(name)}: {figure(of)} → {figure(value)} '
            f"{escape(panel.unit)}</title></circle>"
            for x, y, of, value in line
        )
        parts.append(f'<g class="{kind}"><path{dash} d="{path}"/>{dots}</g>')
    return parts


class _XScale:
    """Sizes at even distances: they are chosen so that each is several times the one before."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.values = values
        step = (end - start - 24) / max(1, len(values) - 1)
        self._places = {value: round(start + 12 + number * step, 1) for number, value in enumerate(values)}

    def at(self, value: float) -> float:
        return self._places[value]


def _legend(chart: Chart, contestants: Sequence[str], width: int, top: float) -> list[str]:
    columns = max(1, width // 230)
    parts = []
    for number, name in enumerate(contestants):
        x, y = 16 + number % columns * 230, top + number // columns * _LEGEND_ROW
        dash = "" if name in chart.ours else ' class="peer"'
        line = f'<path{dash} d="M{x} {y}h26"/>'
        label = f'<text x="{x + 32}" y="{y + 4}">{escape(name)}</text>'
        parts.append(f'<g class="c{number % 5}">{line}</g>{label}')
    return parts


def figure(value: float) -> str:
    """A number as short as a label needs it."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"
