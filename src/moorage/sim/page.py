"""A report as one HTML page that needs nothing else: no network, no script; light and dark as the reader's system is.

Called by `main` for `--out`.
"""

from collections.abc import Iterator
from html import escape

import numpy as np

from moorage.cli.output import Table
from moorage.sim import tables
from moorage.sim.charts import Axis, Line, Point, bars, legend, lines
from moorage.sim.measures import Waits
from moorage.sim.play import Played
from moorage.sim.report import FRAGMENTATION, Report

STYLE = """
:root { color-scheme: light dark; --paper: #fbfbfa; --card: #fff; --ink: #1d232b; --soft: #59636f; --rule: #e1e4e8;
  --s0: #0b6bcb; --s1: #c2410c; --s2: #15803d; --s3: #86198f; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #14171b; --card: #1b1f25; --ink: #e7eaee; --soft: #9aa5b1; --rule: #2f3640;
    --s0: #6cb6ff; --s1: #ff9d5c; --s2: #6ddb8f; --s3: #e39af0; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2.25rem 0 .75rem; }
p { margin: .4rem 0; max-width: 75ch; } .sub, .notes, figcaption { color: var(--soft); }
.notes { padding-left: 1.2rem; max-width: 80ch; font-size: .95rem; }
.facts { display: flex; flex-wrap: wrap; gap: .75rem; margin: 1.5rem 0 0; padding: 0; list-style: none; }
.facts li { flex: 1 1 12rem; background: var(--card); border: 1px solid var(--rule); border-radius: 10px;
  padding: .8rem 1rem; }
.facts b { display: block; font-size: 1.45rem; font-variant-numeric: tabular-nums; }
.facts span { color: var(--soft); font-size: .9rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem; }
figure { margin: 0; background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 1rem; }
figcaption { font-size: .9rem; margin-top: .35rem; } figure h3 { font-size: 1rem; margin: 0 0 .5rem; }
svg { display: block; width: 100%; height: auto; } .tick, .title { fill: var(--soft); font-size: 14px; }
.grid { stroke: var(--rule); } .axis { stroke: var(--soft); } .line { fill: none; stroke-width: 2.5;
  stroke-linejoin: round; }
.b0 { fill: var(--s0); } .b1 { fill: var(--s1); } .b2 { fill: var(--s2); } .b3 { fill: var(--s3); }
.s0 { stroke: var(--s0); } .s1 { stroke: var(--s1); } .s2 { stroke: var(--s2); } .s3 { stroke: var(--s3); }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; list-style: none; padding: 0; margin: 0 0 .75rem; }
.legend li { display: flex; align-items: center; gap: .5rem; } svg.key { width: 32px; height: 12px; }
.scroll { overflow-x: auto; background: var(--card); border: 1px solid var(--rule); border-radius: 10px; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; font-variant-numeric: tabular-nums; }
th, td { padding: .45rem .9rem; text-align: left; border-bottom: 1px solid var(--rule); vertical-align: top; }
thead th { color: var(--soft); font-weight: 600; white-space: nowrap; } tbody tr:last-child > * { border-bottom: 0; }
tbody th { font-weight: 500; } .right { text-align: right; white-space: nowrap; }
"""


def page(report: Report) -> str:
    """The whole document."""
    return "".join(_parts(report))


def _parts(report: Report) -> Iterator[str]:
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f"<title>{escape(report.title)} - moor simulate</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
    yield f'<h1>{escape(report.title)}</h1>\n<p class="sub">{escape(_subtitle(report))}</p>\n'
    yield _facts(report)
    yield f"<h2>At a glance</h2>\n{legend([str(one.policy) for one in report.played])}\n"
    yield f'<div class="charts">{"".join(_charts(report))}</div>\n'
    yield f"<h2>Side by side</h2>\n{_table(tables.summary(report))}\n"
    yield f"<h2>Waiting, by size of task</h2>\n{_table(tables.waits(report))}\n"
    yield f"<h2>Never placed</h2>\n{_table(tables.never(report))}\n"
    yield "<h2>How to read this</h2>\n"
    yield f'<ul class="notes">{"".join(f"<li>{escape(note)}</li>" for note in (*report.notes, *_method(report)))}</ul>'
    yield "\n</main>\n</body>\n</html>\n"


def _subtitle(report: Report) -> str:
    return (
        f"{report.machines:,} machines with {report.gpus:,} GPUs; {report.tasks:,} tasks that ask for "
        f"{report.gpus_asked:,} GPUs; seed {report.seed}"
    )


def _method(report: Report) -> Iterator[str]:
    yield FRAGMENTATION
    yield "Decided by the scheduler that a control plane runs; only how machines are scored differs between policies."
    if not report.saturating:
        yield "Full: the stretches of time in which as many GPUs as there are, or more, were held or waited for."
    yield "A wait ends when every worker of a task has started once. Percentiles are of the tasks that did start."
    yield "Backfills: placed although one before it in the queue waits for room that is kept for it."


def _facts(report: Report) -> str:
    """The first thing to know of each policy."""
    cards = []
    for one in report.played:
        full = one.allocated_full
        value, words = (full, "of all GPUs allocated when full") if full is not None else (
            one.allocated_mean, "of all GPUs allocated, mean")  # fmt: skip  # a pair reads best on two lines
        share = f"{value / report.gpus:.2%}" if report.gpus else "-"
        cards.append(f"<li><span>{escape(str(one.policy))}</span><b>{share}</b><span>{words}</span></li>")
    return f'<ul class="facts">{"".join(cards)}</ul>\n'


# Charts


def _charts(report: Report) -> Iterator[str]:
    across = _Across(report)
    yield _figure(
        "GPUs allocated",
        lines(
            [across.allocated(one) for one in report.played],
            across.x,
            Axis("", " %", most=100.0),
            described="GPUs allocated, in per cent of all, one line a policy",
        ),
        "In per cent of all GPUs.",
    )
    yield _figure(
        "Fragmentation",
        lines(
            [across.fragments(one) for one in report.played],
            across.x,
            Axis("", least=1.0),
            described="GPUs expected to be of no use to the next task, one line a policy",
        ),
        "Free GPUs that the next task is expected not to be able to use.",
    )
    yield _figure(
        "Never placed" if report.saturating else "Waiting",
        lines(
            [across.waiting(one) for one in report.played],
            across.x,
            Axis("", least=1.0),
            described="workers that wait for a place, one line a policy",
        ),
        "Workers without a place.",
    )

    yield _by_size(report)


def _by_size(report: Report) -> str:
    """The wait of nine in ten tasks of a size; or, where nothing ends and so nobody waits, who was refused."""
    names = [str(one.policy) for one in report.played]
    by_size = [{w.size: w for w in one.waits} for one in report.played]
    sizes = dict.fromkeys(w.size for one in report.played for w in one.waits)
    if report.saturating:
        shares = [(s, [_refused(known.get(s)) for known in by_size]) for s in sizes]
        chart = bars(shares, names, Axis("", " %", least=1.0), described="tasks never placed by size, one bar a policy")
        return _figure("Never placed, by size", chart, "In per cent of the tasks of a size.")
    waited = [(s, [_hours(known.get(s)) for known in by_size]) for s in sizes]
    chart = bars(waited, names, Axis("", " h"), described="90th percentile of waits by size, one bar a policy")
    return _figure("Nine in ten waited no longer", chart, "Hours, by the GPUs of a task.")


def _hours(waits: Waits | None) -> float:
    return 0.0 if waits is None or waits.p90_s is None else waits.p90_s / 3600


def _refused(waits: Waits | None) -> float:
    return 0.0 if waits is None else 100 * waits.waiting / max(1, waits.waiting + waits.started)


def _figure(title: str, chart: str, caption: str) -> str:
    return f"<figure><h3>{title}</h3>{chart}<figcaption>{caption}</figcaption></figure>"


class _Across:
    """What is drawn from left to right: time; or, where a cluster is filled, how much was asked for."""

    def __init__(self, report: Report) -> None:
        self.gpus = max(1, report.gpus)
        self.saturating = report.saturating
        until = max((one.until_s for one in report.played), default=1.0)
        self.unit_s, word = (
            (86400.0, "days") if until > 5 * 86400 else (3600.0, "hours") if until > 7200 else (60.0, "minutes")
        )
        self.x = Axis("GPUs asked for so far, of all", " %") if self.saturating else Axis(f"simulated {word}")

    def allocated(self, one: Played) -> Line:
        """GPUs held, in per cent."""
        points = [(t, 100 * value / self.gpus) for t, value in one.series.points(one.series.allocated)]
        return self._line(one, points)

    def waiting(self, one: Played) -> Line:
        """Workers without a place."""
        return self._line(one, one.series.points(one.series.waiting))

    def fragments(self, one: Played) -> Line:
        """GPUs that are fragments."""
        return self._line(one, list(one.fragments))

    def _line(self, one: Played, points: list[Point]) -> Line:
        if not self.saturating:
            return Line(str(one.policy), [(t / self.unit_s, value) for t, value in points])
        asked = np.interp([t for t, _ in points], one.series.at, one.series.asked) * 100 / self.gpus
        return Line(str(one.policy), [(float(x), value) for x, (_, value) in zip(asked, points, strict=True)])


def _table(table: Table) -> str:
    if not table.rows:
        return f"<p>{escape(table.empty)}</p>"
    sides = [' class="right"' if column.right else "" for column in table.columns]
    head = "".join(f"<th{side}>{escape(c.title)}</th>" for c, side in zip(table.columns, sides, strict=True))
    body = "".join(f"<tr>{''.join(_cells(row, sides))}</tr>" for row in table.rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cells(row: tuple[str, ...], sides: list[str]) -> Iterator[str]:
    yield f'<th scope="row">{escape(row[0])}</th>'
    yield from (f"<td{side}>{escape(cell)}</td>" for cell, side in zip(row[1:], sides[1:], strict=True))
