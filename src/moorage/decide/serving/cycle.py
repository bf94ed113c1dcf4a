"""The serving decision of one deployment, as a recipe; each stage is a file of its own and reads what the ones before
it left in the draft.

1. replicas: each run follows its worker, each replica its run; withdraw at once what cannot answer
2. failures: count them, set the back-off; a deployment that never served and cannot fails for good
3. readiness: facts that a ready replica establishes; the first revision becomes active; long running forgives
4. pausing: the handshake to sleep, and waking
4b. resizing: the size that the load asks for
5. scale: start what is missing, stop what is too many, drain before every stop
6. operations: apply, stop and delete follow the rows; a finished delete leaves tombstones
"""

from moorage.decide.decision import Decision, Draft, Ids
from moorage.decide.serving import failures, operations, pausing, readiness, replicas, resizing, scale
from moorage.decide.serving.snapshot import ServingSnapshot
from moorage.domain.changes import Fence

ACTOR = "controller:serving"


def decide(snapshot: ServingSnapshot, ids: Ids, fence: Fence | None = None) -> Decision:
    """One decision: everything that is due for this deployment now, as one change."""
    draft = Draft(snapshot.rows(), snapshot.now, ACTOR)
    failed = replicas.follow(draft, snapshot)
    failures.count(draft, snapshot, failed)
    readiness.note_ready(draft, snapshot)
    failures.forgive(draft, snapshot)
    failures.fail_for_good(draft, snapshot)
    pausing.sleep_or_wake(draft, snapshot)
    resizing.resize(draft, snapshot)
    scale.converge(draft, snapshot, ids)
    operations.advance(draft, snapshot)
    return draft.decision(fence)
