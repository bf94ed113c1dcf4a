"""`adopt`: a server that somebody else started becomes a deployment."""

import click

from moorage.cli.session import Session, command, examples, timeout_option

MEANS = {
    "observe": "it is only observed",
    "traffic": "it is given traffic",
    "lifecycle": "it is given traffic, and ours to end",
}
"""Mode → what is done with the server."""


@click.command(
    epilog=examples(
        "moor adopt http://10.0.0.7:8000 --name llama --mode observe",
        "moor adopt http://10.0.0.7:8000 --name llama --model llama-3-8b --mode traffic --wait",
        "moor adopt http://10.0.0.7:8000 --name llama --mode lifecycle --resource box-1/pid:4711",
    )
)
@click.argument("url")
@click.option("--name", required=True, help="Name of the deployment, and of its endpoint.")
@click.option(
    "--mode",
    type=click.Choice(tuple(MEANS)),
    default="observe",
    show_default=True,
    help="observe: only look at it. traffic: send requests there too. lifecycle: a delete also ends it.",
)
@click.option("--resource", metavar="MACHINE/pid:N", help="What lifecycle may end; also MACHINE/container:ID.")
@click.option("--model", help="Model id that it must list; without it any answer counts.")
@click.option("--wait", is_flag=True, help="Until it was seen to serve.")
@timeout_option("60s")
@click.option("--key", help="Idempotency key.")
@command
def adopt(
    session: Session,
    url: str,
    *,
    name: str,
    mode: str,
    resource: str | None,
    model: str | None,
    wait: bool,
    timeout_s: float,
    key: str | None,
) -> None:
    """Take a running server in, without starting or changing it.

    What is adopted to observe or for traffic is never stopped by us, not by a delete either. For lifecycle its machine
    needs an agent, which tells exactly what it is; only that is ever ended.
    """
    answer = session.client.deployments.adopt(name, url, mode=mode, resource=resource, model=model, key=key)
    if wait:
        progress = session.progress()
        progress.update(f"waits for {url} to answer")
        try:
            session.client.operations.wait(answer["operation"], timeout_s=timeout_s)
        finally:
            progress.clear()
    session.show_text(answer, lambda: told(name, mode, changed=bool(answer["changed"])))


def told(name: str, mode: str, *, changed: bool) -> str:
    """What was made of it, and how it is watched.

    Args:
        changed: False: it was so before.
    """
    word = "adopted" if changed else "was adopted already"
    return f"{name}: {word}; {MEANS[mode]}\n\n    moor status {name}"
