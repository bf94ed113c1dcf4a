"""`keys`: what clients of endpoints show. A key's text is printed once, by the command that makes it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import click

from moorage.cli import rows
from moorage.cli.commands.ending import ask_whether_to_delete
from moorage.cli.commands.key_usage import day_of, first_day, last_day, usage_table
from moorage.cli.layout import NOTHING
from moorage.cli.output import Column, Table, print_value
from moorage.cli.session import Session, command, duration, examples, timeout_option
from moorage.cli.times import age, seconds, span
from moorage.cli.watching import LOOK_EVERY_S, namespace_flag, watched
from moorage.domain.errors import InvalidSpec

F = TypeVar("F", bound=Callable[..., Any])

LIMITS: Mapping[str, str] = {
    "requests_per_minute": "Requests with it in any 60 seconds.",
    "tokens_per_minute": "Tokens of prompts and answers in any 60 seconds.",
    "in_flight": "Requests with it at the same time.",
}
"""What a key may be limited in."""

USED_DAYS = 7
IN_USE_WITHIN_S = 10.0


@click.group(
    epilog=examples(
        "moor keys create app --endpoint chat --requests-per-minute 60 --expires 30d",
        "moor keys ls",
        "moor keys limit app --tokens-per-minute 20000",
        "moor keys usage app --since 7d",
        "moor keys revoke app --text 'it was in a log'",
        "moor keys history app",
        "moor keys delete app",
    )
)
def keys() -> None:
    """What clients of endpoints show to the gateway, where an OpenAI client has its API key.

    A namespace answers clients without one too, until `moor namespaces set NAME --keys required`.
    """


def _limit_options(function: F) -> F:
    for name, text in reversed(list(LIMITS.items())):
        kind = click.IntRange(min=1, max=1_000_000_000)
        function = click.option(f"--{name.replace('_', '-')}", name, type=kind, default=None, help=text)(function)
    return function


@keys.command(
    "create",
    epilog=examples(
        "moor keys create app",
        "moor keys create app --endpoint chat --endpoint embed --in-flight 8 --expires 30d",
        "moor keys create app -n research -o json",
    ),
)
@click.argument("name")
@click.option("--endpoint", "endpoints", multiple=True, metavar="NAME", help="An endpoint that it opens; none: all.")
@_limit_options
@click.option(
    "--expires", "expires_in_s", metavar="DURATION", callback=duration, help="When it ends, such as 12h, 30d."
)
@click.option("--description", default="", help="Whose it is, and what for.")
@command
def create(
    session: Session,
    *,
    name: str,
    endpoints: tuple[str, ...],
    expires_in_s: float | None,
    description: str,
    **given: int | None,
) -> None:
    """Make a key. Its text is printed now and never again: only a digest of it is kept."""
    made = session.client.keys.create(
        name,
        endpoints=endpoints,
        limits={limit: value for limit, value in given.items() if value is not None},
        expires_in_s=expires_in_s,
        description=description,
    )
    session.show_text(made, lambda: _told(made))
    if made["key"] is not None:
        _wait_for_use(session, made["name"])


@keys.command("ls", epilog=examples("moor keys ls", "moor keys ls -n research -o json"))
@command
def list_all(session: Session) -> None:
    """Every key of the namespace: what it opens, its limits, how long it lasts, and what it was used for this week."""
    now = session.now()
    found = session.client.keys.list(used_from=day_of(now - (USED_DAYS - 1) * 86_400))
    session.show(found, lambda: keys_table(found, now))


def keys_table(found: Sequence[Mapping[str, Any]], now: float) -> Table:
    """Keys as people read them; what `get` and `usage` tell as well is left out first where there is little room."""
    names = ("NAME", "STATE", "OPENS", "LIMITS", "EXPIRES", "REQUESTS 7d", "TOKENS 7d", "BEGINS WITH", "AGE")
    minor = ("TOKENS 7d", "BEGINS WITH", "AGE")
    columns = tuple(
        Column(name, flex=name == "LIMITS", right=name.endswith("7d"), minor=name in minor) for name in names
    )
    return Table(columns, tuple(_line(key, now) for key in found), "no key is issued in this namespace")


@keys.command("get", epilog=examples("moor keys get app", "moor keys get app -o json"))
@click.argument("name")
@command
def get(session: Session, name: str) -> None:
    """Show one whole, without its text."""
    print_value(session.client.keys.get(name), "yaml" if session.human else session.form)


@keys.command(
    "limit",
    epilog=examples(
        "moor keys limit app --requests-per-minute 600 --in-flight 8",
        "moor keys limit app --unlimited in-flight",
        "moor keys limit app --endpoint chat",
        "moor keys limit app --all-endpoints",
    ),
)
@click.argument("name")
@_limit_options
@click.option(
    "--unlimited",
    multiple=True,
    type=click.Choice([limit.replace("_", "-") for limit in LIMITS]),
    help="Take a limit away.",
)
@click.option("--endpoint", "endpoints", multiple=True, metavar="NAME", help="What it opens, and nothing else.")
@click.option("--all-endpoints", "every", is_flag=True, help="It opens every endpoint of its namespace.")
@click.option("--description", help="Whose it is, and what for.")
@command
def limit(
    session: Session,
    *,
    name: str,
    unlimited: tuple[str, ...],
    endpoints: tuple[str, ...],
    every: bool,
    description: str | None,
    **given: int | None,
) -> None:
    """Change what a key may do; what is not named stays. Gateways follow at once; its text stays the same."""
    wanted = {limit: value for limit, value in given.items() if value is not None}
    away = {word.replace("-", "_") for word in unlimited}
    if endpoints and every:
        raise InvalidSpec("--endpoint and --all-endpoints exclude each other", remedy="give one of them")
    if both := sorted(away & wanted.keys()):
        raise InvalidSpec(f"{', '.join(both)} is given a limit and none", remedy="give one of them")
    if not (wanted or away or endpoints or every or description is not None):
        raise InvalidSpec("nothing is to be changed", remedy=f"say what, such as  moor keys limit {name} --in-flight 8")
    limits = None
    if wanted or away:
        before = session.client.keys.get(name)["limits"]
        limits = {limit: value for limit, value in {**before, **wanted}.items() if limit not in away}
    opens = endpoints if endpoints or every else None
    made = session.client.keys.limit(name, endpoints=opens, limits=limits, description=description)
    session.show_text(made, lambda: f"{name}: opens {_opens(made)}; {_limits(made)}")


@keys.command(
    "usage",
    epilog=examples(
        "moor keys usage app",
        "moor keys usage app --since 7d --endpoint chat",
        "moor keys usage app --since 2026-01-01 --until 2026-01-31 --total",
        "moor keys usage app -o json",
    ),
)
@click.argument("name")
@click.option("--since", default="30d", show_default=True, metavar="WHEN", help="A day (2026-01-31), or how long back.")
@click.option("--until", metavar="DAY", help="The last day that counts; else today.")
@click.option("--endpoint", metavar="NAME", help="Only what named this endpoint.")
@click.option("--total", is_flag=True, help="One line for each endpoint, not for each day of it.")
@command
def usage(session: Session, *, name: str, since: str, until: str | None, endpoint: str | None, total: bool) -> None:
    """Requests, and tokens in and out, with a key, by day (UTC) and endpoint. Gateways tell them within seconds.

    Of the requests some were refused by the gateway, some failed at the model server, and of some the client was gone
    before the end; the others were answered.

    A key that was deleted is told by its id (key-…). Usage is kept for 400 days.
    """
    bucket = "total" if total else "day"
    ask = session.client.keys.usage
    first = first_day(since, session.now())
    last = last_day(until, first, day_of(session.now()))
    found = ask(name, since=first, until=last, bucket=bucket, endpoint=endpoint)
    session.show(found, lambda: usage_table(found, endpoint))
    counted = found["total"]["counted_tokens"]
    if session.human and counted:
        click.echo(
            f"{counted:,} of the output tokens were counted from streams that told no usage, nor their input: "
            'have clients send stream_options {"include_usage": true}',
            err=True,
        )


@keys.command("history", epilog=examples("moor keys history app", "moor keys history app -o json"))
@click.argument("name")
@command
def history(session: Session, name: str) -> None:
    """Show everything that was set about a key, when and why, oldest first; also once it is deleted."""
    changes = list(session.client.keys.history(name))
    lines = tuple(rows.change_line(change, with_object=False) for change in changes)
    session.show(changes, lambda: Table(rows.HISTORY, lines, "no changes"))


@keys.command(
    "revoke",
    epilog=examples(
        "moor keys revoke app",
        "moor keys revoke app --text 'it was in a log' --timeout 5m",
        "moor keys revoke app --no-wait",
    ),
)
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--text", help="Why, for its history.")
@click.option("--wait/--no-wait", default=True, help="Wait until every gateway in reach refuses it.", show_default=True)
@timeout_option("60s")
@command
def revoke(session: Session, *, names: tuple[str, ...], text: str | None, wait: bool, timeout_s: float) -> None:
    """Make keys open nothing any more, for good, and wait until gateways refuse them.

    Requests that run go on to their end. A gateway that is out of reach goes on with the keys that it has: it is named.
    Revoked keys stay in the list until they are deleted.
    """
    ended = [session.client.keys.revoke(name, text=text) for name in names]
    if wait:
        ended = [_refused_everywhere(session, name, timeout_s) for name in names]
    session.show_text(ended, lambda: "\n".join(_revoked(key, session.now(), waited=wait) for key in ended))


@keys.command("delete", epilog=examples("moor keys delete app", "moor keys delete app --yes --no-wait"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--wait/--no-wait", default=True, help="Revoke first, and wait as that does.", show_default=True)
@timeout_option("60s")
@command
def delete(session: Session, *, names: tuple[str, ...], yes: bool, wait: bool, timeout_s: float) -> None:
    """Forget keys: they open nothing any more, and their names are free again. Their usage is kept, under their ids.

    Asks first where one is active still: it cannot be brought back.
    """
    keys, told = session.client.keys, []
    found = {name: keys.get(name) for name in names}
    active = tuple(name for name, key in found.items() if key["state"] == "active")
    if active and not yes:
        click.echo("\n".join(f"{name} is active: opens {_opens(found[name])}" for name in active), err=True)
        ask_whether_to_delete(names)
    for name, key in found.items():
        if wait and key["state"] == "active":
            keys.revoke(name)
            told.append(_revoked(_refused_everywhere(session, name, timeout_s), session.now(), waited=True))
        told.append(f"{name}: deleted; its usage is told by  moor keys usage {key['id']}")
    gone = [keys.delete(name) for name in names]
    session.show_text(gone, lambda: "\n".join(told))


def _refused_everywhere(session: Session, name: str, timeout_s: float | None) -> Any:
    """Wait until every gateway in reach refuses a revoked key; the key as read last.

    Raises:
        WaitTimeout: one has not confirmed that it does.
    """
    from moorage.client.endpoint_wait import lagging
    from moorage.domain.errors import WaitTimeout

    wait = session.client.keys.wait
    try:
        return watched(
            session,
            name,
            "every gateway to refuse it",
            lambda on_status: wait(name, timeout_s=timeout_s, interval_s=LOOK_EVERY_S, on_status=on_status),
            resume=f"moor keys revoke {name}{namespace_flag(session)}",
        ).last
    except WaitTimeout as late:
        last = late.last or {}
        if last.get("generation") is None:
            raise
        behind = ", ".join(lagging(last))
        raise WaitTimeout(
            f"{name} is revoked, but not every gateway has confirmed within {timeout_s:g} s that it refuses it; "
            f"until they do, these may let it in: {behind}",
            last=last,
            remedy=f"wait on with  moor keys revoke {name}{namespace_flag(session)} --timeout 5m  or end that gateway",
            target=late.target,
        ) from late


def _wait_for_use(session: Session, name: str) -> None:
    """Who shows the key next should be let in; that a gateway is late is worth a warning and no more."""
    from moorage.domain.errors import WaitTimeout

    try:
        session.client.keys.wait(name, timeout_s=IN_USE_WITHIN_S, interval_s=LOOK_EVERY_S)
    except WaitTimeout as late:
        click.echo(f"warning: {late.message}", err=True)


def _revoked(key: Mapping[str, Any], now: float, *, waited: bool) -> str:
    """That it is revoked, and by how many gateways that is known to be kept."""
    name = key["name"]
    if not waited:
        return f"{name}: revoked; gateways follow at once (moor keys get {name} tells which have)"
    count = len(key.get("gateways") or ())
    which = "the gateway refuses it" if count == 1 else f"all {count} gateways refuse it"
    lines = [f"{name}: revoked; {which if count else 'no gateway is in reach'}"]
    for one in key.get("unreachable") or ():
        at = f" at {one['address']}" if one.get("address") else ""
        lines.append(
            f"  warning: gateway {one['id']}{at} is out of reach ({_heard(one, now)}); if it runs, it lets the key in "
            "until it reaches the control plane again: end it if that matters"
        )
    return "\n".join(lines)


def _heard(one: Mapping[str, Any], now: float) -> str:
    """When a gateway that is out of reach was heard last, as far as that is known."""
    if one["heard_at"]:
        return f"heard {age(one['heard_at'], now)} ago"
    since = f" at {one['not_since']}" if one.get("not_since") else ""
    return f"not heard since the control plane started{since}"


def _told(made: Mapping[str, Any]) -> str:
    """The text and how to use it; without one, why and what to do."""
    name, text = made["name"], made["key"]
    if text is None:
        return (
            f"{name}: made, but its text was told in an answer that was lost, and is kept nowhere\n"
            f"  make it anew: moor keys delete {name} -n {made['namespace']}, then create it again"
        )
    return (
        f"{name}: opens {_opens(made)}; {_limits(made)}\n\n  {text}\n\n"
        "Keep it now: it is not shown again. Clients show it to the gateway:\n"
        f"  export OPENAI_API_KEY={text}\n"
        f'  curl -H "Authorization: Bearer $OPENAI_API_KEY" …'
    )


def _line(key: Mapping[str, Any], now: float) -> tuple[str, ...]:
    until = key["expires_at"]
    left_s = None if until is None else seconds(until) - now
    ends = "never" if left_s is None else f"in {span(left_s)}" if left_s > 0 else f"{age(until, now)} ago"
    gone = set(key.get("missing_endpoints") or ())
    opens = ", ".join(f"{name} (gone)" if name in gone else name for name in key["endpoints"]) or "all"
    used = key.get("usage")
    sums = (
        (NOTHING, NOTHING)
        if used is None
        else (f"{used['requests']:,}", f"{used['input_tokens'] + used['output_tokens']:,}")
    )
    limits = _limits(key) if key["limits"] else NOTHING
    return key["name"], key["state"], opens, limits, ends, *sums, key["hint"], age(key["created_at"], now)


def _opens(key: Mapping[str, Any]) -> str:
    return ", ".join(key["endpoints"]) or f"every endpoint of the namespace {key['namespace']}"


def _limits(key: Mapping[str, Any]) -> str:
    return (
        ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in sorted(key["limits"].items())) or "unlimited"
    )
