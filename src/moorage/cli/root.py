"""The command group: every command's name, home module and one line of help, as data; modules load when used.

Called by `main`. A new command is one row here and one function in `commands/`.
"""

import importlib
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import click

from moorage.cli.failures import USAGE, guarded, print_error, say
from moorage.cli.failures import __doc__ as _failures_doc
from moorage.domain.errors import InvalidSpec

SECTIONS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "This machine": {
        "up": ("parts", "Start control plane, agent and gateway here and wait until they answer."),
        "down": ("parts", "Stop them, the model servers and the jobs."),
        "demo": ("demo", "A real small model served end to end, with a crash and a sleep."),
        "server": ("parts", "Run only the control plane, in the foreground."),
        "agent": ("parts", "Run only the agent, in the foreground."),
        "gateway": ("parts", "Run only the gateway, in the foreground."),
    },
    "Deploy": {
        "init": ("specs", "Write a commented spec to start from."),
        "validate": ("specs", "Check spec files without sending them."),
        "plan": ("apply", "Show what an apply would change."),
        "apply": ("apply", "Make what the files say so."),
        "serve": ("serve", "A deployment without a file."),
        "run": ("run", "A job: its output is shown, its exit code passed on."),
        "adopt": ("adopt", "A server that somebody else started, watched or given traffic."),
        "promote": ("rollout", "Let a candidate revision take over."),
        "reject": ("rollout", "End a candidate revision."),
        "rollback": ("rollout", "Go back to a revision that served before."),
        "evidence": ("evidence", "Post a quality score of a revision, for the release guard."),
        "endpoint": ("endpoints", "Names that clients call, bound to deployments by weight."),
        "scale": ("switches", "Change how many replicas a deployment may have."),
        "pause": ("switches", "Put a deployment to sleep; the next request wakes it."),
        "wake": ("switches", "Wake a sleeping deployment now."),
        "cancel": ("jobs", "End runs."),
        "restart": ("jobs", "Start a run again, or a finished one anew."),
        "stop": ("ending", "Stop deployments or cancel runs."),
        "delete": ("ending", "Delete deployments, runs or endpoints and all that is theirs."),
    },
    "Look": {
        "ls": ("listing", "List deployments, runs, endpoints, machines or operations."),
        "get": ("listing", "Show one object whole."),
        "rollout": ("rollout", "What is rolled out, what it waits for, and why it was decided so."),
        "status": ("status", "What a deployment is doing now, and why."),
        "why": ("why", "Why something is (not) running, and what would change that."),
        "history": ("history", "Every change of one object, with its reason."),
        "events": ("history", "Changes of everything, as they happen."),
        "logs": ("logs", "Output of a model server or job."),
        "exec": ("exec", "A command beside a running worker."),
        "workers": ("listing", "Processes of a run."),
        "top": ("top", "Machines, what runs on them and what waits, as it changes."),
        "machines": ("machines", "Machines, their GPUs and who holds them."),
        "operations": ("operations", "Durable work: applies, rollouts, stops, deletes."),
        "orphans": ("orphans", "What runs on machines and belongs to nothing."),
        "inspect": ("inspect", "Everything known of one object or request."),
        "wait": ("waiting", "Wait for a goal; fails with the reason when it cannot be reached."),
    },
    "Machines": {
        "cordon": ("machines", "Place nothing new on a machine."),
        "drain": ("machines", "Empty a machine; its work goes elsewhere."),
        "uncordon": ("machines", "Give a machine work again."),
    },
    "Plan": {
        "simulate": ("simulate", "Days of a cluster in seconds, with the production scheduler."),
    },
    "Settings": {
        "namespaces": ("namespaces", "Namespaces, and the machines that each may use."),
        "quota": ("namespaces", "How much each namespace may hold, and does."),
        "cache": ("cache", "Models that machines fetched and keep."),
        "drives": ("drives", "Data that lies on one machine, for workers to use."),
        "keys": ("keys", "What clients of endpoints show: issued, limited and revoked."),
        "secrets": ("secrets", "Values that workers are given and nobody can read back."),
        "config": ("config", "Effective settings, and where each comes from."),
        "version": ("config", "Version of this command, and whether the control plane answers."),
    },
}

_ROWS = {name: row for rows in SECTIONS.values() for name, row in rows.items()}
EPILOG = "\b\nExit codes:\n" + "\n".join(line for line in (_failures_doc or "").splitlines() if line.startswith("    "))
EPILOG += """

\b
With --output json an error is also printed on stdout, as the API says it:
    {"error": {"code": …, "category": …, "message": …, "retryable": …, "remedy": …}}"""


class Commands(click.Group):
    """Loads a command's module when that command is used, and lists all from the table above."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name, in order."""
        return list(_ROWS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one."""
        if cmd_name not in _ROWS:
            return None
        module = importlib.import_module(f"moorage.cli.commands.{_ROWS[cmd_name][0]}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """As Click does, but an unknown name is answered with the nearest known one."""
        if args and args[0] not in _ROWS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], _ROWS, n=1, cutoff=0.5)
            hint = f"did you mean `moor {near[0]}`?" if near else "`moor --help` lists them all."
            raise click.UsageError(f"there is no command `{args[0]}`; {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Sections of one-line helps, without loading anything."""
        for title, rows in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in rows.items()])


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        from moorage._version import VERSION

        click.echo(f"moor {VERSION}")
        ctx.exit()


@click.group(
    cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version", "-V", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Its version."
)
def moor() -> None:
    """Keep model servers and GPU jobs alive on machines you own, and always know why.

    \b
    moor up                            a working control plane on this machine
    moor serve -- CMD --port {port}    a model server, kept alive
    moor status NAME                   what it is doing, and why
    """


def run(args: Sequence[str], env: Mapping[str, str]) -> int:
    """Run the group; usage errors are one block as well.

    Args:
        args: arguments after the program's name.
        env: the environment.
    """
    as_json = wants_json(args)
    return guarded(lambda: _invoke(args, env, as_json), as_json=as_json)


def wants_json(args: Sequence[str]) -> bool:
    """Whether the output is to be JSON, told from the arguments alone: an error may be in those."""
    own = args[: args.index("--")] if "--" in args else args
    joined = ("-ojson", "-o=json", "--output=json")
    pairs = itertools.pairwise(own)
    return any(word in joined for word in own) or any(a in ("-o", "--output") and b == "json" for a, b in pairs)


def _invoke(args: Sequence[str], env: Mapping[str, str], as_json: bool) -> int:
    try:
        answer = moor.main(args=list(args), prog_name="moor", standalone_mode=False, obj=env)
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.exceptions.NoArgsIsHelpError as bare:
        click.echo(bare.ctx.get_help() if bare.ctx else "")
        return 0
    except click.UsageError as wrong:
        path = wrong.ctx.command_path if wrong.ctx else "moor"
        say(f"error: {wrong.format_message()}\n  to do: see `{path} --help`")
        if as_json:
            print_error(InvalidSpec(wrong.format_message(), code="usage", remedy=f"see `{path} --help`"))
        return USAGE
    except click.ClickException as wrong:
        say(f"error: {wrong.format_message()}")
        if as_json:
            print_error(InvalidSpec(wrong.format_message(), code="usage"))
        return USAGE
    return answer if isinstance(answer, int) else 0
