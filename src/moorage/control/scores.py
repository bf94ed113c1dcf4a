"""The command that posts a quality score of a revision: load, decide (`decide/serving/scores`), carry out."""

from moorage.control.carrying import Answer, Carrier
from moorage.decide.decision import Outcome
from moorage.decide.serving import scores
from moorage.decide.serving.scores import Score
from moorage.domain.errors import NotFound
from moorage.domain.nouns import Deployment, Revision
from moorage.ports import Clock, Store


async def post_score(
    store: Store, clock: Clock, ns: str, name: str, score: Score, *, actor: str, key: str | None
) -> Answer:
    """Keep it: `{deployment, revision, metric, value, samples, counts, changed}`.

    Raises:
        NotFound: there is no such deployment or revision.
        Conflict: the revision is over.
    """

    async def decide() -> Outcome:
        found = await store.find(Deployment, namespace=ns, name=name)
        if not found:
            raise NotFound(
                f"there is no deployment {ns}/{name}",
                remedy="see what there is with `moor ls`",
                target=f"Deployment {ns}/{name}",
            )
        revisions = await store.find(Revision, deployment=found[-1].uid)
        return scores.post(found[-1], revisions, score, clock.now(), actor=actor)

    said = {"score": name, "of": score.revision, "metric": score.metric, "value": score.value, "samples": score.samples}
    return await Carrier(store)(ns, key, said, decide)
