"""One operation whose facts are told by the test, under the production engine. Used by unit and property tests."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from moorage.decide.decision import Draft
from moorage.decide.serving import operations
from moorage.decide.serving.facts import Facts, first_steps
from moorage.decide.serving.snapshot import Holder, ServingSnapshot
from moorage.domain.nouns import Deployment, Operation
from tests.serving_world import START, World, spec

ANNA, BERT = Holder("home:anna", 1, START + 30.0), Holder("home:bert", 2, START + 60.0)


class Told(World):
    """One operation whose facts are given by the test."""

    def __init__(self, operation: str = "apply") -> None:
        super().__init__()
        self.facts = Facts(0)
        self.holder: Holder | None = ANNA
        deployment = Deployment(uid="dep-1", name="gemma", spec=spec())
        self.rows["dep-1"] = deployment
        steps = first_steps(operation, 0, self.now)
        self.rows["op-1"] = Operation(uid="op-1", operation=operation, target="dep-1", actor="person:p", steps=steps)

    @property
    def operation(self) -> Operation:
        """The only one."""
        return self.of(Operation)[0]

    def look(self, facts: Facts | None = None) -> None:
        """The engine once, under these facts."""
        self.facts = facts or self.facts
        snapshot = replace(self.snapshot(), holder=self.holder)
        draft = Draft(snapshot.rows(), self.now, "controller:serving")
        with told(self.operation.operation, lambda *_: self.facts):
            operations.advance(draft, snapshot)
        decision = draft.decision()
        self.wake_at = decision.wake_at
        self.commit(decision.change)

    def word(self, outcome: Any) -> None:
        """A person's command."""
        self.commit(outcome.change)


@contextmanager
def told(name: str, facts: Callable[[Draft, ServingSnapshot, Operation], Facts]) -> Iterator[None]:
    before = operations.FACTS
    operations.FACTS = {**before, name: facts}
    try:
        yield
    finally:
        operations.FACTS = before
