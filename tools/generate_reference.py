"""Writes the reference pages that are made from data: `docs/reference/lifecycles.md` and `docs/reference/reasons.md`.

    python tools/generate_reference.py            write them
    python tools/generate_reference.py --check    exit 1 when one of them is not as the data says

The pages are made from the transition tables and the catalogue alone, so that they cannot say anything else than what
the code does. Run it after any change of either; `make check` and a test compare.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path

from moorage.domain.catalogue import GROUPS
from moorage.domain.lifecycles import TABLES, TRIGGERS
from moorage.domain.reasons import ReasonType
from moorage.domain.transitions import Table, Transition

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"
MADE_BY = "<!-- Made by tools/generate_reference.py from the code; do not edit by hand. -->"


def lifecycles_page() -> str:
    """Each noun's diagram, its transitions, and what its trigger words mean."""
    lines = [
        "# Lifecycles",
        MADE_BY,
        "Every noun, its states, and what moves it. A transition that is not listed here cannot happen: the store "
        "checks each one against these tables in the transaction that writes it.",
    ]
    for noun, table in TABLES.items():
        lines += [f"## {noun}", _diagram(table), _facts(table), _transitions(table), _words(TRIGGERS[noun])]
    return "\n\n".join(lines) + "\n"


def reasons_page() -> str:
    """Each group of codes as a table."""
    lines = [
        "# Reasons",
        MADE_BY,
        "Every state carries a reason: a stable code, a class, params and a sentence. Programs match on codes, never "
        "on the sentence. A part in square brackets is left out when a param in it is absent; params marked `?` may "
        "be absent. `:duration` is given in seconds, `:size` in bytes, `:time` in seconds since the epoch (UTC), "
        "`:cpu` in thousandths of a core.",
        "Classes: `waiting` (it can still come), `impossible` (somebody must change something), `failed` (something "
        "went wrong), `by_person` (a person asked for it), `progress` (it goes on as intended).",
    ]
    for title, entries in GROUPS.items():
        rows = ["| code | class | sentence | params | what to do |", "|---|---|---|---|---|"]
        lines += [f"## {title}", "\n".join([*rows, *(_reason_row(e) for e in entries)])]
    return "\n\n".join(lines) + "\n"


def _diagram(table: Table) -> str:
    body = [f"    [*] --> {state}" for state in _ordered(table, table.initial)]
    for (source, target), rows in _by_edge(table):
        body.append(f"    {source} --> {target}: {', '.join(row.trigger for row in rows)}")
    body += [f"    {state} --> [*]" for state in _ordered(table, table.terminal)]
    return "\n".join(["```mermaid", "stateDiagram-v2", *body, "```"])


def _facts(table: Table) -> str:
    terminal = ", ".join(f"`{s}`" for s in _ordered(table, table.terminal)) or "none"
    return f"Begins in {', '.join(f'`{s}`' for s in _ordered(table, table.initial))}. Terminal: {terminal}."


def _transitions(table: Table) -> str:
    lines = ["| from | to | on |", "|---|---|---|"]
    for (source, target), rows in _by_edge(table):
        lines.append(f"| {source} | {target} | {', '.join(f'`{row.trigger}`' for row in rows)} |")
    return "\n".join(lines)


def _words(triggers: Mapping[str, str]) -> str:
    return "\n".join(["| on | when |", "|---|---|", *(f"| `{word}` | {text} |" for word, text in triggers.items())])


def _by_edge(table: Table) -> Iterator[tuple[tuple[str, str], list[Transition]]]:
    """The rows of each (from, to), in the order of the states."""
    order = {str(state): index for index, state in enumerate(table.states)}
    rows = sorted(table.rows, key=lambda r: (order[r.source], order[r.target], r.trigger))
    return ((edge, list(group)) for edge, group in groupby(rows, key=lambda r: (r.source, r.target)))


def _ordered(table: Table, states: frozenset[str]) -> list[str]:
    return [str(state) for state in table.states if str(state) in states]


def _reason_row(entry: ReasonType) -> str:
    params = ", ".join([*(f"`{p}`" for p in entry.params), *(f"`{p}?`" for p in entry.optional)])
    klass = str(entry.klass)
    if entry.progress_when is not None:
        klass += f" (progress when `{entry.progress_when[0]}` is {entry.progress_when[1]})"
    cells = (f"`{entry.code}`", klass, entry.sentence, params, entry.advice or "")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def pages() -> Mapping[Path, str]:
    """What each page should hold."""
    return {REFERENCE / "lifecycles.md": lifecycles_page(), REFERENCE / "reasons.md": reasons_page()}


def stale() -> list[Path]:
    """The pages that are missing or differ from what the code says."""
    return [p for p, text in pages().items() if not p.exists() or p.read_text(encoding="utf-8") != text]


def main() -> int:
    """Write the pages, or compare them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a page is out of date")
    if parser.parse_args().check:
        for path in stale():
            print(f"{path.name} is out of date: run python tools/generate_reference.py", file=sys.stderr)
        return 1 if stale() else 0
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
