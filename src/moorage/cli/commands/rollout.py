"""`rollout`, `promote`, `reject` and `rollback`: what moves in a deployment, why, and a person's word on it."""

from collections.abc import Iterator
from typing import Any

import click

from moorage.cli import rows
from moorage.cli.commands.operations import watch_operation
from moorage.cli.layout import Column, Table, wrapped
from moorage.cli.output import plain, print_value, terminal_width
from moorage.cli.session import Session, command, examples, timeout_option
from moorage.cli.times import age, clock

MEASURES = (
    *(Column("MEASURE"), Column("ACTIVE", right=True), Column("CANDIDATE", right=True)),
    *(Column("LIMIT", right=True), Column("AT LEAST", right=True), Column("SAMPLES", right=True)),
    Column("STANDING"),
)
SHARES = ("error_rate",)
SHOWN_REVISIONS = 4
MATTERS = ("active", "draining", "candidate", "provisioning", "evaluating", "promoting")
SECONDS = ("ttft_p95", "latency_p95")

reason_option = click.option("--reason", help="Why, in your words; shown in its history.")
revision_option = click.option("--revision", metavar="NUMBER", help="Only if this is the candidate.")
key_option = click.option("--key", help="Idempotency key.")
wait_option = click.option("--wait", is_flag=True, help="Wait until it is done.")


@click.command(
    epilog=examples(
        "moor rollout gemma",
        "moor rollout gemma explain",
        "moor rollout gemma explain --decision gemma-2/3",
        "moor rollout gemma abort",
    )
)
@click.argument("name")
@click.argument("what", type=click.Choice(["explain", "abort"]), required=False)
@click.option("--decision", metavar="ID", help="Explain this one (its id, or a revision's number), not the last.")
@command
def rollout(session: Session, *, name: str, what: str | None, decision: str | None) -> None:
    """Show what is rolled out, and what it waits for. `explain` replays the release guard's decision, `abort` ends the
    candidate as `moor reject` does: what is active goes on serving, and with nothing rolled out nothing is done.

    Explaining judges the stored inputs (policy, evidence, facts) again with the guard's own rules and says whether the
    answer is the stored one, byte for byte.
    """
    if what == "abort":
        answer = session.client.deployments.reject(name, reason="aborted")
        _finish(session, name, answer, None, begun="revision {} is rejected", nothing=NOTHING_ROLLED_OUT)
        return
    if what is None and decision is None:
        _show(session, name)
        return
    found = session.client.deployments.explain(name, decision)
    session.show_text(found, lambda: "\n".join(_explained(found, terminal_width())))


@click.command(epilog=examples("moor promote gemma --wait", 'moor promote gemma --revision 3 --reason "seen enough"'))
@click.argument("name")
@reason_option
@revision_option
@key_option
@wait_option
@timeout_option("30m")
@command
def promote(
    session: Session,
    *,
    name: str,
    reason: str | None,
    revision: str | None,
    key: str | None,
    wait: bool,
    timeout_s: float,
) -> None:
    """Let the candidate take over without the release guard's word.

    It is scaled to the size of the active revision first, and traffic moves in one step. The active revision serves
    until then.
    """
    answer = session.client.deployments.promote(name, reason=reason, revision=revision, key=key)
    _finish(
        session,
        name,
        answer,
        timeout_s if wait else None,
        begun="revision {} is being promoted",
        nothing=ACTIVE_ALREADY,
    )


@click.command(epilog=examples("moor reject gemma", 'moor reject gemma --reason "wrong tokenizer"'))
@click.argument("name")
@reason_option
@revision_option
@key_option
@wait_option
@timeout_option("30m")
@command
def reject(
    session: Session,
    *,
    name: str,
    reason: str | None,
    revision: str | None,
    key: str | None,
    wait: bool,
    timeout_s: float,
) -> None:
    """End the candidate; the active revision goes on serving. With nothing rolled out this does nothing."""
    answer = session.client.deployments.reject(name, reason=reason, revision=revision, key=key)
    _finish(
        session,
        name,
        answer,
        timeout_s if wait else None,
        begun="revision {} is rejected",
        nothing=NOTHING_ROLLED_OUT,
    )


@click.command(epilog=examples("moor rollback gemma --wait", 'moor rollback gemma --to 3 --reason "slow at night"'))
@click.argument("name")
@click.option("--to", metavar="NUMBER", help="Which revision; without it the one that served last.")
@reason_option
@key_option
@wait_option
@timeout_option("30m")
@command
def rollback(
    session: Session, *, name: str, to: str | None, reason: str | None, key: str | None, wait: bool, timeout_s: float
) -> None:
    """Go back to a revision that served before. Traffic moves once that has the replicas that the load needs."""
    answer = session.client.deployments.rollback(name, to=to, reason=reason, key=key)
    _finish(
        session,
        name,
        answer,
        timeout_s if wait else None,
        begun="going back to revision {}",
        nothing=ACTIVE_ALREADY,
    )


ACTIVE_ALREADY = "revision {} is active already"
NOTHING_ROLLED_OUT = "revision {} serves, and nothing is rolled out"


def _finish(
    session: Session, name: str, answer: dict[str, Any], timeout_s: float | None, *, begun: str, nothing: str
) -> None:
    uid = answer.get("operation")
    if session.human:
        known = session.client.deployments.revisions(name)
        number = next((r["number"] for r in known if r["id"] == answer.get("revision")), "?")
        told = begun if answer.get("changed") or uid else nothing
        click.echo(f"{name}: {told.format(number)}")
    if timeout_s is not None and uid:
        last = watch_operation(session, str(uid), timeout_s, name)
        if session.human:
            click.echo(f"{name}: {last.get('operation')} {last.get('state')}")
    elif session.human and uid:
        click.echo(f"  watch it with  moor operations watch {uid}")
    if not session.human:
        print_value(answer, session.form)


def _show(session: Session, name: str) -> None:
    found = session.client.deployments.rollout(name)
    if not session.human:
        print_value(found, session.form)
        return
    revisions = _of_interest(session.client.deployments.revisions(name))
    now, width = session.now(), terminal_width()
    click.echo("\n".join(words(found, now, width)))
    click.echo("\n" + plain(rows.table("revisions", revisions, now), width))


def _of_interest(revisions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest few, and every older one that still matters."""
    newest = revisions[-SHOWN_REVISIONS:]
    return [r for r in revisions if r in newest or r.get("state") in MATTERS]


def words(found: dict[str, Any], now: float, width: int | None = None) -> Iterator[str]:
    """A rollout as people read it."""
    yield _fit(f"{found.get('name')}: {found.get('message')}", width, "  ")
    for fact, text in _facts(found, now):
        yield _fit(f"  {fact.ljust(11)}{text}", width, " " * 13)


def _facts(found: dict[str, Any], now: float) -> Iterator[tuple[str, str]]:
    if found.get("kind_of") is None:
        return
    if found["kind_of"] == "rollout":
        yield "strategy", _strategy(found)
    yield "replicas", f"{found['replicas']['ready']} of {found['replicas']['wanted']} ready"
    seen = found.get("evidence")
    if seen:
        word = "at the candidate" if found["kind_of"] == "rollout" else f"at revision {found['number']}"
        needed = f" ({seen['needed']} needed on each)" if found["kind_of"] == "rollout" else ""
        yield "evidence", f"{seen['candidate']} requests {word}, {seen['active']} at the other{needed}"
    decision = found.get("decision")
    if decision:
        yield "guard", _said(decision)
    if found.get("by"):
        yield "ordered by", ": ".join(str(found[k]) for k in ("by", "why") if found.get(k))
    yield "begun", f"{age(found.get('since'), now)} ago"
    if found.get("deadline"):
        yield "deadline", clock(found["deadline"])
    if found.get("window_until"):
        yield "watched", f"until {clock(found['window_until'])}"
    if found.get("confirmed"):
        yield "gateways", f"{', '.join(found['confirmed'])} confirmed the routes"


def _strategy(found: dict[str, Any]) -> str:
    if found["strategy"] != "canary":
        return str(found["strategy"])
    steps = " → ".join(f"{step} %" for step in found["steps"])
    until = f", until {clock(found['step_until'])}" if found.get("step_until") else ""
    return f"canary {steps}; now {found['weight']} %{until}"


def _said(decision: dict[str, Any]) -> str:
    reasons = "; ".join(str(r.get("message")) for r in decision.get("reasons") or ())
    return f"{decision.get('verdict')}: {reasons}"


def _explained(found: dict[str, Any], width: int | None) -> Iterator[str]:
    decision = found["decision"]
    yield f"decision {decision['id']} on revision {decision['number']}, {clock(decision['at'])}: {decision['verdict']}"
    for reason in decision.get("reasons") or ():
        yield _fit(f"  {reason['code']}: {reason['message']}", width, "    ")
    for advice in dict.fromkeys(_advice(reason) for reason in decision.get("reasons") or ()):
        if advice:
            yield _fit(f"  to do: {advice.replace('rollout X', 'rollout ' + found['name'])}", width, "    ")
    measures = [_measure(m) for m in decision.get("measures") or ()]
    if measures:
        yield ""
        yield plain(Table(MEASURES, tuple(measures)), width)
    yield ""
    for side in ("candidate", "active"):
        yield f"  {side.ljust(11)}{_evidence(decision['evidence'].get(side))}"
    yield _fit(f"  policy     {_policy(decision['policy'])}", width, " " * 13)
    same = "byte for byte the stored one" if found["identical"] else "NOT the stored one"
    yield f"  replayed   {same}"
    yield f"             {found['digest']}"
    if not found["identical"]:
        yield f"             {found['replayed_digest']}  now: {_said(found['replayed'])}"


def _advice(reason: dict[str, Any]) -> str:
    """What to do, without the hint at this very command."""
    return str(reason.get("advice") or "").removeprefix("`moor rollout X explain` shows the evidence; ")


def _measure(measure: dict[str, Any]) -> tuple[str, ...]:
    metric = str(measure["metric"])
    samples = measure.get("samples") or {}
    return (
        metric,
        _number(metric, measure.get("active")),
        _number(metric, measure.get("candidate")),
        _number(metric, measure.get("limit")),
        _bound(metric, measure.get("bound")),
        f"{samples.get('active', 0)}/{samples.get('candidate', 0)}",
        str(measure.get("standing")).replace("_", " "),
    )


def _number(metric: str, value: float | None) -> str:
    if value is None:
        return "-"
    if metric in SHARES:
        return f"{100 * value:.3g} %"
    if metric in SECONDS:
        return f"{value * 1000:.4g} ms" if value < 1 else f"{value:.4g} s"
    return f"{value:.4g}"


def _bound(metric: str, value: float | None) -> str:
    """What it is worse by at least: a ratio for times and throughput, a difference for the rest."""
    if value is None:
        return "-"
    ratio = metric in SECONDS or metric == "output_throughput"
    return f"× {value:.3g}" if ratio else _number(metric, value)


def _evidence(seen: dict[str, Any] | None) -> str:
    if seen is None:
        return "none: no revision was serving"
    gone = f", {seen['client_gone']} given up by clients" if seen.get("client_gone") else ""
    return f"{seen.get('requests', 0)} requests, {seen.get('errors', 0)} failed{gone}"


def _policy(policy: dict[str, Any]) -> str:
    if not policy.get("enabled", True):
        return "switched off"
    told = [
        f"{policy.get('minimum_requests')} requests on each side",
        f"TTFT p95 up to +{policy.get('ttft_percent'):g} %",
        f"latency p95 up to +{policy.get('latency_percent'):g} %",
        f"errors up to +{100 * policy.get('error_rate', 0):g} %",
        f"tokens a second down to -{policy.get('throughput_percent'):g} %",
    ]
    if policy.get("quality"):
        told.append(f"{policy['quality']} down to -{policy.get('quality_max_drop'):g}")
    return ", ".join(told)


def _fit(line: str, width: int | None, indent: str) -> str:
    return line if width is None else wrapped(line, width, indent)
