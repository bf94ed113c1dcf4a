"""`init` and `validate`: specs as files. Neither needs a control plane."""

import sys
from pathlib import Path
from typing import Any

import click

from moorage.cli.output import Column, Table
from moorage.cli.session import Session, command, examples
from moorage.client.address import unread
from moorage.domain.errors import Conflict, InvalidSpec

TEMPLATE = """\
# A deployment: a model server that is kept alive, routed to, put to sleep and woken.
# Check it with `moor validate {file}`, see what it would change with `moor plan -f {file}`,
# and make it so with `moor apply -f {file} --wait`.
kind: Deployment
name: {name}
# labels: {{team: search}}

# --- what is served: a change here makes a new revision ---------------------------------------------------------
model:
  id: {name}                    # what the server's /v1/models must list; remove it when the server has no such list
  # source: ./model.gguf        # a file on the machine; {{model}} in the command
runtime:
  # {{port}} and {{host}} are filled in on the machine; the server must listen there
  command: [python3, -m, my_server, --host, "{{host}}", --port, "{{port}}"]
  # env: {{LOG_LEVEL: info}}
  # workdir: /srv/models
  ready: {{path: /health, timeout: 30m}}        # asked until it is OK; then the model's id is looked for
  live: {{path: /health, interval: 5s, failures: 3}}
  stop: {{signal: SIGTERM, grace: 20s}}
resources:
  cpu: 1
  memory: 2GiB
  # gpus: {{count: 1, memory: 24GiB}}
# placement: {{labels: {{pool: gpu}}}}

# --- how it is run: a change here is applied at once ------------------------------------------------------------
replicas: {{min: 1, max: 1}}     # min 0: it sleeps when idle, and the first request wakes it
# scaling: {{idle_timeout: 1h}}
# gateway: {{max_in_flight: 16, max_queue: 100}}
"""

RUN_TEMPLATE = """\
# A run: a job of one or more workers, queued, placed, restarted and explained.
# Check it with `moor validate {file}`, then `moor run -f {file}` runs it and shows its output.
kind: Run
name: {name}
# labels: {{team: search}}
groups:
  - name: worker
    count: 1                      # or total_gpus: 12, planned evenly over the machines there are
    # depends_on: [{{group: data, condition: running}}]      # running | healthy; not in a gang
    runtime:
      command: [python3, train.py]
      # env: {{SEED: "7"}}
      # secrets: {{HF_TOKEN: hf-token}}       # a variable whose value is a secret (`moor secrets set hf-token`)
      # configs: [{{path: /etc/train.toml, content: "steps = 100"}}]
      # mounts: [{{source: ./data, target: /data, read_only: true}}]
      # workdir: .                # from this file's folder
      # image: docker.io/library/debian:12
      # runner: podman            # process | podman | docker
      # stop: {{signal: SIGTERM, grace: 30s}}     # time to save before it is killed
    resources:
      cpu: 1
      memory: 2GiB
      # gpus: {{count: 1, memory: 24GiB}}
    restart_policy: OnFailure     # OnFailure | Always | Never
    # expose: [{{port: 8080, protocol: http, external: false}}]     # http | tcp | udp
restart: {{backoff: 10s, budget: 10, reset_after: 10m}}
# gang: true                      # all workers start together or not at all, and meet at MASTER_ADDR:MASTER_PORT
# array: {{count: 20, max_parallel: 4}}           # the same worker many times, each with its MOORAGE_ARRAY_INDEX
# after: [{{run: prep, condition: completed}}]
# time_limit: 4h
# priority: 0
# schedule: {{cron: "0 3 * * *", timezone: UTC}}
# placement: {{labels: {{pool: gpu}}}}
# drives: [{{name: data, target: /drive}}]        # `moor drives`; place: true copies it to the worker's machine
# identity: true                  # each worker gets a certificate that says who it is
"""
ENDPOINT_TEMPLATE = """\
# An endpoint: a name for clients in front of deployments, which can be bound to others without a lost request.
# Check it with `moor validate {file}`, then `moor apply -f {file} --wait` brings it to every gateway.
kind: Endpoint
name: {name}                      # what clients send as `model`
# labels: {{team: search}}
routes:                           # deployments of this namespace; each gets its weight out of the sum of them all
  - {{deployment: my-model, weight: 100}}
  # - {{deployment: my-model-next, weight: 0}}       # 0: no request yet
# limits: {{requests_per_minute: 600, tokens_per_minute: 200000, in_flight: 64}}      # of each client's key
"""
TEMPLATES = {"deployment": TEMPLATE, "run": RUN_TEMPLATE, "endpoint": ENDPOINT_TEMPLATE}


@click.command(
    epilog=examples(
        "moor init gemma",
        "moor init gemma --file deploy/gemma.yaml",
        "moor init train --kind run",
        "moor init chat --kind endpoint",
    )
)
@click.argument("name", default="my-model")
@click.option("--kind", "-k", type=click.Choice(list(TEMPLATES)), default="deployment", show_default=True)
@click.option("--file", "-f", type=click.Path(path_type=Path), help="Where to write it (NAME.yaml); - for stdout.")
@click.option("--force", is_flag=True, help="Replace a file that exists.")
@command
def init(_session: Session, name: str, kind: str, file: Path | None, force: bool) -> None:
    """Write a commented spec to start from."""
    from moorage.wire.spec import parse_documents

    path = file or Path(f"{name}.yaml")
    text = TEMPLATES[kind].format(name=name, file=path)
    parse_documents(text, source=f"a spec of the name {name!r}")  # a name that no spec may have is refused here
    if str(path) == "-":
        sys.stdout.write(text)
        return
    if path.exists() and not force:
        raise Conflict(f"{path} exists already", remedy="choose another with --file, or replace it with --force")
    try:
        path.write_text(text)
    except OSError as cause:
        raise InvalidSpec(
            f"cannot write {path}: {cause.strerror}", remedy="choose another place with --file"
        ) from cause
    edit = "name its deployments" if kind == "endpoint" else "edit its command"
    click.echo(f"wrote {path}\nnext:  {edit}, then  moor validate {path}")


@click.command(epilog=examples("moor validate gemma.yaml", "cat gemma.yaml | moor validate -"))
@click.argument("files", nargs=-1, required=True)
@command
def validate(session: Session, files: tuple[str, ...]) -> None:
    """Check spec files without sending them anywhere. Every mistake is shown, with its place."""
    from moorage.client.documents import with_prompts

    found = [(source, doc) for source in files for doc in read_documents(source)]
    for _, doc in found:
        with_prompts(doc)  # a file that it names is read as well
    values: list[dict[str, Any]] = [
        {"file": source, "kind": doc.kind, "name": doc.name, "namespace": doc.namespace, "valid": True}
        for source, doc in found
    ]
    columns = (Column("FILE"), Column("KIND"), Column("NAME"), Column("VALID"))
    rows = tuple((v["file"], v["kind"], f"{v['namespace']}/{v['name']}", "yes") for v in values)
    session.show(values, lambda: Table(columns, rows))


def read_documents(source: str) -> list[Any]:
    """Every document of a file, or of standard input for `-`.

    Raises:
        InvalidSpec: it cannot be read, or something in it is wrong.
    """
    from moorage.wire.spec import parse_documents

    base = Path.cwd() if source == "-" else Path(source).absolute().parent
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text()
    except (OSError, UnicodeDecodeError) as cause:
        raise InvalidSpec(
            f"cannot read {source}: {unread(cause)}", remedy="give a YAML or JSON file, or - for stdin"
        ) from cause
    return list(parse_documents(text, source="standard input" if source == "-" else source, base=str(base)))
