"""`demo`: the demonstration; what happens in it is in `moorage.cli.demo`."""

import click

from moorage.cli.session import examples


@click.command(epilog=examples("moor demo", "moor demo --keep"))
@click.option("--keep", is_flag=True, help="Leave it running at the end, and say how to reach it.")
@click.pass_obj
def demo(env: dict[str, str], keep: bool) -> int:
    """Show a real small model served end to end: a crash, a sleep, a wake, a failure; then clean up and prove it.

    Everything lies in a temporary folder, on free ports; what runs under ~/.moorage is not touched.
    """
    from moorage.cli.demo.story import play

    return play(env, keep=keep)
