"""`simulate`: becomes a process of `moorage.sim`, which plays traces with the production scheduler."""

from typing import Any

import click

from moorage.cli.commands.parts import launch
from moorage.cli.session import examples, finite


@click.command(
    epilog=examples(
        "moor simulate --machines examples/traces/machines.csv --trace examples/traces/tasks.csv",
        "moor simulate --machines M.csv --trace T.csv --policy fgd --policy best-fit --out report.html",
        "moor simulate --machines M.csv --trace T.csv --saturate --seed 7",
    )
)
@click.option("--machines", required=True, metavar="CSV", help="The cluster: name, cpu, memory_gib, gpus and more.")
@click.option("--trace", required=True, metavar="CSV", help="The tasks: submit_s, duration_s, gpus, cpu, memory_gib …")
@click.option(
    "--policy",
    multiple=True,
    type=click.Choice(["fgd", "best-fit", "first-fit", "random"]),
    default=["fgd"],
    help="How machines are chosen; several are set side by side. Production is fgd.",
)
@click.option("--hours", metavar="[FROM:]TO", help="Only tasks submitted in these hours of the trace.")
@click.option(
    "--sample",
    type=click.FloatRange(0, 1, min_open=True),
    callback=finite,
    default=1.0,
    show_default=True,
    help="Play each task with this probability.",
)
@click.option(
    "--scale",
    type=click.FloatRange(0, 10_000, min_open=True),
    callback=finite,
    default=1.0,
    show_default=True,
    help="Submit each task so many times.",
)
@click.option(
    "--pace",
    type=click.FloatRange(0, 1_000_000, min_open=True),
    callback=finite,
    default=1.0,
    show_default=True,
    help="Tasks arrive so many times as fast; how long each takes stays.",
)
@click.option("--saturate", is_flag=True, help="Fill the cluster until 130 % of its GPUs are asked for; nothing ends.")
@click.option(
    "--limits",
    type=click.FloatRange(1),
    callback=finite,
    help="Each task declares so many times its duration as limit.",
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of every draw.")
@click.option("--out", metavar="HTML", help="Write the report as a page with charts.")
@click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table", help="How to print.")
@click.pass_obj
def simulate(env: Any, /, **options: Any) -> None:
    """Play days of a cluster in seconds, with the scheduler that a control plane runs.

    Machines and tasks come from CSV files, with the columns of docs/simulate.md or those of the openb trace. Ctrl-C
    ends the simulation and shows what there is by then.
    """
    launch(env, "moorage.sim.main", options)
