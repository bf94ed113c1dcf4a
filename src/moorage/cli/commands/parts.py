"""`up`, `down`, and the parts alone: each becomes a process of `moorage.app.commands`, which knows the settings."""

import json
import os
import sys
from typing import Any, NoReturn

import click

from moorage.cli.session import finite


def become(env: Any, part: str, /, **options: Any) -> NoReturn:
    """Turn this process into one of the composition's commands: same terminal, same signals, same exit code."""
    launch(env, "moorage.app.commands", options, part)


def launch(env: Any, module: str, options: Any, *words: str) -> NoReturn:
    """Turn this process into a module's own: its words, then its options as JSON."""
    argv = [sys.executable, "-P", "-m", module, *words, json.dumps(options)]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(argv[0], argv, dict(env))


output = click.option("--output", "-o", type=click.Choice(["table", "json"]), default="table", help="How to print.")
port = click.option("--port", type=click.IntRange(1, 65535), help="Port of the control API (7420).")
gateway_port = click.option("--gateway-port", type=click.IntRange(1, 65535), help="Port of the gateway (7421).")


@click.command(epilog="\b\nExamples:\n  moor up\n  MOORAGE_HOME=/srv/moorage moor up --port 8420 --gateway-port 8421")
@port
@gateway_port
@click.option("--foreground", is_flag=True, help="Stay; Ctrl-C stops everything.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(1),
    callback=finite,
    default=60.0,
    show_default=True,
    help="Seconds to wait.",
)
@output
@click.pass_obj
def up(env: Any, /, **options: Any) -> None:
    """Start control plane, agent and gateway on this machine and wait until they answer.

    State lies under $MOORAGE_HOME (~/.moorage). A part that dies is started again; model servers outlive all of them.

    Settings are the MOORAGE_… variables of this shell and $MOORAGE_HOME/config.toml. Doing it again changes nothing
    that runs: it says which settings have become others, and what takes them up. Where nothing runs, it starts with
    those of now; what must stay so for every shell belongs in config.toml.
    """
    become(env, "up", **options)


@click.command(
    epilog="\b\nExamples:\n  moor down\n  moor down --keep     # model servers live on; the next `moor up` adopts them"
)
@click.option("--keep", is_flag=True, help="Leave model servers running.")
@output
@click.pass_obj
def down(env: Any, /, **options: Any) -> None:
    """Stop agent (with the model servers), gateway and control plane of this machine.

    Only processes whose identity is proven are ended. Doing it again changes nothing.
    """
    become(env, "down", **options)


@click.command(epilog="\b\nExample:\n  MOORAGE_DATABASE_URL=postgresql://moorage@db/moorage moor server")
@port
@click.pass_obj
def server(env: Any, /, **options: Any) -> None:
    """Run only the control plane, in the foreground."""
    become(env, "server", **options)


@click.group(
    invoke_without_command=True,
    epilog="\b\nExamples:\n  moor agent join http://10.0.0.1:7420 --token T\n"
    "  MOORAGE_AGENT_LABELS=pool=gpu moor agent",
)
@click.pass_obj
def agent(env: Any, /, **options: Any) -> None:
    """Run only the agent, in the foreground: of the control plane that was joined last, else of MOORAGE_URL."""
    if click.get_current_context().invoked_subcommand is None:
        become(env, "agent", **options)


@agent.command(
    epilog="\b\nExamples:\n  moor machines join-token     # on a machine that is in\n"
    "  moor agent join http://10.0.0.1:7420 --token T --name gpu-7"
)
@click.argument("url")
@click.option("--token", help="From `moor machines join-token`; else MOORAGE_TOKEN.")
@click.option("--name", help="Of this machine in the cluster (its host's name).")
@click.option("--host", help="Address under which the others reach it (the one that leads to the control plane).")
@click.pass_obj
def join(env: Any, /, **options: Any) -> None:
    """Make this machine a member of the control plane at URL and run its agent, in the foreground.

    State lies under $MOORAGE_HOME (~/.moorage). Afterwards `moor agent` alone goes on as that member.
    """
    become(env, "join", **options)


@click.command(
    epilog="\b\nExamples:\n  moor gateway --gateway-port 8421\n"
    "  moor gateway --reload      # new settings, certificate or release; no connection is dropped\n"
    "  MOORAGE_GATEWAY_WRITE_TIMEOUT_S=90s moor gateway --reload    # `moor config show` lists all settings\n"
    "  moor gateway --service > /etc/systemd/system/moorage-gateway.service"
)
@gateway_port
@click.option("--reload", is_flag=True, help="Have the running gateway of this home take up the settings of now.")
@click.option("--service", is_flag=True, help="Print a systemd unit that runs the gateway with the settings of now.")
@output
@click.pass_obj
def gateway(env: Any, /, **options: Any) -> None:
    """Run only the gateway, in the foreground.

    With --reload: new processes take over from those that run (of `moor up` or `moor gateway`), which finish what they
    have begun. It waits until they have ended; if the new ones cannot start, the old ones stay.
    """
    if options["reload"] and options["service"]:
        raise click.UsageError("--reload and --service are two different things")
    become(env, "gateway", **options)
