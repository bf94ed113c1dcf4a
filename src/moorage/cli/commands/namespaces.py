"""`namespaces` and `quota`: which machines a namespace may use, and how much of everything it may hold."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click

from moorage.cli.output import Column, Table
from moorage.cli.session import Session, command, examples
from moorage.domain.errors import InvalidSpec

F = TypeVar("F", bound=Callable[..., Any])

RESOURCES: Mapping[str, str] = {
    "gpus": "GPUs of any model.",
    "cpu": "Cores, such as 64 or 500m.",
    "memory": "Memory, such as 512GiB.",
    "runs": "Runs that are not over.",
    "deployments": "Deployments.",
    "replicas": "Replicas, summed over the `max` of its deployments.",
    "requests_per_minute": "Requests of clients in any 60 seconds, over all gateways.",
    "tokens_per_minute": "Tokens of prompts and answers in any 60 seconds, over all gateways.",
}
"""What a quota limits beside single GPU models."""

_BY_MINUTE = {"requests_per_minute": "REQUESTS/MIN", "tokens_per_minute": "TOKENS/MIN"}
"""Limits that most namespaces do not have; in the list they have a column once one has them."""


@click.group(
    epilog=examples(
        "moor namespaces ls",
        "moor namespaces set research --machines pool=research",
        "moor namespaces rm research",
    )
)
def namespaces() -> None:
    """Teams' rooms: names, quotas and the machines that each may use.

    A namespace is there as soon as something lives in it (`-n NAME` on every command); made or not, it may use every
    machine and hold everything until somebody says otherwise.
    """


@namespaces.command("ls", epilog=examples("moor namespaces ls", "moor namespaces ls -o json"))
@command
def list_namespaces(session: Session) -> None:
    """Those that were made, and those in which something lives."""
    found = session.client.namespaces.list()
    columns = (Column("NAME"), Column("MACHINES"), Column("KEYS"), Column("DESCRIPTION", flex=True))
    lines = tuple((n["name"], _labels(n["machines"]) or "all", n["keys"], n["description"] or "-") for n in found)
    session.show(found, lambda: Table(columns, lines, "no namespaces"))


@namespaces.command(
    "set",
    epilog=examples(
        "moor namespaces set research --machines pool=research --description 'trains models'",
        "moor namespaces set research            # every machine again",
        "moor namespaces set research --keys required   # its endpoints answer only clients with a key",
    ),
)
@click.argument("name")
@click.option(
    "--machines", "labels", multiple=True, metavar="KEY=VALUE", help="A label that machines must have for its work."
)
@click.option("--description", default="", help="What it is for.")
@click.option(
    "--keys",
    type=click.Choice(["optional", "required"]),
    help="Whether its endpoints ask every client for a key (`moor keys`); not given: as it was.",
)
@command
def set_namespace(session: Session, *, name: str, labels: tuple[str, ...], description: str, keys: str | None) -> None:
    """Make a namespace, or change it. All of it is set: what is not given is unset, but for --keys, which stays."""
    pairs = dict(_pair(label, "--machines") for label in labels)
    made = session.client.namespaces.set(name, machines=pairs, description=description, keys=keys)
    session.show_text(
        made, lambda: f"{name}: may use {_labels(made['machines']) or 'all'} machines, keys {made['keys']}"
    )


@namespaces.command("rm", epilog=examples("moor namespaces rm research"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@command
def remove_namespaces(session: Session, names: tuple[str, ...]) -> None:
    """Forget what was set about namespaces; refused while something lives in one. Quotas stay until removed."""
    gone = [session.client.namespaces.remove(name) for name in names]
    session.show_text(gone, lambda: "\n".join(f"{name}: removed" for name in names))


@click.group(
    epilog=examples(
        "moor quota ls",
        "moor quota get research",
        "moor quota set research --gpus 16 --gpu-model H100=8 --memory 1TiB --runs 100",
        "moor quota rm research",
    )
)
def quota() -> None:
    """How much a namespace may hold at once, and let pass in a minute.

    Work above it waits and says so, and lets other work pass; a run, deployment or replica above it is refused. What
    is held when a quota is lowered stays. Requests and tokens above it are refused by the gateways.
    """


@quota.command("ls", epilog=examples("moor quota ls", "moor quota ls -o json"))
@command
def list_quotas(session: Session) -> None:
    """Every namespace: what is used, of what it may hold and let pass in a minute."""
    found = session.client.quotas.list()
    limited = {resource for one in found for resource in one["limits"]}
    by_minute = {name: title for name, title in _BY_MINUTE.items() if name in limited}
    names = ("gpus", "cpu", "memory", "runs", "deployments", "replicas", *by_minute)
    titles = (by_minute.get(name, name.upper()) for name in names)
    columns = (Column("NAMESPACE"), *(Column(title, right=True) for title in titles), Column("MODELS", flex=True))
    session.show(found, lambda: Table(columns, tuple(_line(q, names) for q in found), "no namespaces"))


@quota.command("get", epilog=examples("moor quota get research"))
@click.argument("name", required=False)
@command
def get_quota(session: Session, name: str | None) -> None:
    """One namespace, resource by resource; without a name that of `-n`."""
    found = session.client.quotas.get(name or session.namespace)
    columns = (Column("RESOURCE"), Column("USED", right=True), Column("LIMIT", right=True))
    session.show(found, lambda: Table(columns, tuple(_resources(found)), "nothing is used and nothing limited"))


def _limit_options(function: F) -> F:
    """An option for each resource."""
    for name, text in reversed(list(RESOURCES.items())):
        kind = str if name in ("cpu", "memory") else click.IntRange(min=0)
        function = click.option(f"--{name.replace('_', '-')}", name, type=kind, default=None, help=text)(function)
    return function


@quota.command(
    "set",
    epilog=examples(
        "moor quota set research --gpus 16 --runs 100",
        "moor quota set research --gpu-model H100=8 --gpu-model A100=16",
        "moor quota set research --requests-per-minute 600 --tokens-per-minute 200000",
        "moor quota set research --unlimited gpus",
    ),
)
@click.argument("name")
@click.option("--gpu-model", "models", multiple=True, metavar="MODEL=COUNT", help="GPUs of one model.")
@click.option("--unlimited", multiple=True, metavar="RESOURCE", help="Take the limit of a resource away.")
@_limit_options
@command
def set_quota(
    session: Session, *, name: str, models: tuple[str, ...], unlimited: tuple[str, ...], **given: Any
) -> None:
    """Limit what is named; limits of other resources stay as they are."""
    before = session.client.quotas.get(name)["limits"]
    limits = {**before, **{resource: value for resource, value in given.items() if value is not None}}
    wanted = {**limits.pop("gpu_models", {}), **dict(_counted(model) for model in models)}
    for word in unlimited:
        resource = word if word in limits else word.replace("-", "_") if not word.startswith("gpu_models.") else word
        if limits.pop(resource, wanted.pop(resource.removeprefix("gpu_models."), None)) is None:
            raise InvalidSpec(f"{word} has no limit", remedy=f"see `moor quota get {name}`")
    made = session.client.quotas.set(name, {**limits, **({"gpu_models": wanted} if wanted else {})})
    columns = (Column("RESOURCE"), Column("USED", right=True), Column("LIMIT", right=True))
    session.show(made, lambda: Table(columns, tuple(_resources(made)), "no limits"))


@quota.command("rm", epilog=examples("moor quota rm research"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@command
def remove_quotas(session: Session, names: tuple[str, ...]) -> None:
    """Take every limit away."""
    gone = [session.client.quotas.remove(name) for name in names]
    session.show_text(gone, lambda: "\n".join(f"{name}: unlimited" for name in names))


def _line(item: Mapping[str, Any], names: Iterable[str]) -> tuple[str, ...]:
    used, limits = item["used"], item["limits"]
    models = {**used.get("gpu_models", {}), **limits.get("gpu_models", {})}
    of_models = (
        f"{model} {_of(used.get('gpu_models', {}).get(model, 0), limits.get('gpu_models', {}).get(model))}"
        for model in sorted(models)
    )
    return (
        item["name"],
        *(_of(used.get(n, 0), limits.get(n), n) for n in names),
        ", ".join(of_models) or "-",
    )


def _of(used: Any, limit: Any, resource: str = "") -> str:
    if resource in _BY_MINUTE:  # what passed in the last minute is the gateways' knowledge
        return "-" if limit is None else _amount(resource, limit)
    return _amount(resource, used) if limit is None else f"{_amount(resource, used)}/{_amount(resource, limit)}"


def _resources(item: Mapping[str, Any]) -> Iterable[tuple[str, ...]]:
    used, limits = _flat(item["used"]), _flat(item["limits"])
    for resource in dict.fromkeys((*used, *limits)):
        limit = limits.get(resource)
        shown = "unlimited" if limit is None else _amount(resource, limit)
        held = "-" if resource in _BY_MINUTE else _amount(resource, used.get(resource, 0))
        yield resource, held, shown


def _flat(amounts: Mapping[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in amounts.items() if name != "gpu_models"}
    return {**plain, **{f"gpu_models.{m}": n for m, n in amounts.get("gpu_models", {}).items()}}


def _amount(resource: str, value: Any) -> str:
    from moorage.domain.units import show_size

    return show_size(value) if resource == "memory" and value else str(value)


def _labels(labels: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def _pair(text: str, option: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise InvalidSpec(f"{option} {text!r} is not KEY=VALUE", remedy=f"write it as  {option} pool=research")
    return key, value


def _counted(text: str) -> tuple[str, int]:
    model, count = _pair(text, "--gpu-model")
    if not count.isdigit():
        raise InvalidSpec(f"--gpu-model {text!r}: {count!r} is no count", remedy="write it as  --gpu-model H100=8")
    return model, int(count)
