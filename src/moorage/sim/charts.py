"""Line charts as SVG text: no script, no font, no colour of its own (the page's style sheet gives them).

One line a policy, dashed differently too, so that colour alone tells nothing. Called by `page`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]

WIDTH, HEIGHT = 720, 280
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 12, 44
DASHES = ("", "7 4", "2 4", "10 4 2 4")
STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis: its words, what its numbers are followed by, and what it must reach at least."""

    title: str
    unit: str = ""
    least: float = 0.0
    most: float | None = None


def lines(drawn: Sequence[Line], x: Axis, y: Axis, *, described: str) -> str:
    """A chart of these lines.

    Args:
        described: what it shows, for readers who do not see it.
    """
    x_most = x.most or max((point[0] for line in drawn for point in line.points), default=1.0) or 1.0
    y_most = y.most or max(y.least, *(point[1] for line in drawn for point in line.points), 0.0) or 1.0
    x_ticks, y_ticks = ticks(x_most), ticks(y_most)
    y_top = y.most or max(y_most, y_ticks[-1])

    def place(point: Point) -> str:
        left = LEFT + (WIDTH - LEFT - RIGHT) * min(point[0] / x_most, 1.0)
        top = TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(point[1] / y_top, 1.0))
        return f"{left:.1f},{top:.1f}"

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(described)}">']
    for tick in y_ticks:
        left, height = place((0.0, tick)).split(",")
        parts.append(f'<line class="grid" x1="{left}" x2="{WIDTH - RIGHT}" y1="{height}" y2="{height}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 8}" y="{float(height) + 4:.1f}" text-anchor="end">')
        parts.append(f"{number(tick)}{escape(y.unit)}</text>")
    for tick in x_ticks:
        left, _ = place((tick, 0.0)).split(",")
        parts.append(f'<text class="tick" x="{left}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">')
        parts.append(f"{number(tick)}{escape(x.unit)}</text>")
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{HEIGHT - BOTTOM}" y2="{HEIGHT - BOTTOM}"/>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text class="title" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x.title)}</text>')
    for at, line in enumerate(drawn):
        path = " ".join(place(point) for point in line.points)
        dash = f' stroke-dasharray="{DASHES[at % len(DASHES)]}"' if at % len(DASHES) else ""
        parts.append(f'<polyline class="line s{at % len(DASHES)}"{dash} points="{path}">')
        parts.append(f"<title>{escape(line.name)}</title></polyline>")
    return "".join((*parts, "</svg>"))


def legend(names: Sequence[str]) -> str:
    """Which line is whose."""
    out = []
    for at, name in enumerate(names):
        dash = f' stroke-dasharray="{DASHES[at % len(DASHES)]}"' if at % len(DASHES) else ""
        line = f'<line class="line s{at % len(DASHES)}"{dash} x1="0" x2="32" y1="6" y2="6"/>'
        out.append(f'<li><svg class="key" viewBox="0 0 32 12" aria-hidden="true">{line}</svg>{escape(name)}</li>')
    return f'<ul class="legend">{"".join(out)}</ul>'


def ticks(most: float, about: int = 5) -> list[float]:
    """Round numbers from 0 to `most`, some `about` of them."""
    rough = most / about
    power = 1.0
    while power * 10 <= rough:
        power *= 10
    while power > rough:
        power /= 10
    step = next(power * step for step in STEPS if power * step >= rough)
    count = int(most / step + 1e-9)
    return [step * n for n in range(count + 1)]


def number(value: float) -> str:
    """A tick's number, short."""
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"
