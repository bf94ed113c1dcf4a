"""`evidence`: a quality score of a revision, measured outside, for the release guard."""

import click

from moorage.cli.session import Session, command, examples, finite


@click.command(
    epilog=examples(
        "moor evidence gemma --revision 3 --metric eval --value 0.93 --samples 500",
        "moor evidence gemma --revision 2 --metric eval --value 0.94 --samples 500      # of the active one",
    )
)
@click.argument("name")
@click.option(
    "--revision", required=True, metavar="NUMBER", help="Number, name or id of the revision it was measured on."
)
@click.option("--metric", required=True, help="What was measured, as the spec's rollout.guard.quality names it.")
@click.option("--value", required=True, type=float, callback=finite, help="The score; more is better.")
@click.option("--samples", required=True, type=click.IntRange(min=1), help="How many cases it is the mean of.")
@click.option("--key", help="Idempotency key.")
@command
def evidence(
    session: Session, *, name: str, revision: str, metric: str, value: float, samples: int, key: str | None
) -> None:
    """Post a quality score of a revision. The release guard compares it where the spec asks for that metric.

    It needs the score of both revisions, the candidate's and the active one's. The last one posted counts, and it stays
    with its revision.
    """
    answer = session.client.deployments.post_evidence(
        name, revision=revision, metric=metric, value=value, samples=samples, key=key
    )
    session.show_text(answer, lambda: _said(name, answer))


def _said(name: str, answer: dict[str, object]) -> str:
    kept = "kept" if answer["changed"] else "known already"
    line = f"{name}: {answer['metric']} {answer['value']} from {answer['samples']} samples is {kept}"
    if answer["counts"]:
        return f"{line}\nnext:  moor rollout {name}"
    return f"{line}; the spec's rollout.guard.quality does not ask for it, so nothing is decided by it"
