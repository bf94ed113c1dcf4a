"""The serving decision of one deployment, as a recipe; each stage is a file of its own and reads what the ones before
it left in the draft.

1. replicas: each run follows its worker, each replica its run; withdraw at once what cannot answer
2. failures: count them, set the back-off; a deployment that never served and cannot fails for good
3. readiness: facts that a ready replica establishes; the first revision becomes active; long running forgives
4. rollout: the candidate is judged, promoted or ended; a rollback goes on; what was replaced drains
5. pausing: the handshake to sleep, and waking
6. resizing: the size that the load asks for
7. scale: start what is missing of each revision, stop what is too many, drain before every stop
8. operations: every order follows the rows; a finished delete leaves tombstones
"""

from moorage.decide.decision import Decision, Draft, Ids
from moorage.decide.serving import failures, operations, pausing, readiness, replicas, resizing, scale
from moorage.decide.serving.rollout import advance as rollout
from moorage.decide.serving.snapshot import ServingSnapshot
from moorage.domain.changes import Fence

ACTOR = "controller:serving"


def decide(snapshot: ServingSnapshot, ids: Ids, fence: Fence | None = None) -> Decision:
    """One decision: everything that is due for this deployment now, as one change."""
    draft = Draft(snapshot.rows(), snapshot.now, ACTOR)
    if snapshot.deployment.upstream is not None:  # somebody else runs it: nothing is started, replaced or scaled
        operations.advance(draft, snapshot)
        return draft.decision(fence)
    failed = replicas.follow(draft, snapshot)
    failures.count(draft, snapshot, failed)
    readiness.note_ready(draft, snapshot)
    failures.forgive(draft, snapshot)
    failures.fail_for_good(draft, snapshot)
    rollout.advance(draft, snapshot, ids)
    pausing.sleep_or_wake(draft, snapshot)
    resizing.resize(draft, snapshot)
    scale.converge(draft, snapshot, ids)
    operations.advance(draft, snapshot)
    return draft.decision(fence)
