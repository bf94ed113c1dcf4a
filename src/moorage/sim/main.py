"""What `moor simulate` becomes: reads the files, plays each policy, prints the report and writes the page.

    python -m moorage.sim.main OPTIONS_AS_JSON

Called by `moorage.cli.commands.simulate`. Ctrl-C ends the simulation, not the command: what there is by then is
reported, with exit code 130; a second one ends the command.
"""

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from moorage.cli.failures import INTERRUPTED, OK, guarded, say
from moorage.cli.output import print_table, print_value
from moorage.cli.progress import Progress
from moorage.decide.scheduling.policies import Policy
from moorage.domain.errors import InvalidSpec
from moorage.domain.nouns import Machine
from moorage.sim import machines, tables, traces
from moorage.sim.page import page
from moorage.sim.play import Played, Setting, play
from moorage.sim.report import FRAGMENTATION, Report, to_json
from moorage.sim.traces import Trace
from moorage.sim.workload import Choice, choose

Options = Mapping[str, Any]


class Stop:
    """Whether Ctrl-C was pressed; at the second time the command ends as usual."""

    def __init__(self) -> None:
        self._asked = False

    def asked(self) -> bool:
        """Whether it was."""
        return self._asked

    def listen(self) -> None:
        """From now on the first Ctrl-C is only noted."""
        signal.signal(signal.SIGINT, self._note)

    def _note(self, *_: object) -> None:
        self._asked = True
        signal.signal(signal.SIGINT, signal.default_int_handler)


def main(argv: list[str] | None = None) -> int:
    """Entry of the process."""
    options = json.loads((argv or sys.argv[1:])[0])
    stop = Stop()
    stop.listen()
    return guarded(lambda: simulate(options, stop.asked), as_json=options.get("output") == "json")


def simulate(options: Options, stopped: Callable[[], bool]) -> int:
    """Play, print, write.

    Raises:
        MoorageError: a file or an option is wrong.
    """
    out = None if options["out"] is None else _writable(Path(options["out"]))
    report = run(options, stopped)
    if out is not None:
        _write(out, page(report))
    if options["output"] == "json":
        print_value(to_json(report), "json")
    else:
        show(report)
        if out is not None:
            say(f"written: {out}")
    return INTERRUPTED if report.interrupted else OK


def run(options: Options, stopped: Callable[[], bool]) -> Report:
    """The report of what the options ask for."""
    fleet = machines.load(Path(options["machines"]))
    trace = traces.load(Path(options["trace"]))
    gpus = sum(len(machine.capacity["gpus"]) for machine in fleet)
    choice = Choice(
        hours=hours(options["hours"]),
        sample=options["sample"],
        scale=options["scale"],
        pace=options["pace"],
        saturate=options["saturate"],
        limits=options["limits"],
        seed=options["seed"],
    )
    chosen = choose(trace, choice, gpus)
    played: list[Played] = []
    for policy in dict.fromkeys(map(Policy, options["policy"])):
        if stopped():
            break
        played.append(_play(fleet, chosen, policy, choice, stopped))
    title = f"{Path(options['trace']).name} on {Path(options['machines']).name}"
    return Report.of(title, fleet, chosen, played, seed=choice.seed, saturating=choice.saturate)


def _play(
    fleet: Sequence[Machine], trace: Trace, policy: Policy, choice: Choice, stopped: Callable[[], bool]
) -> Played:
    progress = Progress()
    last = -1

    def told(tasks: int, at: float) -> None:
        nonlocal last
        part = 100 * tasks // len(trace.tasks)
        if part != last and (progress.live or part // 25 != last // 25):
            # each quarter is news, also where lines stay and those that differ in numbers alone are mostly left out
            (progress.update if progress.live else progress.say)(
                f"{policy}: {part} % of {len(trace.tasks):,} tasks submitted, {tables.span(at)} simulated"
            )
            last = part

    setting = Setting(choice.seed, choice.saturate, time.perf_counter, time.process_time, stopped, told)
    try:
        return play(fleet, trace.tasks, policy, setting)
    finally:
        progress.clear()


def hours(text: str | None) -> tuple[float, float | None]:
    """`24` (the first day), `24:48` (the second) or `24:` (all after the first).

    Raises:
        InvalidSpec: it is none of these.
    """
    if text is None:
        return 0.0, None
    begin, end = text.split(":", 1) if ":" in text else ("0", text)
    try:
        found = float(begin or 0), float(end) if end else None
    except ValueError:
        found = -1.0, None
    if not 0 <= found[0] < (found[1] if found[1] is not None else float("inf")):
        raise InvalidSpec(f"--hours {text}: is no stretch of hours", remedy="use `24`, `24:48` or `24:`")
    return found


def show(report: Report) -> None:
    """The report on the terminal."""
    print(
        f"{report.title}: {report.machines:,} machines, {report.gpus:,} GPUs; {report.tasks:,} tasks asking for "
        f"{report.gpus_asked:,} GPUs\n",
        flush=True,
    )
    print_table(tables.summary(report))
    print(flush=True)
    print_table(tables.waits(report))
    if any(one.never for one in report.played):
        print("\nnever placed", flush=True)
        print_table(tables.never(report))
    print(flush=True)
    for note in (*report.notes, FRAGMENTATION):
        print(f"- {note}", flush=True)


def _writable(path: Path) -> Path:
    """The path, once it is known that a file can be made there: nobody should learn that after a long simulation."""
    if path.is_dir() or not path.parent.is_dir():
        what = "is a folder" if path.is_dir() else "its folder does not exist"
        raise InvalidSpec(f"--out {path}: {what}", remedy="name a file in a folder that exists")
    return path


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidSpec(f"--out {path}: cannot be written: {error.strerror}", remedy="name another file") from None


if __name__ == "__main__":
    sys.exit(main())
