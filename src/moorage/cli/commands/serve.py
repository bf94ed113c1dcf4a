"""`serve`: a deployment without a file, from a command line or a model file."""

import importlib.util
import sys
from pathlib import Path
from typing import Any

import click

from moorage.cli.commands.apply import apply_one
from moorage.cli.output import print_value
from moorage.cli.session import Session, command, examples, timeout_option
from moorage.domain.errors import InvalidSpec


class ServeCommand(click.Command):
    """Everything after `--` is the command to start, whatever it looks like."""

    REST = "moorage.rest"
    """where of `ctx.meta` it is"""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take the command off before options are read."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[self.REST] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


@click.command(
    cls=ServeCommand,
    epilog=examples(
        "moor serve --name gemma --model-id gemma-3 -- python3 -m my_server --port {port}",
        "moor serve ./SmolLM2-135M-Instruct.gguf --name smol",
        "moor serve hf://org/name@main/model-Q4_K_M.gguf --name smol",
        "moor serve ./m.gguf --min 0 --idle-timeout 15m -- llama-server -m {model} --port {port}",
    ),
)
@click.argument("model", required=False)
@click.option("--name", help="Of the deployment; else the model's or the command's.")
@click.option("--model-id", help="What the server's /v1/models must list; without it only /health is asked.")
@click.option("--env", "-e", "env", multiple=True, metavar="KEY=VALUE", help="For the server's environment.")
@click.option("--health", "health_path", help="Path asked for readiness (/health).")
@click.option("--min", "minimum", type=click.IntRange(0), default=1, show_default=True, help="Least replicas.")
@click.option("--idle-timeout", metavar="DURATION", help="Sleep after this long without a request (needs --min 0).")
@click.option("--gpus", type=click.IntRange(0), default=0, show_default=True, help="Whole GPUs.")
@click.option("--workdir", help="Folder to start it in (this one).")
@click.option("--key", help="Idempotency key.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="Wait until it is live.")
@timeout_option("30m")
@command
def serve(session: Session, model: str | None, wait: bool, timeout_s: float, key: str | None, **given: Any) -> None:
    """Keep a model server alive: MODEL is a file or hf://ORG/NAME@REVISION/FILE, or everything after -- is its command.

    {port}, {host} and {model} in the command are filled in on the machine.
    """
    argv = list(click.get_current_context().meta.get(ServeCommand.REST) or ())
    document = _document(session.namespace, model, argv, given)
    answer = apply_one(session, document, key, "live" if wait else None, timeout_s)
    if not session.human:
        print_value(answer, session.form)


def _document(namespace: str, model: str | None, argv: list[str], given: dict[str, Any]) -> Any:
    from moorage.wire.spec import serve_document

    if not argv and model is None:
        raise InvalidSpec("nothing to serve", remedy="give a model file, or the server's command after --")
    source = str(Path(model).expanduser().absolute()) if model and Path(model).expanduser().exists() else model
    name = given["name"] or name_of(Path(model).stem if model else Path(argv[0]).name)
    model_id = given["model_id"]
    if not argv:
        argv, model_id = _built_in(str(source), name), model_id or name
    if not any("{port}" in word for word in argv):
        raise InvalidSpec(
            "the command has no {port}: Moorage chooses the port, so the server must be told it",
            remedy="add it where your server takes a port, such as  --port {port}",
        )
    return serve_document(
        name=name,
        namespace=namespace,
        command=argv,
        model=model_id,
        source=source,
        env=env_of(given["env"]),
        workdir=given["workdir"] or str(Path.cwd()),  # as if it had been started here by hand
        health_path=given["health_path"],
        minimum=given["minimum"],
        idle_timeout=given["idle_timeout"],
        gpus=given["gpus"],
    )


def _built_in(source: str, name: str) -> list[str]:
    """The command for a bare model file: llama.cpp's server, where it is installed."""
    if not source.endswith(".gguf"):
        raise InvalidSpec(
            f"how to serve {source} is not known: only .gguf files have a server of their own here",
            remedy="give the server's command after --, with {model} and {port}",
        )
    if "://" not in source and not Path(source).is_file():
        raise InvalidSpec(f"there is no file {source}", remedy="give the path of a .gguf file on this machine")
    if importlib.util.find_spec("xllamacpp") is None:
        raise InvalidSpec(
            "no server for .gguf files is installed",
            remedy="pip install 'moorage[demo]', or give a server's command after --",
        )
    argv = [sys.executable, "-m", "moorage.demo.server", "--model", "{model}", "--host", "{host}", "--port", "{port}"]
    return [*argv, "--alias", name]


def name_of(raw: str, otherwise: str = "model") -> str:
    """A good name made of a file's or a command's; `otherwise` where nothing in it is good."""
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in raw.lower()).strip("-")[:63].strip("-")
    return name or otherwise


def env_of(pairs: tuple[str, ...], option: str = "--env") -> dict[str, str]:
    """Options `KEY=VALUE` as a mapping.

    Raises:
        InvalidSpec: one is not of that form.
    """
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise InvalidSpec(f"{option} {pair!r} is not KEY=VALUE", remedy=f"write it as  {option} KEY=VALUE")
        found[key] = value
    return found
