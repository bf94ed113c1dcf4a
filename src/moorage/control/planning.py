"""What an apply would do, said before it is done: field by field, step by step, and what would stand in its way.

A plan runs the very decision of the apply and reads its change, and asks the scheduler's own cycle for room, so that
it cannot promise something else. What cannot be read makes it fail; nothing is guessed. Called by `admit`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from moorage.control.roomcheck import Room
from moorage.decide.decision import Outcome
from moorage.decide.serving import synthetic
from moorage.decide.serving.commands import Intent, Known
from moorage.decide.serving.differences import changed_fields
from moorage.decide.serving.phase import desired_replicas, initial_scale
from moorage.decide.serving.rollout.promoting import with_revision
from moorage.decide.serving.rollout.record import Terms, terms_of
from moorage.domain.changes import Create
from moorage.domain.nouns import Deployment, Noun, Revision
from moorage.domain.states import DeploymentStatus

Answer = dict[str, Any]
N = TypeVar("N", bound=Noun)


@dataclass(frozen=True, slots=True)
class Prospect:
    """What an apply would leave.

    Args:
        intent: the checked spec.
        known: what is there; None: nothing.
        outcome: of the apply's own decision.
    """

    intent: Intent
    known: Known | None
    outcome: Outcome

    @property
    def revision(self) -> Revision | None:
        """The revision it would make; None: it makes none."""
        return self._made(Revision)

    @property
    def deployment(self) -> Deployment:
        """The deployment as the spec means it."""
        if self.known is None:
            made = self._made(Deployment)
            assert made is not None, "an apply of what is not there makes it"
            return made
        return _with_spec(self.known.deployment, self.intent.spec)

    def active(self) -> Revision | None:
        """The revision that serves."""
        if self.known is None:
            return None
        uid = self.known.deployment.active_revision
        return next((r for r in self.known.revisions if r.uid == uid), None)

    def candidate(self) -> Revision | None:
        """A revision that is on its way already."""
        if self.known is None:
            return None
        uid = self.known.deployment.candidate_revision
        return next((r for r in self.known.revisions if r.uid == uid), None)

    def _made(self, kind: type[N]) -> N | None:
        writes = self.outcome.change.writes if self.outcome.change else ()
        return next((w.row for w in writes if isinstance(w, Create) and isinstance(w.row, kind)), None)


def plan(prospect: Prospect, room: Room | None) -> Answer:
    """A Plan object.

    Args:
        room: what the scheduler says of the replicas that it would start; None: it starts none.
    """
    intent, known = prospect.intent, prospect.known
    before = _before(prospect)
    changes = [
        {"path": path, "before": _at(before, path), "after": _at(intent.spec, path)}
        for path in changed_fields(before, intent.spec)
    ]
    return {
        "kind": "Plan",
        "changes": changes,
        "actions": [
            {"order": n, **a} for n, a in enumerate(_actions(prospect, [str(c["path"]) for c in changes]), start=1)
        ],
        "warnings": list(_warnings(prospect, room)),
        "touches": [{"kind": "Deployment", "name": intent.name, "id": known.deployment.uid if known else None}],
        "refers": [],
    }


def _before(prospect: Prospect) -> Mapping[str, Any]:
    """What is there to compare with: where this very revision is on its way already, with its part."""
    known, candidate = prospect.known, prospect.candidate()
    if known is None:
        return {}
    if candidate is not None and candidate.digest == prospect.intent.digest:
        return with_revision(known.deployment.spec, candidate.spec)
    return known.deployment.spec


# Actions


def _actions(prospect: Prospect, paths: Sequence[str]) -> Iterator[Answer]:
    if prospect.known is None:
        yield from _first(prospect)
        return
    if prospect.outcome.change is None:
        return
    revision, candidate = prospect.revision, prospect.candidate()
    if candidate is not None and candidate.digest != prospect.intent.digest:
        yield {"kind": "cancel", "summary": f"cancel revision {candidate.number}, which is on its way"}
    part = dict(prospect.intent.revision)
    live = [p for p in paths if revision is None or not _of_part(p, part)]
    if live:
        yield {"kind": "change", "summary": f"change at once: {', '.join(live)}"}
    if revision is not None:
        yield from _rollout(prospect, revision)


def _first(prospect: Prospect) -> Iterator[Answer]:
    intent = prospect.intent
    count = initial_scale(intent.spec)
    yield {"kind": "create", "summary": f"create deployment {intent.name} with revision 1 ({intent.digest[:19]})"}
    start = f"start {_replicas(count)}" if count else "sleep until the first request"
    yield {"kind": "start", "summary": start}


def _rollout(prospect: Prospect, revision: Revision) -> Iterator[Answer]:
    """The steps of a rollout beside what serves; where nothing serves yet, the new one takes the place of the first."""
    number, active = revision.number, prospect.active()
    yield {"kind": "create", "summary": f"make revision {number} ({revision.digest[:19]})"}
    if active is None:
        yield {"kind": "start", "summary": "start it in the place of the first one, which never served"}
        return
    deployment = prospect.deployment
    terms, size = terms_of(deployment), max(desired_replicas(deployment), 1)
    asleep = prospect.known is not None and prospect.known.deployment.status is DeploymentStatus.PAUSED
    if asleep:
        yield {"kind": "wake", "summary": "wake: a rollout needs what serves beside it"}
    where = "in the place of one that serves" if terms.replace else "beside what serves"
    yield {"kind": "start", "summary": f"start 1 replica of it {where}; it must be ready within {terms.deadline_s:g} s"}
    yield {"kind": "compare", "summary": _comparison(terms, size, active.number)}
    if not terms.auto:
        yield {"kind": "wait", "summary": f"wait for a person's word: moor promote {deployment.name}, or moor reject"}
    if size > 1:
        yield {"kind": "scale", "summary": f"scale it to {_replicas(size)}, as many as the load needs"}
    yield {"kind": "promote", "summary": f"move all requests to revision {number} in one step"}
    drain = float(dict(deployment.spec.get("gateway") or {}).get("drain", 60.0))
    yield {"kind": "drain", "summary": f"drain revision {active.number} for at most {drain:g} s, then stop it"}
    if terms.window_s > 0:
        yield {"kind": "watch", "summary": f"for {terms.window_s:g} s go back by itself if it proves worse"}


def _comparison(terms: Terms, size: int, other: int) -> str:
    if terms.replace and size == 1:
        return f"send it the guard's requests, which must not fail; revision {other} is stopped and cannot be asked"
    return f"compare it with revision {other}{_traffic(terms)}"


def _traffic(terms: Terms) -> str:
    if terms.strategy == "canary":
        steps = ", then ".join(str(step) for step in terms.steps)
        return f", with {steps} % of the requests for {terms.step_interval_s:g} s each"
    told = {"header": "requests that ask for it", "mirror": "copies of clients' requests"}.get(terms.strategy)
    return f", on {told}" if told else ", on requests that the control plane sends to both; clients send it none"


def _of_part(path: str, part: Mapping[str, Any]) -> bool:
    """Whether a field belongs to the revision part: `replicas` has one of its own in both."""
    head, _, rest = path.partition(".")
    if head == "replicas":
        return rest in dict(part.get("replicas") or {})
    return head in part


# Warnings


def _warnings(prospect: Prospect, room: Room | None) -> Iterator[str]:
    revision, active, deployment = prospect.revision, prospect.active(), prospect.deployment
    if not (prospect.intent.spec.get("model") or {}).get("id"):
        yield "model.id is not set, so readiness checks health only and not which model answers"
    if revision is not None and active is not None:
        terms = terms_of(deployment)
        alone = terms.replace and max(desired_replicas(deployment), 1) == 1
        if not synthetic.applicable(deployment, revision) or (alone and not synthetic.asks_of(deployment, revision)):
            yield (
                "the release guard has nothing to measure (no rollout.guard.synthetic, no runtime.ready.request, no "
                "model.id), so that a candidate that is ready is accepted unseen"
            )
        if terms.replace:
            yield _replaces(max(desired_replicas(deployment), 1))
    if room is not None:
        yield from _no_room(room, beside=active is not None)


def _replaces(size: int) -> str:
    if size == 1:
        return (
            "rollout.capacity is replace with 1 replica: it stops before the new one starts, and requests are held "
            "meanwhile, then answered 503 with Retry-After"
        )
    return f"rollout.capacity is replace: while it is rolled out, fewer than {size} replicas serve"


def _no_room(room: Room, *, beside: bool) -> Iterator[str]:
    if room.fits >= room.asked:
        return
    what = "the candidate needs beside what serves" if beside else "it starts with"
    yield f"there is room for {room.fits} of the {_replicas(room.asked)} that {what} now: {room.why}" + (
        "; rollout.capacity: replace takes the room of what serves" if beside else "; the rest waits in the queue"
    )


def _replicas(count: int) -> str:
    return f"{count} replica{'' if count == 1 else 's'}"


def _with_spec(deployment: Deployment, spec: Mapping[str, Any]) -> Deployment:
    return replace(deployment, spec=dict(spec))


def _at(spec: Mapping[str, Any], path: str) -> Any:
    value: Any = spec
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
