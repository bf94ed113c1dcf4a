"""`run`: a job from a command line or a file; its output is shown, and its exit code is the command's."""

import os
from pathlib import Path
from typing import Any

import click

from moorage.cli.commands.serve import ServeCommand, env_of, name_of
from moorage.cli.failures import say
from moorage.cli.following import follow
from moorage.cli.output import print_value
from moorage.cli.session import Session, command, examples
from moorage.domain.errors import InvalidSpec

SUFFIX_BYTES = 3


@click.command(
    cls=ServeCommand,
    epilog=examples(
        "moor run -- python3 train.py --epochs 3",
        "moor run --name prep --gpus 1 --time-limit 2h -e SEED=7 -- ./prepare.sh",
        "moor run --count 4 --gang -- torchrun --nnodes 4 train.py",
        "moor run --image docker.io/library/debian:12 --detach -- sleep 60",
        "moor run -f train.yaml",
    ),
)
@click.option("--file", "-f", "file", help="A spec file with one Run; - for stdin.")
@click.option("--name", help="Of the run; else the command's, with a few letters that make it unique.")
@click.option("--detach", "-d", is_flag=True, help="Only submit it.")
@click.option("--env", "-e", "env", multiple=True, metavar="KEY=VALUE", help="For its environment.")
@click.option("--secret", "secrets", multiple=True, metavar="KEY=SECRET", help="A variable whose value is a secret.")
@click.option("--image", help="Run it in a container of this image.")
@click.option("--runner", type=click.Choice(["process", "podman", "docker"]), help="How (podman where --image is).")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="Workers.")
@click.option("--gang", is_flag=True, help="All workers start together or not at all.")
@click.option("--gpus", type=click.IntRange(0), default=0, show_default=True, help="Whole GPUs of each worker.")
@click.option("--gpu-model", "gpu_models", multiple=True, help="A GPU model that will do (H100).")
@click.option("--cpu", help="Of each worker: 2 or 500m.")
@click.option("--memory", help="Of each worker: 4GiB.")
@click.option("--retries", type=click.IntRange(0), default=0, show_default=True, help="Restarts after a failure.")
@click.option("--time-limit", metavar="DURATION", help="Ends it, such as 90m.")
@click.option("--priority", type=int, default=0, show_default=True, help="Higher goes first.")
@click.option("--on", "machines", multiple=True, metavar="MACHINE", help="Only on this machine.")
@click.option("--label", "-l", "labels", multiple=True, metavar="KEY=VALUE", help="For `ls -l`.")
@click.option("--workdir", help="Folder to start it in (this one).")
@click.option("--key", help="Idempotency key.")
@command
def run(session: Session, *, file: str | None, detach: bool, key: str | None, **given: Any) -> int | None:
    """Run a job: everything after -- is its command.

    Its output is shown, and its exit code is this command's. Ctrl-C asks whether to cancel it or to leave it running.
    """
    argv = list(click.get_current_context().meta.get(ServeCommand.REST) or ())
    document = _of_file(file, argv) if file is not None else _of_options(session.namespace, argv, given)
    answer = session.client.runs.apply(document, key=key)
    accepted: dict[str, Any] = answer.get("run") or answer
    for warning in answer.get("warnings") or ():
        say(f"warning: {warning.get('message', warning) if isinstance(warning, dict) else warning}")
    if getattr(document, "schedule", None) is not None:
        detach = True
        if session.human:
            say(f"{accepted['name']} makes runs at its times; see the next with  moor status {accepted['name']}")
    if detach:
        if session.human:
            click.echo(accepted["name"])
        else:
            print_value(accepted, session.form)
        return None
    return follow(session, accepted)


def _of_file(file: str, argv: list[str]) -> Any:
    from moorage.cli.commands.specs import read_documents

    if argv:
        raise InvalidSpec("a file and a command are two ways of saying what to run", remedy="keep one of them")
    documents = [document for document in read_documents(file) if document.kind == "Run"]
    if len(documents) != 1:
        raise InvalidSpec(
            f"{file} holds {len(documents)} documents of kind Run, and one is run at a time",
            remedy="apply several with `moor apply -f`, then follow each with `moor logs -f NAME`",
        )
    return documents[0]


def _of_options(namespace: str, argv: list[str], given: dict[str, Any]) -> Any:
    from moorage.wire.shorthand import Job, run_document

    if not argv:
        raise InvalidSpec("nothing to run", remedy="give the command after --, or a file with -f")
    contained = given["image"] is not None or given["runner"] in ("podman", "docker")
    given["name"] = given["name"] or f"{name_of(Path(argv[0]).name, 'run')[:50]}-{os.urandom(SUFFIX_BYTES).hex()}"
    given["workdir"] = given["workdir"] or (None if contained else str(Path.cwd()))  # as if started here by hand
    given["env"] = env_of(given["env"])
    given["secrets"] = env_of(given["secrets"], "--secret")
    given["labels"] = env_of(given["labels"], "--label")
    return run_document(Job(command=argv, namespace=namespace, **given))
