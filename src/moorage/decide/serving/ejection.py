"""When a replica is put aside, and when it comes back.

Here: the rules for failed connects and for bad answers. Not here: who gets requests (`picking`), when it is asked
(`routing`, the only caller).

A replica that turned out to be another model is put aside until a newer table names it.

A failed connect puts aside at once, for moments; a connect that works brings back. Bad answers put aside after
`BAD_ANSWERS` of them in a row, for seconds; one good answer to a request that was sent after that brings back. Either
way only one request at a time is let through as a probe once the time is over, and each failed probe doubles it.

Bad answers are weaker evidence than failed connects: one client's poisonous requests, or a bad model behind every
replica, look the same. So they never leave less than half of a revision's replicas (rounded up) open, which keeps the
only one in use too; and where others are lost afterwards, what was put aside by answers is let in again.
"""

from math import inf
from typing import Final

from moorage.decide.serving.routes import SERVER_ERROR, RevisionState, TargetState

EJECT_MIN_S: Final = 0.05
"""First back-off after a failed connect: a server that listens a moment after it said ready costs one such wait."""
EJECT_MAX_S: Final = 2.0

UNREACHABLE: Final = "unreachable"
"""Why one is put aside, as reports say it."""
ANSWERS_BADLY: Final = "bad_answers"
OTHER_MODEL: Final = "another_model"
KEPT_BAD: Final = "kept_bad"
"""Of one that would be put aside by its answers, were there others."""

BAD_ANSWERS: Final = 5
"""In a row. As Envoy's outlier detection (`consecutive_5xx`, `consecutive_gateway_failure`: 5 each)."""
BARRED_MIN_S: Final = 1.0
BARRED_MAX_S: Final = 30.0
_STRIKES: Final = 2 * BAD_ANSWERS
"""Counted in halves: model servers answer 500 to what is wrong with one request, and 502, 503, 504 or nothing to what
is wrong with them."""


def refused_connect(target: TargetState, now: float) -> None:
    """A connect failed. Those that failed together count once, else a burst would put it aside for long."""
    target.probing = False
    if target.failures and now < target.ejected_until:
        return
    target.failures += 1
    target.aside = True
    until = now + min(EJECT_MAX_S, EJECT_MIN_S * 2.0 ** min(target.failures - 1, 16))
    target.ejected_until = max(until, target.ejected_until) if target.barred else until
    let_in(target.revision)


def withdrawn(target: TargetState) -> None:
    """Something else answers in its place."""
    target.probing = False
    target.failures += 1
    target.aside = True
    target.ejected_until = inf
    let_in(target.revision)


def named_anew(target: TargetState) -> None:
    """A newer table names it: what was withdrawn may be tried again."""
    if target.ejected_until == inf:
        target.ejected_until = 0.0


def connected(target: TargetState) -> bool:
    """The target took a connection. Whether it is open again; one with bad answers has to answer well first."""
    if not target.failures or target.ejected_until == inf:
        return False
    target.failures = 0
    if target.barred:
        let_in(target.revision)
    else:
        target.aside = target.probing = False
    return not target.aside


def answered_badly(target: TargetState, outcome: int, now: float, sent_at: float) -> bool:
    """No answer, a cut one or a server's error. Whether that put it aside now.

    Args:
        outcome: `FAILED` or `SERVER_ERROR`.
        sent_at: when the request went there. One sent before the replica was put aside tells nothing new.
    """
    target.bad += 1
    if target.barred:
        if sent_at >= target.ejected_until:
            _bar(target, now)
            return True
        return False
    target.strikes = min(_STRIKES, target.strikes + (1 if outcome == SERVER_ERROR else 2))
    if target.strikes < _STRIKES or target.aside or not _may_bar(target):
        return False
    _bar(target, now)
    return True


def answered_well(target: TargetState, sent_at: float) -> bool:
    """A good answer. Whether the target is open again."""
    if not target.barred:
        target.strikes = target.bad = 0
        return False
    if sent_at < target.ejected_until:
        return False
    _unbar(target)
    return not target.aside


def left_open(target: TargetState, sent_at: float) -> bool:
    """A request ended that tells nothing, its client being gone. Whether another probe may go now."""
    if not target.barred or not target.probing or sent_at < target.ejected_until:
        return False
    target.probing = False
    return True


def why_aside(target: TargetState) -> str | None:
    """What put it aside, or would have; None of one that is in use for what it answers."""
    if not target.aside:
        return KEPT_BAD if target.strikes >= _STRIKES else None
    if target.ejected_until == inf:
        return OTHER_MODEL
    return UNREACHABLE if target.failures else ANSWERS_BADLY


def let_in(revision: RevisionState) -> None:
    """Let in what bad answers put aside, the one due first, until half of the replicas are open again."""
    barred = [target for target in revision.targets if target.barred and not target.failures]
    if not barred:
        return
    barred.sort(key=_due)
    missing = _half(revision) - sum(not target.aside for target in revision.targets)
    for target in barred[: max(0, missing)]:
        _unbar(target)


def _bar(target: TargetState, now: float) -> None:
    target.barred += 1
    target.ejections += 1
    target.aside = True
    target.probing = False
    target.ejected_until = now + min(BARRED_MAX_S, BARRED_MIN_S * 2.0 ** min(target.barred - 1, 16))


def _unbar(target: TargetState) -> None:
    target.barred = target.strikes = target.bad = 0
    if not target.failures:
        target.aside = target.probing = False


def _may_bar(target: TargetState) -> bool:
    revision = target.revision
    others = sum(not each.aside for each in revision.targets if each is not target)
    return others >= _half(revision)


def _half(revision: RevisionState) -> int:
    return (len(revision.targets) + 1) // 2


def _due(target: TargetState) -> float:
    return target.ejected_until
