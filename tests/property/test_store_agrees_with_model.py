"""The store against a model of a few lines: any sequence of changes leaves both with the same rows and history."""

import asyncio
import tempfile
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from moorage.clock import SystemClock
from moorage.domain.changes import Change, Create, Hold, Release, Remove, Step, Update, Write
from moorage.domain.errors import MoorageError
from moorage.domain.lifecycles import TABLES
from moorage.domain.nouns import Worker
from moorage.domain.reasons import Reason, ReasonClass
from moorage.store import open_store
from moorage.store.store import SqlStore
from tests.examples import examples

UIDS = ("a", "b", "c")
TABLE = TABLES["Worker"]
EDGES = sorted({(str(r.source), str(r.target), r.trigger) for r in TABLE.rows})


def why(code: str) -> Reason:
    return Reason(code, ReasonClass.PROGRESS, code)


@dataclass
class Row:
    state: str
    version: int
    reason: str
    machine: str | None = None
    rank: int = 0


@dataclass
class Model:
    """What the contract says, without a database."""

    rows: dict[str, Row] = field(default_factory=dict)
    buried: set[str] = field(default_factory=set)
    gpus: dict[int, str] = field(default_factory=dict)
    history: list[tuple[str, str, str | None, str, str, int]] = field(default_factory=list)

    def copy(self) -> "Model":
        rows = {uid: Row(**vars(row)) for uid, row in self.rows.items()}
        return Model(rows, set(self.buried), dict(self.gpus), list(self.history))

    def commit(self, change: Change) -> "Model | None":
        """The model after the change, or None when it must be refused."""
        after = self.copy()
        written = [w.row.uid if isinstance(w, Create) else w.uid for w in change.writes if hasattr(w, "uid")]
        written += [w.row.uid for w in change.writes if isinstance(w, Create)]
        if len(set(written)) < len(written) or not all(after._write(w) for w in change.writes):
            return None
        return after

    def _write(self, write: Write) -> bool:
        if isinstance(write, Create):
            return self._create(write)
        if isinstance(write, Hold):
            if set(write.gpus) & self.gpus.keys() or write.worker in self.gpus.values():
                return False
            self.gpus |= dict.fromkeys(write.gpus, write.worker)
            return True
        if isinstance(write, Release):
            self.gpus = {g: w for g, w in self.gpus.items() if w != write.worker}
            return True
        row = self.rows.get(write.uid)
        if row is None or row.version != write.version:
            return False
        return self._remove(write, row) if isinstance(write, Remove) else self._update(write, row)

    def _create(self, write: Create) -> bool:
        uid = write.row.uid
        if uid in self.rows or uid in self.buried:
            return False
        self.rows[uid] = Row("Pending", 1, write.reason.code)
        self.history.append((uid, "change", None, "Pending", write.reason.code, 1))
        return True

    def _remove(self, write: Remove, row: Row) -> bool:
        del self.rows[write.uid]
        self.buried.add(write.uid)
        self.history.append((write.uid, "change", row.state, "deleted", write.reason.code, row.version + 1))
        return True

    def _update(self, write: Update, row: Row) -> bool:
        news = not write.steps and write.reason is not None and write.reason.code != row.reason
        if not (write.steps or write.fields or write.notes or news):
            return True
        row.version += 1
        for step in write.steps:
            if not TABLE.allows(row.state, step.to, step.trigger):
                return False
            self.history.append((write.uid, "change", row.state, step.to, step.reason.code, row.version))
            row.state, row.reason = step.to, step.reason.code
        if news:
            assert write.reason is not None
            row.reason = write.reason.code
            self.history.append((write.uid, "note", row.state, row.state, row.reason, row.version))
        for note in write.notes:
            self.history.append((write.uid, "note", row.state, row.state, note.code, row.version))
        for name, value in write.fields.items():
            setattr(row, name, value)
        return True


codes = st.sampled_from(("x", "y", "z")).map(why)
uids = st.sampled_from(UIDS)
versions = st.integers(1, 6)
steps = st.lists(st.builds(lambda e, r: Step(e[1], e[2], r), st.sampled_from(EDGES), codes), max_size=2).map(tuple)
fields = st.fixed_dictionaries({}, optional={"machine": st.sampled_from((None, "m1")), "rank": st.integers(0, 3)})


@st.composite
def updates(draw: st.DrawFn) -> Update:
    taken = draw(steps)
    reason = None if taken else draw(st.none() | codes)
    return Update(
        "Worker", draw(uids), draw(versions), taken, draw(fields), reason, draw(st.lists(codes, max_size=1).map(tuple))
    )


creates = st.builds(lambda u, r: Create(Worker(uid=u), r), uids, codes)
removes = st.builds(lambda u, v, r: Remove("Worker", u, v, r), uids, versions, codes)
holds = st.builds(lambda u, g: Hold("m1", u, 1, (g,)), uids, st.integers(0, 1))
writes = st.one_of(updates(), updates(), creates, creates, removes, holds, st.builds(Release, uids))
changes = st.lists(writes, min_size=1, max_size=3).map(lambda w: Change(tuple(w), "test"))


@st.composite
def legal_walks(draw: st.DrawFn) -> list[Change]:
    """Changes that mostly apply: each is drawn knowing what the model holds."""
    model, out = Model(), []
    for _ in range(draw(st.integers(1, 14))):
        uid = draw(uids)
        row = model.rows.get(uid)
        change = draw(changes)
        if row is None and uid not in model.buried:
            change = Change((Create(Worker(uid=uid), draw(codes)),), "test")
        elif row is not None and draw(st.integers(0, 3)):
            edge = draw(st.sampled_from([e for e in EDGES if e[0] == row.state]))
            change = Change(
                (Update("Worker", uid, row.version, (Step(edge[1], edge[2], draw(codes)),), draw(fields)),), "test"
            )
        out.append(change)
        model = model.commit(change) or model
    return out


async def compare(store: SqlStore, plan: list[Change], grouped: bool) -> None:
    begun = asyncio.gather(*(store.commit(c) for c in plan), return_exceptions=True) if grouped else None
    answers = list(await begun) if begun else []
    model = Model()
    for number, change in enumerate(plan):
        after = model.commit(change)
        if not grouped:
            try:
                answers.append(await store.commit(change))
            except MoorageError as error:
                answers.append(error)
        assert isinstance(answers[number], MoorageError) == (after is None), (change, answers[number])
        model = after or model
    rows = {
        w.uid: Row(str(w.state), w.version, w.reason.code, w.machine, w.rank)
        for w in await store.find(Worker)
        if w.reason
    }
    assert rows == model.rows
    found = await store.history(limit=10_000)
    assert [(h.object_uid, h.kind, h.source, h.to, h.reason.code, h.version) for h in found] == model.history
    assert {g: h["worker"] for h in await store.holdings() for g in h["gpus"]} == model.gpus


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(plan=legal_walks(), grouped=st.booleans())
def test_any_sequence_of_changes_leaves_store_and_model_alike(plan: list[Change], grouped: bool) -> None:
    async def main() -> None:
        with tempfile.TemporaryDirectory() as home:
            store = await open_store(f"sqlite:///{home}/store.db", SystemClock())
            try:
                await compare(store, plan, grouped)
            finally:
                await store.close()

    asyncio.run(main())
