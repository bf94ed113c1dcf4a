"""Charts as SVG text: no script, no font, no colour of its own (the page's style sheet gives them).

One line or bar a policy; lines are dashed differently too, so that colour alone tells nothing. Called by `page`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]

WIDTH, HEIGHT = 520, 250
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 12, 46
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
    parts = [*_frame(described, x.title), *_scale(y, y_most)]
    for tick in ticks(x_most):
        parts.append(_text("tick", _left(tick / x_most), HEIGHT - BOTTOM + 18, number(tick) + x.unit))
    for at, line in enumerate(drawn):
        path = " ".join(f"{_left(px / x_most):.1f},{_top(py / y_most):.1f}" for px, py in line.points)
        parts.append(f'<polyline class="line s{at % len(DASHES)}"{_dash(at)} points="{path}">')
        parts.append(f"<title>{escape(line.name)}</title></polyline>")
    return "".join((*parts, "</svg>"))


def bars(groups: Sequence[tuple[str, Sequence[float]]], names: Sequence[str], y: Axis, *, described: str) -> str:
    """A chart of bars: in each group one for each name.

    Args:
        groups: what stands below a group, and the values of its bars.
        names: whose the bars are.
    """
    most = max(y.least, *(value for _, values in groups for value in values), 0.0) or 1.0
    parts = [*_frame(described, ""), *_scale(y, most)]
    width = (WIDTH - LEFT - RIGHT) / max(1, len(groups))
    each = width * 0.72 / max(1, len(names))
    for at, (label, values) in enumerate(groups):
        begin = LEFT + width * (at + 0.14)
        for n, (name, value) in enumerate(zip(names, values, strict=True)):
            top = _top(value / most)
            parts.append(f'<rect class="bar b{n % len(DASHES)}" x="{begin + n * each:.1f}" y="{top:.1f}" ')
            parts.append(f'width="{each * 0.9:.1f}" height="{HEIGHT - BOTTOM - top:.1f}">')
            parts.append(f"<title>{escape(name)}: {number(round(value, 2))}{escape(y.unit)}</title></rect>")
        for row, word in enumerate(label.split(" ", 1)):
            parts.append(_text("tick", LEFT + width * (at + 0.5), HEIGHT - BOTTOM + 18 + 17 * row, word))
    return "".join((*parts, "</svg>"))


def _frame(described: str, title: str) -> Iterator[str]:
    yield f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(described)}">'
    base = HEIGHT - BOTTOM
    yield f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{base}" y2="{base}"/>'
    yield _text("title", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, title)


def _scale(y: Axis, most: float) -> Iterator[str]:
    for tick in ticks(most):
        top = _top(tick / most)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{top:.1f}" y2="{top:.1f}"/>'
        yield _text("tick", LEFT - 8, top + 5, number(tick) + y.unit, "end")


def _text(kind: str, x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _left(part: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * min(part, 1.0)


def _top(part: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - min(part, 1.0))


def _dash(at: int) -> str:
    dash = DASHES[at % len(DASHES)]
    return f' stroke-dasharray="{dash}"' if dash else ""


def legend(names: Sequence[str]) -> str:
    """Which line is whose."""
    out = []
    for at, name in enumerate(names):
        line = f'<line class="line s{at % len(DASHES)}"{_dash(at)} x1="0" x2="32" y1="6" y2="6"/>'
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
